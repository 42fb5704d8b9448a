"""Renders scenes: a pure function of spec, seed and scene index."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped, UInt8, UInt32

from ocloc_jax.scenes import camera as cameras
from ocloc_jax.scenes import lights, sample, shapes, tracer
from ocloc_jax.scenes.sample import Scene
from ocloc_jax.scenes.shading import World
from ocloc_jax.scenes.spec import SceneSpec
from ocloc_jax.scenes.vector import Vector

Record = dict[str, Shaped[np.ndarray, "..."]]
KEYS = ("image", "segment", "overlap", "masks", "order", "camera")
ABSENT = -1e9
_EXPOSURE = 0.62
_GAMMA = 1 / 2.2
# Views under way at a time: enough to keep cores busy, few enough to bound memory.
_IN_FLIGHT = 4


def render(spec: SceneSpec, seed: int, index: int) -> Record:
    """Renders one scene: `render_batch` without the scene axis."""
    return {key: value[0] for key, value in render_batch(spec, seed, [index]).items()}


def render_batch(spec: SceneSpec, seed: int, indices: Sequence[int]) -> Record:
    """Renders the scenes with these indices.

    View j of a scene depends on seed, index and j only: asking for more views, or for
    more scenes, changes none of those asked for before.

    Args:
      spec: What the scenes look like.
      seed: Names a dataset of this spec, 0 to 2**32 - 1.
      indices: Names scenes of that dataset, each 0 to 2**32 - 1.

    Returns:
      image: uint8 [s, v, h, w, 3].
      segment: uint8 [s, v, h, w], the object that most samples of the pixel see; the
        background, `max_objects`, where no complete shape covers half of the pixel.
      overlap: uint8 [s, v, h, w], how many complete shapes cover half of the pixel,
        that is, have a mask of at least 128.
      masks: uint8 [s, v, n + 1, h, w], which part of the pixel complete shapes cover;
        0 for unused objects, the background last and 255.
      order: float32 [s, v, n], minus the distance between camera and centre of the
        object, -1e9 for unused objects.
      camera: float32 [s, v, 3], azimuth, elevation and distance.
    """
    _check(seed, indices)
    views = list(_render_views(spec, seed, indices))
    shape = (len(indices), spec.num_views)
    return {
        key: np.stack([view[key] for view in views]).reshape(shape + first.shape)
        for key, first in views[0].items()
    }


def render_cameras(
    spec: SceneSpec, seed: int, index: int, cameras: Float[np.ndarray, "v 3"]
) -> Record:
    """Renders one scene from cameras of one's own choice, also between its views.

    Args:
      spec: What the scenes look like; its number of views does not matter.
      seed: See `render_batch`.
      index: See `render_batch`.
      cameras: Azimuth, elevation and distance of each.

    Returns:
      As `render_batch`, without the axis of scenes.
    """
    _check(seed, [index])
    if len(cameras) == 0:
        raise ValueError("cameras is empty; give at least one.")
    _, scene = sample_scene(layout_spec(spec), np.uint32(seed), np.uint32(index))
    jobs = ((scene, camera) for camera in np.asarray(cameras, np.float32))
    views = list(_render_each(picture_spec(spec), jobs))
    return {key: np.stack([view[key] for view in views]) for key in views[0]}


def _check(seed: int, indices: Sequence[int]) -> None:
    if len(indices) == 0:
        raise ValueError("indices is empty; name at least one scene.")
    for name, number in [("seed", seed), *(("index", index) for index in indices)]:
        if not 0 <= number < 2**32:
            raise ValueError(f"{name}={number}; use a whole number in [0, 2**32).")


def _render_views(
    spec: SceneSpec, seed: int, indices: Sequence[int]
) -> Iterator[Record]:
    """Yields views scene by scene."""
    layout = layout_spec(spec)

    def jobs() -> Iterator[tuple[Scene, Float[Array, "3"]]]:
        for index in indices:
            key, scene = sample_scene(layout, np.uint32(seed), np.uint32(index))
            for view in range(spec.num_views):
                yield scene, _sample_camera(layout, key, np.int32(view))

    return _render_each(picture_spec(spec), jobs())


def _render_each(
    spec: SceneSpec, jobs: Iterable[tuple[Scene, Any]]
) -> Iterator[Record]:
    """Yields a view of each scene and camera while the next are being computed."""
    pending = collections.deque()
    for scene, camera in jobs:
        if len(pending) == _IN_FLIGHT:
            yield jax.device_get(pending.popleft())
        pending.append(render_view(spec, scene, camera))
    while pending:
        yield jax.device_get(pending.popleft())


def layout_spec(spec: SceneSpec) -> SceneSpec:
    """Drops what matters for pictures only, to compile once for all of their sizes."""
    return dataclasses.replace(
        spec, size=1, num_views=1, samples=1, background="plain", shadows=True
    )


def picture_spec(spec: SceneSpec) -> SceneSpec:
    """Drops what does not matter for one picture, to compile once for all splits."""
    return dataclasses.replace(
        spec, num_views=1, min_objects=0, arc=None, distinct_colours=False
    )


@functools.partial(jax.jit, static_argnums=0)
def sample_scene(
    spec: SceneSpec, seed: UInt32[Array, ""], index: UInt32[Array, ""]
) -> tuple[PRNGKeyArray, Scene]:
    """Returns the key of the cameras of a scene, and what stands in it."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), index)
    scene = sample.sample_scene(spec, jax.random.fold_in(key, 0))
    return jax.random.fold_in(key, 1), scene


@functools.partial(jax.jit, static_argnums=0)
def _sample_camera(
    spec: SceneSpec, key: PRNGKeyArray, view: Int[Array, ""]
) -> Float[Array, "3"]:
    return cameras.sample_camera(spec, key, view)


@functools.partial(jax.jit, static_argnums=0)
def render_view(
    spec: SceneSpec, scene: Scene, camera: Float[Array, "3"]
) -> dict[str, Shaped[Array, "..."]]:
    """Renders a scene as one camera sees it; keys as in `render_batch`."""
    world = make_world(spec, scene)
    origin = cameras.camera_position(camera)
    rays = cameras.camera_rays(spec, camera)
    colour, owner, coverage = tracer.trace(world, origin, rays)
    masks, segment, overlap = label(spec, owner, coverage)
    return {
        "image": develop(spec, colour),
        "segment": segment,
        "overlap": overlap,
        "masks": masks,
        "order": depth_order(origin, world.solids),
        "camera": camera,
    }


def make_world(spec: SceneSpec, scene: Scene) -> World:
    return World(
        solids=shapes.make_solids(scene.objects),
        colour=scene.objects.colour,
        metal=scene.objects.metal,
        lights=lights.make_lights(scene.light_jitter),
        ground=scene.ground,
        background=spec.background,
        shadows=spec.shadows,
    )


def label(
    spec: SceneSpec, owner: Int[Array, "s r"], coverage: Float[Array, "n r"]
) -> tuple[UInt8[Array, "n+1 h w"], UInt8[Array, "h w"], UInt8[Array, "h w"]]:
    """Returns masks, segment and overlap.

    `overlap` and `segment` agree on what is background: in pixels that several objects
    and the background share, no part may be the larger half.
    """
    n, shape = spec.max_objects, (spec.size, spec.size)
    masks = jnp.round(coverage * 255).astype(jnp.uint8)
    masks = jnp.pad(masks, ((0, 1), (0, 0)), constant_values=255)
    overlap = (coverage >= 0.5).sum(axis=0).astype(jnp.uint8)
    seen = jnp.stack([(owner == k).sum(axis=0) for k in range(n)])
    segment = jnp.where(overlap > 0, seen.argmax(axis=0), n).astype(jnp.uint8)
    return masks.reshape(n + 1, *shape), segment.reshape(shape), overlap.reshape(shape)


def develop(spec: SceneSpec, colour: Vector) -> UInt8[Array, "h w 3"]:
    """Averages the samples of pixels and turns light into 8-bit values."""
    # Clipped before averaging, or highlights would have jagged edges.
    channels = [jnp.clip(c * _EXPOSURE, 0, 1).mean(axis=0) for c in colour]
    image = jnp.stack(channels, axis=-1).reshape(spec.size, spec.size, 3)
    return jnp.round(image**_GAMMA * 255).astype(jnp.uint8)


def depth_order(origin: Vector, solids: shapes.Solids) -> Float[Array, "n"]:
    x, y, z = solids.centre().plus(origin, -1.0)
    return jnp.where(solids.present, -jnp.sqrt(x * x + y * y + z * z), ABSENT)
