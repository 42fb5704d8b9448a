"""Random scenes: which objects, where they stand, the lights and the ground."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ocloc_jax.scenes.spec import COLOURS, SIZES, SceneSpec, placement_radii

CUBE, SPHERE, CYLINDER = 0, 1, 2
# Free ground between the bounding circles of two objects, as in CLEVR.
GAP = 0.15
# Between values as linear light (1) and as encoded for a screen (2.2): by eye.
_SATURATION = 1.4
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
    n, colours = spec.max_objects, jnp.array(list(COLOURS.values())) / 255.0
    # Few draws of many numbers: every draw costs half a second of compilation.
    draws = jax.random.uniform(jax.random.fold_in(key, 0), (5, n))
    span = spec.max_objects - spec.min_objects + 1
    extra = jax.random.uniform(jax.random.fold_in(key, 1), (1 + len(colours),))
    present = jnp.arange(n) < spec.min_objects + _below(extra[0], span)
    large = _below(draws[0], 2)
    if spec.distinct_colours:
        colour = jnp.argsort(extra[1:])[:n]
    else:
        colour = _below(draws[1], len(colours))
    radius = jnp.array(SIZES)[large] * spec.object_scale
    bound = jnp.array(placement_radii(spec))[large]
    position, shrink = place(jax.random.fold_in(key, 2), radius, bound, present)
    return Objects(
        position=position,
        radius=radius * shrink,
        yaw=draws[2] * (2 * np.pi),
        kind=_below(draws[3], 3),
        colour=colours[colour] ** _SATURATION,
        metal=draws[4] < 0.5,
        present=present,
    )


def _below(share: Float[Array, "*n"], count: int) -> Int[Array, "*n"]:
    """Turns numbers in [0, 1) into whole numbers from 0 to `count` - 1."""
    return jnp.minimum((share * count).astype(jnp.int32), count - 1)


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
    draws = jax.random.uniform(key, (NUM_LAYOUTS, len(radius), NUM_CANDIDATES, 2))
    layouts, fits = jax.vmap(_layout, (0, None, None, None))(
        draws, radius, bound, present
    )
    best = jnp.argmax(fits)  # fits are capped at 1, and argmax takes the first
    return layouts[best], fits[best]


def _layout(
    draws: Float[Array, "n c 2"],
    radius: Float[Array, "n"],
    bound: Float[Array, "n"],
    present: Bool[Array, "n"],
) -> tuple[Float[Array, "n 2"], Float[Array, ""]]:
    """Puts one object after another on its first candidate that is free."""
    n = radius.shape[0]
    distance = jnp.sqrt(draws[..., 0]) * bound[:, None]
    angle = 2 * jnp.pi * draws[..., 1]
    candidates = jnp.stack(
        [distance * jnp.cos(angle), distance * jnp.sin(angle)], axis=-1
    )

    # Large objects first: small ones still find room between them.
    turn = jnp.argsort(jnp.where(present, -radius, 1.0))

    def put(step: Int[Array, ""], carry):
        position, placed, fit = carry
        i = turn[step]
        offset = candidates[i][:, None] - position[None]
        apart = jnp.sqrt((offset**2).sum(axis=-1))  # [candidates, n]
        share = apart / (radius[i] + radius + GAP)[None]
        share = jnp.where((placed & present[i])[None], share, 1.0).min(axis=-1)
        share = jnp.minimum(share, 1.0)
        best = jnp.argmax(share)  # the first candidate that is free, or the freest
        position = position.at[i].set(candidates[i, best])
        return position, placed.at[i].set(present[i]), jnp.minimum(fit, share[best])

    nothing = jnp.zeros((n, 2)), jnp.zeros(n, bool), jnp.ones(())
    position, _, fit = jax.lax.fori_loop(0, n, put, nothing)
    return position, fit


def sample_ground(key: PRNGKeyArray) -> Ground:
    draws = jax.random.uniform(key, (33,))
    # Middling brightness keeps objects of every colour visible on the ground.
    first, second = 0.12 + 0.48 * draws[:6].reshape(2, 3)
    return Ground(
        colours=jnp.stack([first, first + 0.6 * (second - first)]),
        sky=0.1 + 0.8 * draws[6:12].reshape(2, 3),
        waves=draws[12:30].reshape(6, 3),
        checker=jnp.round(draws[30]),
        turn=draws[31] * (2 * np.pi),
        pitch=0.8 + draws[32],
    )
