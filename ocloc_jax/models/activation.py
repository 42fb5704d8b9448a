"""SiLU, of which only the input is kept for the gradient."""

import jax
from jaxtyping import Array, Float


@jax.custom_vjp
def silu(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """SiLU that keeps only its input for the gradient, not its sigmoid as well."""
    return x * jax.nn.sigmoid(x)


def silu_gradient(x: Float[Array, "*s"], dy: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The gradient for x, for which the sigmoid is computed again."""
    x = after(x, dy)
    gate = jax.nn.sigmoid(x)
    return dy * gate * (1 + x * (1 - gate))


silu.defvjp(lambda x: (silu(x), x), lambda x, dy: (silu_gradient(x, dy),))


def after(x: Float[Array, "..."], other: Float[Array, "..."]) -> Float[Array, "..."]:
    """The same x, but not before `other` is there.

    What is made of it is then made anew; XLA would otherwise find it in the forward
    pass and keep it. On a CPU a barrier alone is no use: XLA drops it, and computes
    everything as early as it can.
    """
    x, other = jax.lax.optimization_barrier((x, other))
    return x + 0 * other[(0,) * other.ndim]
