"""Colours of ground, sky, rubber and metal, in linear light."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ocloc_jax.scenes import lights as lighting
from ocloc_jax.scenes.lights import Light
from ocloc_jax.scenes.sample import Ground
from ocloc_jax.scenes.shapes import Solids
from ocloc_jax.scenes.vector import Scalars, Vector, blend, choose, mix, smoothstep

_GREY = 0.42
_AMBIENT = 0.42
# Shares of diffuse light and of what a mirror shows in the colour of metal.
_METAL = (0.3, 0.85)


class World(NamedTuple):
    """What a ray can meet, and the light that falls on it."""

    solids: Solids
    colour: Float[Array, "n 3"]
    metal: Bool[Array, "n"]
    lights: list[Light]
    ground: Ground
    background: str
    shadows: bool


class Surface(NamedTuple):
    """Where rays end; `owner` is an object's index, or the number of objects."""

    point: Vector
    normal: Vector
    albedo: Vector
    owner: Int[Array, "*r"]
    metal: Bool[Array, "*r"]
    on_object: Bool[Array, "*r"]


class Glow(NamedTuple):
    """Light that leaves a surface: diffuse, and broad and sharp highlights."""

    diffuse: Float[Array, "*r"]
    broad: Float[Array, "*r"]
    sharp: Float[Array, "*r"]


def illuminate(world: World, surface: Surface, incoming: Vector) -> Glow:
    point, normal = surface.point, surface.normal
    lit, open_ = lighting.shade(
        world.lights, point, normal, surface.owner, world.solids, world.shadows
    )
    # Less light comes from the ground than from the sky.
    diffuse = _AMBIENT * open_ * mix(0.35, 1.0, 0.5 + 0.5 * normal.z)
    broad = sharp = jnp.zeros_like(diffuse)
    for light, share in zip(world.lights, lit, strict=True):
        toward = light.position.plus(point, -1.0)
        falloff = 1.0 / toward.dot(toward)
        toward = toward.times(jnp.sqrt(falloff))
        power = share * light.strength * falloff * light.position.dot(light.position)
        diffuse += power * jnp.maximum(normal.dot(toward), 0.0)
        shine = normal.dot(toward.plus(incoming, -1.0).unit())
        shine = _square(jnp.maximum(shine, 0.0), times=4)
        broad += power * shine
        sharp += power * _square(shine, times=3)
    return Glow(diffuse, broad, sharp)


def _square(value: Scalars, times: int) -> Scalars:
    for _ in range(times):
        value = value * value
    return value


def colour_surface(
    world: World, surface: Surface, glow: Glow, mirrored: Vector
) -> Vector:
    """Returns the colour of surfaces in which metal shows `mirrored`."""
    matt = surface.albedo.times(glow.diffuse)
    # White light on coloured rubber; the ground has no highlight.
    gloss = jnp.where(surface.on_object, 0.15 * glow.broad, 0.0)
    matt = matt.plus(Vector(1.0, 1.0, 1.0), gloss)
    diffuse, mirror = _METAL
    metal = mirrored.times(mirror).plus(Vector(1.0, 1.0, 1.0), diffuse * glow.diffuse)
    metal = surface.albedo.tinted(metal)
    metal = metal.plus(Vector(1.0, 1.0, 1.0), 1.2 * glow.sharp)
    return choose(surface.metal, metal, matt)


def fade_out(world: World, surface: Surface, rays: Vector, colour: Vector) -> Vector:
    """Puts the sky where rays meet neither object nor ground."""
    share = (rays.z > -1e-3).astype(jnp.float32)
    if world.background == "sky":
        flat = jnp.sqrt(surface.point.x**2 + surface.point.y**2)
        share = jnp.maximum(share, smoothstep(4.0, 9.0, flat))
    share = jnp.where(surface.on_object, 0.0, share)
    return blend(colour, sky_colour(world, rays), share)


def ground_colour(world: World, point: Vector) -> Vector:
    if world.background != "textured":
        grey = jnp.full_like(point.x, _GREY)
        return Vector(grey, grey, grey)
    first, second = world.ground.colours
    return blend(Vector(*first), Vector(*second), _pattern(world.ground, point))


def _pattern(ground: Ground, point: Vector) -> Scalars:
    """A soft checkerboard, or waves in random directions that look like marble."""
    turned = point.turned(jnp.cos(ground.turn), jnp.sin(ground.turn))
    x, y = (jnp.sin(axis * (jnp.pi / ground.pitch)) for axis in turned[:2])
    checker = smoothstep(-0.08, 0.08, x * y)
    total = jnp.zeros_like(point.x)
    for i in range(ground.waves.shape[0]):
        angle, phase, scale = ground.waves[i]
        angle, rate = 2 * jnp.pi * angle, (0.8 + 1.2 * scale) * 1.35**i
        wave = point.x * jnp.cos(angle) + point.y * jnp.sin(angle)
        # Each wave bends the next, otherwise the sum looks like a grid.
        total += jnp.sin(rate * wave + 2 * jnp.pi * phase + total) * 0.8**i
    return mix(smoothstep(-1.2, 1.2, total), checker, ground.checker)


def sky_colour(world: World, direction: Vector) -> Vector:
    """A gradient from the horizon upwards in which metal also sees the lamps."""
    if world.background == "sky":
        low, high = (Vector(*colour) for colour in world.ground.sky)
        # Two bright and two dark sides tell views apart.
        side = direction.turned(jnp.cos(world.ground.turn), jnp.sin(world.ground.turn))
        sky = blend(low, high, smoothstep(-0.55, 0.3, direction.z))
        sky = sky.times(1 + 0.4 * side.x * side.y)
    else:
        grey = mix(0.8, 0.3, smoothstep(0.0, 0.9, direction.z))
        sky = Vector(grey, grey, grey)
    for light in world.lights:
        lamp = smoothstep(0.93, 0.985, direction.dot(light.toward))
        sky = sky.plus(Vector(1.0, 1.0, 1.0), 2.5 * light.strength * lamp)
    return sky
