"""Three-vectors as three separate arrays, so that XLA fuses ray maths into loops.

An axis of length three would become temporaries of three times the rays.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Numbers of one ray, object or scene each: functions here broadcast them.
Scalars = Float[Array, "..."] | float


class Vector(NamedTuple):
    """Components of any shapes that broadcast against each other."""

    x: Scalars
    y: Scalars
    z: Scalars

    def plus(self, other: "Vector", scale: Scalars = 1.0) -> "Vector":
        """Returns `self + scale * other`."""
        return Vector(
            self.x + scale * other.x, self.y + scale * other.y, self.z + scale * other.z
        )

    def times(self, scale: Scalars) -> "Vector":
        return Vector(self.x * scale, self.y * scale, self.z * scale)

    def dot(self, other: "Vector") -> Scalars:
        return self.x * other.x + self.y * other.y + self.z * other.z

    def tinted(self, tint: "Vector") -> "Vector":
        return Vector(self.x * tint.x, self.y * tint.y, self.z * tint.z)

    def unit(self) -> "Vector":
        return self.times(jax.lax.rsqrt(jnp.maximum(self.dot(self), 1e-12)))

    def turned(self, cosine: Scalars, sine: Scalars) -> "Vector":
        """Turns about the vertical axis by the angle with this cosine and sine."""
        return Vector(
            cosine * self.x - sine * self.y, sine * self.x + cosine * self.y, self.z
        )

    def reflected(self, normal: "Vector") -> "Vector":
        return self.plus(normal, -2 * self.dot(normal))


def choose(condition: Bool[Array, "*r"], first: Vector, second: Vector) -> Vector:
    pairs = zip(first, second, strict=True)
    return Vector(*(jnp.where(condition, a, b) for a, b in pairs))


def blend(first: Vector, second: Vector, share: Scalars) -> Vector:
    return Vector(*(mix(a, b, share) for a, b in zip(first, second, strict=True)))


def smoothstep(low: Scalars, high: Scalars, value: Scalars) -> Scalars:
    """Cubic ramp from 0 at `low` to 1 at `high`."""
    t = jnp.clip((value - low) / (high - low), 0.0, 1.0)
    return t * t * (3 - 2 * t)


def mix(first: Scalars, second: Scalars, share: Scalars) -> Scalars:
    return first + (second - first) * share
