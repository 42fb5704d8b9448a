"""Colours of ground, sky, rubber and metal, in linear light."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ocloc_jax.scenes import lights as lighting
from ocloc_jax.scenes.lights import Light
from ocloc_jax.scenes.sample import Ground
from ocloc_jax.scenes.shapes import Solids
from ocloc_jax.scenes.vector import Scalars, Vector, mix, smoothstep

UP = Vector(0.0, 0.0, 1.0)
_GREY = 0.42
_AMBIENT = 0.42


class World(NamedTuple):
    """What a ray can meet, and the light that falls on it."""

    solids: Solids
    lights: list[Light]
    ground: Ground
    background: str
    shadows: bool


class Surface(NamedTuple):
    """Points that rays hit; `owner` is an object's index, or their number."""

    point: Vector
    normal: Vector
    albedo: Vector
    owner: Int[Array, "*r"]
    glossy: Bool[Array, "*r"]


def light_on(world: World, surface: Surface, incoming: Vector):
    """Returns diffuse light and the highlights of rubber and of metal."""
    lit, open_ = lighting.shade(
        world.lights, surface.point, surface.normal, surface.owner, world.solids
    )
    sky_share = 0.5 + 0.5 * surface.normal.z
    diffuse = _AMBIENT * open_ * mix(0.45, 1.0, sky_share)
    broad, sharp = 0.0, 0.0
    for light, share in zip(world.lights, lit):
        toward = light.position.plus(surface.point, -1.0)
        falloff = 1.0 / toward.dot(toward)
        toward = toward.times(jnp.sqrt(falloff))
        power = light.strength * falloff * light.position.dot(light.position)
        if world.shadows:
            power = power * share
        diffuse = diffuse + power * jnp.maximum(surface.normal.dot(toward), 0.0)
        half = toward.plus(incoming, -1.0).unit()
        shine = jnp.maximum(surface.normal.dot(half), 0.0)
        shine16 = _squared(shine, 4)
        broad = broad + power * shine16
        sharp = sharp + power * _squared(shine16, 4)
    return diffuse, broad, sharp


def _squared(value: Scalars, times: int) -> Scalars:
    for _ in range(times):
        value = value * value
    return value


def ground_colour(ground: Ground, background: str, point: Vector) -> Vector:
    grey = jnp.full_like(point.x, _GREY)
    if background != "textured":
        return Vector(grey, grey, grey)
    share = _pattern(ground, point)
    first, second = ground.colours
    return Vector(*(mix(a, b, share) for a, b in zip(first, second, strict=True)))


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
        total = total + jnp.sin(rate * wave + 2 * jnp.pi * phase + total) * 0.8**i
    return mix(smoothstep(-1.2, 1.2, total), checker, ground.checker)


def sky_colour(world: World, direction: Vector) -> Vector:
    """A gradient from the horizon upwards; random colours for the `sky` background."""
    height = jnp.clip(direction.z, 0.0, 1.0)
    if world.background != "sky":
        grey = mix(0.75, 0.3, smoothstep(0.0, 0.9, height))
        return Vector(grey, grey, grey)
    low, high = world.ground.sky
    swing = 1 + 0.25 * jnp.sin(
        2 * jnp.arctan2(direction.y, direction.x) + world.ground.turn
    )
    share = smoothstep(-0.35, 0.5, direction.z)
    return Vector(*(mix(a, b, share) * swing for a, b in zip(low, high, strict=True)))
