"""Random scenes: which objects, where they stand, the lights and the ground."""

import math
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
    # One draw for everything: each further one costs a second of compilation.
    shapes = {
        "layouts": (NUM_LAYOUTS, spec.max_objects, NUM_CANDIDATES, 2),
        "objects": (5, spec.max_objects),
        "colours": (len(COLOURS),),
        "count": (),
        "ground": (33,),
        "lights": (2, 2),
    }
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = jnp.split(jax.random.uniform(key, (int(ends[-1]),)), ends[:-1])
    draws = {
        name: part.reshape(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
    objects, ground = make_objects(spec, draws), make_ground(draws["ground"])
    return Scene(objects, ground, light_jitter=2 * draws["lights"] - 1)


def make_objects(spec: SceneSpec, draws: dict[str, Float[Array, "..."]]) -> Objects:
    n, colours = spec.max_objects, jnp.array(list(COLOURS.values())) / 255.0
    sizes, hues, yaws, kinds, materials = draws["objects"]
    span = spec.max_objects - spec.min_objects + 1
    present = jnp.arange(n) < spec.min_objects + _below(draws["count"], span)
    large = _below(sizes, len(SIZES))
    if spec.distinct_colours:
        colour = jnp.argsort(draws["colours"])[:n]
    else:
        colour = _below(hues, len(colours))
    radius = jnp.array(SIZES)[large] * spec.object_scale
    bound = jnp.array(placement_radii(spec))[large]
    position, shrink = place(draws["layouts"], radius, bound, present)
    return Objects(
        position=position,
        radius=radius * shrink,
        yaw=yaws * (2 * np.pi),
        kind=_below(kinds, 3),
        colour=colours[colour] ** _SATURATION,
        metal=materials < 0.5,
        present=present,
    )


def _below(share: Float[Array, "*n"], count: int) -> Int[Array, "*n"]:
    """Turns numbers in [0, 1) into whole numbers from 0 to `count` - 1."""
    return jnp.minimum((share * count).astype(jnp.int32), count - 1)


def place(
    draws: Float[Array, "l n c 2"],
    radius: Float[Array, "n"],
    bound: Float[Array, "n"],
    present: Bool[Array, "n"],
) -> tuple[Float[Array, "n 2"], Float[Array, ""]]:
    """Puts objects apart from each other and within their bounds.

    The first of the drawn layouts that fits is taken. When none does, the roomiest is,
    and all objects are to shrink by the returned factor, which makes them fit.
    """

    def attempt(carry):
        i, position, fit = carry
        new_position, new_fit = _layout(draws[i], radius, bound, present)
        better = new_fit > fit
        position = jnp.where(better, new_position, position)
        return i + 1, position, jnp.maximum(fit, new_fit)

    def unfinished(carry):
        return (carry[0] < draws.shape[0]) & (carry[2] < 1)

    none = jnp.int32(0), jnp.zeros((len(radius), 2)), jnp.zeros(())
    _, position, fit = jax.lax.while_loop(unfinished, attempt, none)
    return position, fit


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


def make_ground(draws: Float[Array, "33"]) -> Ground:
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
