"""Cameras on a band of the sphere around the scene, and the rays they send out."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ocloc_jax.scenes.spec import TARGET_HEIGHT, SceneSpec
from ocloc_jax.scenes.vector import Vector


def sample_camera(
    spec: SceneSpec, key: PRNGKeyArray, view: Int[Array, ""]
) -> Float[Array, "3"]:
    """Returns azimuth, elevation and distance of one view.

    A view depends on its own number only, so that the first views of a scene stay the
    same when more are asked for. `key` belongs to the cameras of one scene.
    """
    low, high = jnp.array([spec.azimuth, spec.elevation, spec.distance]).T
    if spec.arc is not None:
        # A stream that no view number reaches: views fold in their number plus one.
        centre = jax.random.uniform(
            jax.random.fold_in(key, 0), minval=low[0], maxval=high[0]
        )
        low, high = low.at[0].set(centre - spec.arc), high.at[0].set(centre + spec.arc)
    share = jax.random.uniform(jax.random.fold_in(key, view + 1), (3,))
    return low + (high - low) * share


def camera_position(camera: Float[Array, "3"]) -> Vector:
    azimuth, elevation, distance = camera
    flat = distance * jnp.cos(elevation)
    return Vector(
        flat * jnp.cos(azimuth),
        flat * jnp.sin(azimuth),
        TARGET_HEIGHT + distance * jnp.sin(elevation),
    )


def camera_axes(camera: Float[Array, "3"]) -> tuple[Vector, Vector, Vector]:
    """Returns the unit vectors to the right, upwards and forwards of a camera."""
    azimuth, elevation = camera[0], camera[1]
    cos_a, sin_a = jnp.cos(azimuth), jnp.sin(azimuth)
    cos_e, sin_e = jnp.cos(elevation), jnp.sin(elevation)
    right = Vector(-sin_a, cos_a, jnp.zeros_like(sin_a))
    up = Vector(-sin_e * cos_a, -sin_e * sin_a, cos_e)
    return right, up, Vector(-cos_e * cos_a, -cos_e * sin_a, -sin_e)


def camera_rays(spec: SceneSpec, camera: Float[Array, "3"]) -> Vector:
    """Returns unit directions with components of shape [samples, size * size]."""
    side = math.isqrt(spec.samples)
    scale = math.tan(spec.field_of_view / 2)
    fine = (jnp.arange(spec.size * side) + 0.5) * (2 * scale / (spec.size * side))
    fine = (fine - scale).reshape(spec.size, side).T  # [side, size]
    shape = (side, side, spec.size, spec.size)
    rays = (spec.samples, spec.size * spec.size)
    down = jnp.broadcast_to(fine[:, None, :, None], shape).reshape(rays)
    across = jnp.broadcast_to(fine[None, :, None, :], shape).reshape(rays)
    right, up, forward = camera_axes(camera)
    return forward.plus(right, across).plus(up, -down).unit()


def project(
    spec: SceneSpec, camera: Float[Array, "3"], point: Float[Array, "3"]
) -> Float[Array, "3"]:
    """Returns column and row in pixels (pixel centres at .5) and depth of a point."""
    right, up, forward = camera_axes(camera)
    offset = Vector(*point).plus(camera_position(camera), -1.0)
    depth = offset.dot(forward)
    scale = depth * math.tan(spec.field_of_view / 2)
    column = (offset.dot(right) / scale + 1) * spec.size / 2
    row = (1 - offset.dot(up) / scale) * spec.size / 2
    return jnp.stack([column, row, depth])
