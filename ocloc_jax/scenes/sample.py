"""Random scenes: which objects, where they stand, the lights and the ground."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ocloc_jax.scenes.spec import COLOURS, SIZES, SceneSpec, placement_radii

CUBE, SPHERE, CYLINDER = 0, 1, 2
# Free ground between the bounding circles of two objects, as in CLEVR.
GAP = 0.2
NUM_LAYOUTS = 16
NUM_CANDIDATES = 64


class Objects(NamedTuple):
    """The objects of one scene; absent ones come last."""

    position: Float[Array, "n 2"]
    radius: Float[Array, "n"]
    yaw: Float[Array, "n"]
    kind: Int[Array, "n"]
    colour: Float[Array, "n 3"]
    metal: Bool[Array, "n"]
    present: Bool[Array, "n"]


class Ground(NamedTuple):
    """Colours and pattern of the ground and the horizon of one scene."""

    colours: Float[Array, "2 3"]
    checker: Float[Array, ""]
    waves: Float[Array, "6 3"]
    turn: Float[Array, ""]
    pitch: Float[Array, ""]
    sky: Float[Array, "2 3"]


class Scene(NamedTuple):
    """Everything about a scene that does not depend on the camera."""

    objects: Objects
    ground: Ground
    light_jitter: Float[Array, "2 2"]


def sample_scene(spec: SceneSpec, key: PRNGKeyArray) -> Scene:
    object_key, ground_key, light_key = (jax.random.fold_in(key, i) for i in range(3))
    light_jitter = jax.random.uniform(light_key, (2, 2), minval=-1.0, maxval=1.0)
    return Scene(
        sample_objects(spec, object_key), sample_ground(ground_key), light_jitter
    )


def sample_objects(spec: SceneSpec, key: PRNGKeyArray) -> Objects:
    n = spec.max_objects
    keys = [jax.random.fold_in(key, i) for i in range(7)]
    count = jax.random.randint(keys[0], (), spec.min_objects, n + 1)
    large = jax.random.bernoulli(keys[1], shape=(n,)).astype(int)
    if spec.distinct_colours:
        colour = jax.random.permutation(keys[3], len(COLOURS))[:n]
    else:
        colour = jax.random.randint(keys[3], (n,), 0, len(COLOURS))
    present = jnp.arange(n) < count
    radius = jnp.array(SIZES)[large] * spec.object_scale
    bound = jnp.array(placement_radii(spec))[large]
    position, shrink = place(keys[6], radius, bound, present)
    return Objects(
        position=position,
        radius=radius * shrink,
        yaw=jax.random.uniform(keys[2], (n,), maxval=2 * np.pi),
        kind=jax.random.randint(keys[4], (n,), 0, 3),
        colour=jnp.array(list(COLOURS.values()))[colour] / 255.0,
        metal=jax.random.bernoulli(keys[5], shape=(n,)),
        present=present,
    )


def place(
    key: PRNGKeyArray,
    radius: Float[Array, "n"],
    bound: Float[Array, "n"],
    present: Bool[Array, "n"],
) -> tuple[Float[Array, "n 2"], Float[Array, ""]]:
    """Puts objects apart from each other and within their bounds.

    Several layouts are drawn and the first that fits is taken. When none does, the
    roomiest is, and all objects shrink by the returned factor until they fit.
    """
    keys = jax.random.split(key, NUM_LAYOUTS)
    layouts, fits = jax.vmap(_layout, (0, None, None, None))(
        keys, radius, bound, present
    )
    best = jnp.argmax(fits)  # fits are capped at 1, and argmax takes the first
    return layouts[best], fits[best]


def _layout(
    key: PRNGKeyArray,
    radius: Float[Array, "n"],
    bound: Float[Array, "n"],
    present: Bool[Array, "n"],
) -> tuple[Float[Array, "n 2"], Float[Array, ""]]:
    """Places one object after another at its first candidate that is free."""
    n = radius.shape[0]
    draws = jax.random.uniform(key, (n, NUM_CANDIDATES, 2))
    distance = jnp.sqrt(draws[..., 0]) * bound[:, None]
    angle = 2 * jnp.pi * draws[..., 1]
    candidates = jnp.stack(
        [distance * jnp.cos(angle), distance * jnp.sin(angle)], axis=-1
    )

    def put(i: Int[Array, ""], carry):
        position, fit = carry
        offset = candidates[i][:, None] - position[None]
        apart = jnp.linalg.norm(offset, axis=-1)  # [candidates, n]
        share = apart / (radius[i] + radius + GAP)[None]
        earlier = (jnp.arange(n) < i) & present & present[i]
        share = jnp.where(earlier[None], share, 1.0).min(axis=-1)
        share = jnp.minimum(share, 1.0)
        best = jnp.argmax(share)  # the first candidate that is free, or the freest
        return position.at[i].set(candidates[i, best]), jnp.minimum(fit, share[best])

    return jax.lax.fori_loop(0, n, put, (jnp.zeros((n, 2)), jnp.ones(())))


def sample_ground(key: PRNGKeyArray) -> Ground:
    keys = [jax.random.fold_in(key, i) for i in range(6)]
    # Middling brightness keeps objects of every colour visible on the ground.
    colours = jax.random.uniform(keys[0], (2, 3), minval=0.12, maxval=0.6)
    waves = jax.random.uniform(keys[1], (6, 3))
    return Ground(
        colours=colours,
        checker=jax.random.bernoulli(keys[2]).astype(jnp.float32),
        waves=waves,
        turn=jax.random.uniform(keys[3], maxval=2 * np.pi),
        pitch=jax.random.uniform(keys[4], minval=0.8, maxval=1.8),
        sky=jax.random.uniform(keys[5], (2, 3), minval=0.15, maxval=0.9),
    )
