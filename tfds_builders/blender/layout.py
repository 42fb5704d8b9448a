"""What stands where in a scene: the ray tracer's sampling, and a choice of files."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax.scenes import SceneSpec, camera, lights, renderer

KINDS = ("cube", "sphere", "cylinder")  # In the order of `scenes.sample`.


def plan(
    spec: SceneSpec,
    seed: int,
    index: int,
    meshes: tuple[str, ...] = (),
    environments: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Returns one scene as JSON values, for Blender.

    Places, sizes, colours, lights and cameras are those of `scenes.render` with the
    same arguments. A scene repeats a mesh only if there are fewer than objects.

    Args:
      spec: What the scenes look like.
      seed: Seed of the dataset.
      index: Which scene.
      meshes: Files to choose from; none stands for CLEVR's primitives.
      environments: Panoramas to choose from; none stands for lamps and a grey ground.
    """
    # The size of pictures does not change the layout: compile once for all sizes.
    plain = dataclasses.replace(spec, size=1, num_views=1, samples=1)
    key, objects, lamps = _sample(plain, np.uint32(seed), np.uint32(index))
    views = _sample_views(plain, key, np.arange(spec.num_views, dtype=np.int32))
    objects, lamps, (cameras, poses) = jax.device_get((objects, lamps, views))
    rng = np.random.default_rng([seed, index])
    count = int(objects.present.sum())
    turn, noise = rng.uniform(0, 2 * np.pi), int(rng.integers(1 << 30))
    panorama = environments[rng.integers(len(environments))] if environments else None
    repeat = len(meshes) < count
    chosen = rng.choice(len(meshes), count, repeat) if meshes else ()
    return {
        "objects": [_object(objects, i) for i in range(count)],
        "meshes": [meshes[i] for i in chosen],
        "environment": panorama,
        "turn": turn,
        "noise": noise,
        "lamps": lamps.tolist(),
        "cameras": cameras.tolist(),
        "poses": poses.tolist(),
        "field_of_view": spec.field_of_view,
        "shadows": spec.shadows,
    }


def _object(objects: Any, i: int) -> dict[str, Any]:
    return {
        "position": objects.position[i].tolist(),
        "radius": float(objects.radius[i]),
        "yaw": float(objects.yaw[i]),
        "kind": KINDS[objects.kind[i]],
        "colour": objects.colour[i].tolist(),
        "metal": bool(objects.metal[i]),
    }


@functools.partial(jax.jit, static_argnums=0)
def _sample(spec: SceneSpec, seed: jax.Array, index: jax.Array) -> tuple:
    key, scene = renderer.sample_scene(spec, seed, index)
    lamps = [
        jnp.stack([*lamp.toward, jnp.float32(lamp.strength)])
        for lamp in lights.make_lights(scene.light_jitter)
    ]
    return key, scene.objects, jnp.stack(lamps)


@functools.partial(jax.jit, static_argnums=0)
def _sample_views(spec: SceneSpec, key: jax.Array, views: jax.Array) -> tuple:
    cameras = jax.vmap(lambda view: camera.sample_camera(spec, key, view))(views)
    return cameras, jax.vmap(_pose)(cameras)


def _pose(view: jax.Array) -> jax.Array:
    """Matrix from a camera's coordinates (x right, y up, z backward) to the world's."""
    right, up, forward = camera.camera_axes(view)
    backward = forward.times(-1.0)
    columns = [
        jnp.stack([*axis])
        for axis in (right, up, backward, camera.camera_position(view))
    ]
    bottom = jnp.array([[0.0, 0.0, 0.0, 1.0]])
    return jnp.concatenate([jnp.stack(columns, axis=1), bottom])
