"""Where rays meet cubes, spheres and cylinders.

All three are one kind of solid: the part of an upright quadric (sphere or infinite
cylinder) that lies inside a box. The one of the two that a shape does not need is made
too large to matter, so that rays need no branch on the kind of an object.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ocloc_jax.scenes.sample import CUBE, CYLINDER, SPHERE, Objects
from ocloc_jax.scenes.vector import Scalars, Vector

FAR = 1e6
# Edges are rounded for shading only, over this share of an object's radius.
BEVEL = 0.1
_ROOMY = 1.05


class Solids(NamedTuple):
    """One number of each kind for every object; `x, y, z` is its centre."""

    x: Float[Array, "*n"]
    y: Float[Array, "*n"]
    z: Float[Array, "*n"]
    cosine: Float[Array, "*n"]
    sine: Float[Array, "*n"]
    side: Float[Array, "*n"]  # half width of the box
    height: Float[Array, "*n"]  # half height of the box
    radius: Float[Array, "*n"]  # of the quadric
    upright: Float[Array, "*n"]  # weight of z in the quadric: 0 is a cylinder
    core: Float[Array, "*n"]  # half width inside which normals stay on their axis
    core_height: Float[Array, "*n"]
    boxy: Bool[Array, "*n"]
    present: Bool[Array, "*n"]

    def centre(self) -> Vector:
        return Vector(self.x, self.y, self.z)

    def local(self, point: Vector) -> Vector:
        """Turns an offset or a direction into the frame of the object."""
        return point.turned(self.cosine, -self.sine)


def make_solids(objects: Objects) -> Solids:
    cube, sphere = objects.kind == CUBE, objects.kind == SPHERE
    cylinder = objects.kind == CYLINDER
    radius = objects.radius
    edge = radius * 0.5**0.5  # a cube's half edge
    half_height = jnp.where(cube, edge, radius)
    bevel = BEVEL * radius
    return Solids(
        x=objects.position[:, 0],
        y=objects.position[:, 1],
        z=half_height,
        cosine=jnp.where(cube, jnp.cos(objects.yaw), 1.0),
        sine=jnp.where(cube, jnp.sin(objects.yaw), 0.0),
        side=jnp.where(cube, edge, _ROOMY * radius),
        height=jnp.where(sphere, _ROOMY * radius, half_height),
        radius=jnp.where(cube, _ROOMY * 3**0.5 * edge, radius),
        upright=jnp.where(cylinder, 0.0, 1.0),
        core=jnp.where(sphere, 0.0, jnp.where(cube, edge, radius) - bevel),
        core_height=jnp.where(sphere, 0.0, half_height - bevel),
        boxy=cube,
        present=objects.present,
    )


def intersect(origin: Vector, direction: Vector, solid: Solids) -> Scalars:
    """Returns the distance at which rays enter a solid, FAR where they miss it.

    Rays start outside the solid and `direction` is of unit length.
    """
    start = solid.local(origin.plus(solid.centre(), -1.0))
    along = solid.local(direction)
    near, far = _quadric(start, along, solid)
    for offset, slope, half in zip(
        start, along, (solid.side, solid.side, solid.height), strict=True
    ):
        inverse = 1.0 / jnp.where(jnp.abs(slope) < 1e-7, 1e-7, slope)
        middle, reach = -offset * inverse, half * jnp.abs(inverse)
        near = jnp.maximum(near, middle - reach)
        far = jnp.minimum(far, middle + reach)
    hit = (near < far) & (near > 0) & solid.present
    return jnp.where(hit, near, FAR)


def _quadric(start: Vector, along: Vector, solid: Solids) -> tuple[Scalars, Scalars]:
    """Returns entry and exit of rays; an empty interval where they miss."""
    weight = solid.upright
    a = along.x * along.x + along.y * along.y + weight * along.z * along.z
    a = jnp.maximum(a, 1e-7)  # a ray along the axis of a cylinder
    b = start.x * along.x + start.y * along.y + weight * start.z * along.z
    c = start.x * start.x + start.y * start.y + weight * start.z * start.z
    discriminant = b * b - a * (c - solid.radius * solid.radius)
    inverse = 1.0 / a
    root = jnp.sqrt(jnp.maximum(discriminant, 0.0)) * inverse
    middle = -b * inverse
    near = jnp.where(discriminant > 0, middle - root, FAR)
    return near, middle + root


def nearest(
    origin: Vector,
    direction: Vector,
    solids: Solids,
    skip: Int[Array, "s r"] | None = None,
) -> tuple[Float[Array, "s r"], Int[Array, "s r"], Float[Array, "n r"]]:
    """Returns distance and index of the first solid, and how much each one covers.

    Args:
      origin: Where rays start.
      direction: Their unit directions, s of them for each of r pixels.
      solids: The n solids of a scene; index n means that none is hit.
      skip: The solid that each ray leaves, which being convex it cannot hit again.

    Returns:
      Distances, indices, and the share of a pixel's rays that hit each solid, be it
      hidden by others or not.
    """
    # One object at a time: XLA would otherwise repeat the work for each result.
    distances = jax.lax.map(
        lambda solid: intersect(origin, direction, solid), solids
    )  # [n, s, r]
    if skip is not None:
        number = jnp.arange(solids.x.shape[0])[:, None, None]
        distances = jnp.where(skip[None] == number, FAR, distances)
    best = distances.min(axis=0)
    index = jnp.where(best < FAR, distances.argmin(axis=0), solids.x.shape[0])
    coverage = (distances < FAR).astype(jnp.float32).mean(axis=1)
    return best, index, coverage


def surface_normal(point: Vector, solid: Solids) -> Vector:
    """Returns unit normals at points of a solid, with edges rounded off."""
    offset = solid.local(point.plus(solid.centre(), -1.0))
    x, y = _outside(offset.x, solid.core), _outside(offset.y, solid.core)
    z = _outside(offset.z, solid.core_height)
    flat = jnp.sqrt(offset.x * offset.x + offset.y * offset.y)
    share = jnp.maximum(flat - solid.core, 0.0) / jnp.maximum(flat, 1e-6)
    normal = Vector(
        jnp.where(solid.boxy, x, offset.x * share),
        jnp.where(solid.boxy, y, offset.y * share),
        z,
    )
    return normal.unit().turned(solid.cosine, solid.sine)


def _outside(offset: Scalars, core: Scalars) -> Scalars:
    return jnp.sign(offset) * jnp.maximum(jnp.abs(offset) - core, 0.0)
