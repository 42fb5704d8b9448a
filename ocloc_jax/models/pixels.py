"""Sums over slots and colours at every pixel, as plain additions.

Both axes are short and there are many pixels. XLA's CPU back end is slow at such
reductions, while additions fuse with the arithmetic around them.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def sum_slots(x: Float[Array, "*b k h w"]) -> Float[Array, "*b h w"]:
    """The sum over slots; its gradient is the usual one."""
    return functools.reduce(jnp.add, slots(x))


def _backward(shape: tuple[int, ...], dy: Array) -> tuple[Array]:
    return (jnp.broadcast_to(dy[..., None, :, :], shape),)


sum_slots.defvjp(lambda x: (sum_slots(x), x.shape), _backward)


def max_slots(x: Float[Array, "*b k h w"]) -> Float[Array, "*b h w"]:
    """The maximum over slots, to shift exponents by: it carries no gradient."""
    return jax.lax.stop_gradient(functools.reduce(jnp.maximum, slots(x)))


def slots(x: Float[Array, "*b k h w"]) -> list[Float[Array, "*b h w"]]:
    """The parts of each slot."""
    return [x[..., k, :, :] for k in range(x.shape[-3])]


def colours(x: Float[Array, "*s c"]) -> list[Float[Array, "*s"]]:
    """The parts of each channel, whose gradients are joined without additions."""
    parts = jax.lax.split(x, [1] * x.shape[-1], axis=x.ndim - 1)
    return [part[..., 0] for part in parts]


def sum_square(
    a: Float[Array, "*#s c"], b: Float[Array, "*#s c"]
) -> Float[Array, "..."]:
    """Squared differences, summed over colours."""
    parts = zip(colours(a), colours(b), strict=True)
    return functools.reduce(jnp.add, [jnp.square(x - y) for x, y in parts])
