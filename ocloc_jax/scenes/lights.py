"""The lights of a scene and the soft shadows that objects cast in them.

A light's rays are taken as parallel when shadows are cast. An object's shadow then has
a fixed outline in the plane across the light, and how far a point is inside or outside
of that outline decides how dark it is: a soft edge without further rays.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ocloc_jax.scenes.shapes import Solids
from ocloc_jax.scenes.vector import Scalars, Vector, smoothstep

# Azimuth, elevation (radians), distance and strength of the lights: key, fill.
_LIGHTS = ((-0.45, 0.85, 14.0, 1.05), (2.3, 0.75, 14.0, 0.35))
_JITTER = 0.15  # radians by which a scene's lights differ from these


class Light(NamedTuple):
    """A lamp at `position`, seen from the scene in direction `toward`."""

    position: Vector
    toward: Vector
    strength: float
    softness: float  # tangent of the lamp's angular radius

    def across(self) -> tuple[Vector, Vector]:
        """Returns a horizontal and a rising unit vector across the light."""
        flat = jnp.sqrt(self.toward.x**2 + self.toward.y**2)
        x, y, z = self.toward
        level = Vector(-y / flat, x / flat, jnp.zeros_like(z))
        return level, Vector(-z * x / flat, -z * y / flat, flat)


def make_lights(jitter: Float[Array, "2 2"]) -> list[Light]:
    lights = []
    for (azimuth, elevation, distance, strength), move in zip(
        _LIGHTS, jitter, strict=True
    ):
        a, e = azimuth + _JITTER * move[0], elevation + _JITTER * move[1]
        toward = Vector(jnp.cos(e) * jnp.cos(a), jnp.cos(e) * jnp.sin(a), jnp.sin(e))
        lights.append(Light(toward.times(distance), toward, strength, 0.16))
    return lights


class Outline(NamedTuple):
    """An object's outline across a light, around its centre there."""

    level: Scalars
    rising: Scalars
    depth: Scalars
    straight: Scalars  # half length of the straight part of a round outline
    stretch: Scalars  # its caps are ellipses: rising distances count this much
    radius: Scalars
    edges: tuple[tuple[Scalars, Scalars, Scalars], ...]  # normal and half width
    boxy: Bool[Array, ""]


def make_outline(light: Light, solid: Solids) -> Outline:
    level, rising = light.across()
    centre = solid.centre()
    sphere = solid.upright
    slant = light.toward.z
    return Outline(
        level=centre.dot(level),
        rising=centre.dot(rising),
        depth=centre.dot(light.toward),
        straight=jnp.where(sphere > 0, 0.0, solid.height * rising.z),
        stretch=jnp.where(sphere > 0, 1.0, 1.0 / slant),
        radius=solid.radius,
        edges=_hexagon(level, rising, solid),
        boxy=solid.boxy,
    )


def _hexagon(level: Vector, rising: Vector, solid: Solids):
    """Returns normal and half width of the three pairs of edges of a cube's shadow."""
    x_axis = Vector(solid.cosine, solid.sine, 0.0)
    y_axis = Vector(-solid.sine, solid.cosine, 0.0)
    axes = (x_axis, y_axis, Vector(0.0, 0.0, 1.0))
    halves = (solid.side, solid.side, solid.height)
    arms = [
        (half * axis.dot(level), half * axis.dot(rising))
        for axis, half in zip(axes, halves, strict=True)
    ]
    edges = []
    for u, v in arms:
        length = jnp.sqrt(u * u + v * v + 1e-12)
        normal = (-v / length, u / length)
        width = sum(jnp.abs(a * normal[0] + b * normal[1]) for a, b in arms)
        edges.append((*normal, width))
    return tuple(edges)


def outside(outline: Outline, level: Scalars, rising: Scalars) -> Scalars:
    """Returns how far points across the light are outside of an outline."""
    u, v = level - outline.level, rising - outline.rising
    beyond = jnp.maximum(jnp.abs(v) - outline.straight, 0.0) * outline.stretch
    round_ = jnp.sqrt(u * u + beyond * beyond) - outline.radius
    straight = [jnp.abs(u * a + v * b) - width for a, b, width in outline.edges]
    boxed = jnp.maximum(jnp.maximum(straight[0], straight[1]), straight[2])
    return jnp.where(outline.boxy, boxed, round_)


def shade(
    lights: list[Light],
    point: Vector,
    normal: Vector,
    owner: Int[Array, "*r"],
    solids: Solids,
    shadows: bool = True,
) -> tuple[list[Float[Array, "*r"]], Float[Array, "*r"]]:
    """Returns the shares of each light and of ambient light that reach points.

    Args:
      lights: Lights of the scene.
      point: Points on the surface of objects or on the ground.
      normal: Unit normals there.
      owner: The object that each point lies on, which as it is convex casts no shadow
        on those of its points that face the light.
      solids: All objects.
      shadows: Whether objects keep light from each other and from the ground.
    """
    every = (jnp.ones_like(point.x),) * (len(lights) + 1)
    if not shadows:
        return list(every[1:]), every[0]
    planes = [
        (point.dot(level), point.dot(rising), point.dot(light.toward))
        for light in lights
        for level, rising in [light.across()]
    ]

    def visit(carry, numbered):
        k, solid = numbered
        *lit, open_ = carry
        casts = (owner != k) & solid.present
        lit = [
            share * jnp.where(casts, 1 - _shadow(light, plane, solid), 1.0)
            for share, light, plane in zip(lit, lights, planes, strict=True)
        ]
        covered = _covered(point, normal, solid)
        return (*lit, open_ * jnp.where(casts, 1 - covered, 1.0)), None

    numbered = jnp.arange(solids.x.shape[0]), solids
    (*lit, open_), _ = jax.lax.scan(visit, every, numbered)
    return lit, open_


def _shadow(light: Light, plane: tuple[Scalars, ...], solid: Solids) -> Scalars:
    """Returns which share of a light an object keeps from points."""
    level, rising, depth = plane
    outline = make_outline(light, solid)
    ahead = outline.depth - depth
    # The penumbra widens with the distance to what casts the shadow.
    width = 0.02 + light.softness * jnp.maximum(ahead, 0.0)
    dark = smoothstep(width, -width, outside(outline, level, rising))
    return jnp.where(ahead > 0, dark, 0.0)


def _covered(point: Vector, normal: Vector, solid: Solids) -> Scalars:
    """Returns the share of the sky that a sphere of about the solid's size hides."""
    offset = solid.centre().plus(point, -1.0)
    near = 1.0 / (offset.dot(offset) + 1e-6)
    facing = jnp.maximum(offset.dot(normal), 0.0) * jnp.sqrt(near)
    return 0.75 * facing * jnp.minimum(solid.z * solid.z * near, 1.0)
