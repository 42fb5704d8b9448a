"""Renders scenes: a pure function of spec, seed and scene index."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped, UInt8

from ocloc_jax.scenes import camera as cameras
from ocloc_jax.scenes import lights, sample, shading, shapes
from ocloc_jax.scenes.sample import Objects, Scene
from ocloc_jax.scenes.shading import Surface, World
from ocloc_jax.scenes.spec import SceneSpec
from ocloc_jax.scenes.vector import Vector, mix, smoothstep

Record = dict[str, Shaped[np.ndarray, "..."]]
ABSENT = -1e9
_EXPOSURE = 0.62
_GAMMA = 1 / 2.2


def render(spec: SceneSpec, seed: int, index: int) -> Record:
    """Renders one scene; see `render_batch`."""
    return {k: v[0] for k, v in render_batch(spec, seed, [index]).items()}


def render_batch(spec: SceneSpec, seed: int, indices: Sequence[int]) -> Record:
    """Renders the scenes with these indices.

    Args:
      spec: What the scenes look like.
      seed: Names a dataset of this spec.
      indices: Names scenes of that dataset.

    Returns:
      image: uint8 [s, v, h, w, 3].
      segment: uint8 [s, v, h, w], the visible object, `max_objects` for background.
      overlap: uint8 [s, v, h, w], objects whose complete shape covers half the pixel.
      masks: uint8 [s, v, n + 1, h, w], complete shapes, the background last.
      order: float32 [s, v, n], minus the distance from the camera, -1e9 if absent.
      camera: float32 [s, v, 3], azimuth, elevation, distance.
    """
    scenes = [_render_scene(spec, seed, int(index)) for index in indices]
    return {k: np.stack([scene[k] for scene in scenes]) for k in scenes[0]}


def _render_scene(spec: SceneSpec, seed: int, index: int) -> Record:
    key = jax.random.fold_in(jax.random.key(seed), index)
    scene = _sample_scene(spec, key)
    views = [_render_view(spec, scene, key, view) for view in range(spec.num_views)]
    views = jax.device_get(views)
    return {k: np.stack([view[k] for view in views]) for k in views[0]}


@functools.partial(jax.jit, static_argnums=0)
def _sample_scene(spec, key):
    return sample.sample_scene(spec, jax.random.fold_in(key, 0))


@functools.partial(jax.jit, static_argnums=0)
def _render_view(spec, scene, key, view):
    camera = cameras.sample_camera(spec, jax.random.fold_in(key, 1), view)
    return render_view(spec, scene, camera)


def render_view(
    spec: SceneSpec, scene: Scene, camera: Float[Array, "3"]
) -> dict[str, Shaped[Array, "..."]]:
    solids = shapes.make_solids(scene.objects)
    world = World(
        solids,
        lights.make_lights(scene.light_jitter),
        scene.ground,
        spec.background,
        spec.shadows,
    )
    origin = cameras.camera_position(camera)
    rays = cameras.camera_rays(spec, camera)
    distance, index, hits = shapes.nearest(origin, rays, solids)
    colour = trace(world, scene.objects, origin, rays, distance, index)
    masks, segment, overlap = label(index, hits, spec)
    return {
        "image": develop(colour, spec.size),
        "segment": segment,
        "overlap": overlap,
        "masks": masks,
        "order": depth_order(origin, solids),
        "camera": camera,
    }


def trace(world, objects, origin, rays, distance, index, bounce=True) -> Vector:
    n = world.solids.x.shape[0]
    on_object = index < n
    to_ground = -origin.z / jnp.minimum(rays.z, -1e-4)
    distance = jnp.where(on_object, distance, jnp.minimum(to_ground, 1e3))
    point = origin.plus(rays, distance)
    solid, albedo, metal = select(world.solids, objects, index)
    normal = shapes.surface_normal(point, solid)
    normal = Vector(*(jnp.where(on_object, a, b) for a, b in zip(normal, shading.UP)))
    ground = shading.ground_colour(world.ground, world.background, point)
    albedo = Vector(*(jnp.where(on_object, a, b) for a, b in zip(albedo, ground)))
    surface = Surface(point, normal, albedo, index, metal)
    diffuse, broad, sharp = shading.light_on(world, surface, rays)
    matt = albedo.times(diffuse)
    shine = jnp.where(on_object, 0.12 * broad, 0.0)
    matt = Vector(*(c + shine for c in matt))
    if bounce:
        mirror = rays.reflected(normal)
        far, other, _ = shapes.nearest(point, mirror, world.solids, skip=index)
        seen = trace(world, objects, point, mirror, far, other, bounce=False)
    else:
        seen = shading.sky_colour(world, rays.reflected(normal))
    bright = Vector(
        *(
            a * (0.25 * diffuse + 0.85 * b) + 0.9 * sharp + 0.15 * broad
            for a, b in zip(albedo, seen)
        )
    )
    colour = Vector(*(jnp.where(metal & on_object, a, b) for a, b in zip(bright, matt)))
    sky = shading.sky_colour(world, rays)
    fade = smoothstep(6.0, 14.0, jnp.sqrt(point.x**2 + point.y**2))
    if world.background != "sky":
        fade = 0.0
    fade = jnp.where(on_object, 0.0, jnp.where(rays.z > -1e-3, 1.0, fade))
    return Vector(*(mix(a, b, fade) for a, b in zip(colour, sky)))


def select(solids, objects, index):
    def pick(values):
        out = jnp.broadcast_to(values[0], index.shape)
        for k in range(1, values.shape[0]):
            out = jnp.where(index == k, values[k], out)
        return out

    return (
        jax.tree.map(pick, solids),
        Vector(*(pick(objects.colour[:, c]) for c in range(3))),
        pick(objects.metal),
    )


def label(index, hits, spec):
    n, size = spec.max_objects, spec.size
    coverage = hits
    masks = jnp.round(coverage * 255).astype(jnp.uint8)
    masks = jnp.concatenate([masks, jnp.full((1, size * size), 255, jnp.uint8)])
    overlap = (coverage >= 0.5).sum(axis=0).astype(jnp.uint8)
    seen = jnp.stack([(index == k).sum(axis=0) for k in range(n)])
    segment = jnp.where(overlap > 0, jnp.argmax(seen, axis=0), n).astype(jnp.uint8)
    shape = (size, size)
    return (
        masks.reshape(n + 1, *shape),
        segment.reshape(shape),
        overlap.reshape(shape),
    )


def develop(colour, size):
    channels = [jnp.clip(c * _EXPOSURE, 0, 1).mean(axis=0) for c in colour]
    image = jnp.stack(channels, axis=-1).reshape(size, size, 3)
    return jnp.round(image**_GAMMA * 255).astype(jnp.uint8)


def depth_order(origin, solids):
    x, y, z = (a - b for a, b in zip(solids.centre(), origin))
    return jnp.where(solids.present, -jnp.sqrt(x * x + y * y + z * z), ABSENT)
