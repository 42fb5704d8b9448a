"""Convolutions whose gradients are also fast on a CPU.

XLA's CPU back end runs a convolution nearly as fast as matrix products where it has
the usual form: large images, a small kernel. The gradient for a kernel has not: there
the "kernel" is as large as an image. `correlate` brings it to the form that was
measured to be the fastest (`docs/performance.md`); other platforms keep XLA's own.

Most convolutions of the networks follow a SiLU. Taken together with it (`activate`),
only what goes into the SiLU is kept for the gradient, not what comes out as well.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ocloc_jax.models import winograd
from ocloc_jax.models.activation import after, silu, silu_gradient

Padding = Sequence[tuple[int, int]]

_CACHE = 2**18  # numbers that a core keeps at hand while it sums over positions

# Groups of images that are summed over independently, on the threads of a CPU; more
# take turns in a loop, or the program would become too long to compile.
_SIDE_BY_SIDE = 32

_NARROW = 16  # channels of input and output that are too few for the fast code


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def conv(
    x: Float[Array, "b h w i"],
    kernel: Float[Array, "s s i o"],
    stride: int,
    pad: int,
    activate: bool = False,
) -> Float[Array, "b h2 w2 o"]:
    """A convolution padded alike on all sides, of x or of its SiLU."""
    return jax.lax.platform_dependent(
        silu(x) if activate else x,
        kernel,
        cpu=functools.partial(_cpu_conv, stride=stride, pad=pad),
        default=functools.partial(convolve, stride=stride, padding=[(pad, pad)] * 2),
    )


def _cpu_conv(
    x: Float[Array, "b h w i"], kernel: Float[Array, "s s i o"], stride: int, pad: int
) -> Float[Array, "b h2 w2 o"]:
    """With fewer products where channels are many, and more of them where they are few.

    Pairs of columns are then taken as one of twice the channels: half of the products
    are with zeros, but there is fast code for this shape.
    """
    if stride == 1 and winograd.suits(x, kernel.shape):
        return winograd.conv(x, kernel, _conv_rows)
    *_, width, channels = x.shape
    narrow = max(kernel.shape[2:]) <= _NARROW
    if kernel.shape[0] != 3 or stride != 1 or width % 2 or not narrow:
        return convolve(x, kernel, stride, [(pad, pad)] * 2)
    paired = [
        jnp.pad(kernel, ((0, 0), (1 + c, 2 - c), (0, 0), (0, 0))) for c in (0, 1)
    ]  # taps over six columns, that is three pairs
    paired = jnp.stack(paired, axis=3).reshape(3, 3, 2 * channels, -1)
    y = convolve(x.reshape(*x.shape[:2], width // 2, -1), paired, 1, [(1, 1)] * 2)
    return y.reshape(*x.shape[:3], -1)


def convolve(
    x: Float[Array, "b h w i"],
    kernel: Float[Array, "s t i o"],
    stride: int,
    padding: Padding,
    dilation: int = 1,
) -> Float[Array, "b h2 w2 o"]:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _conv_rows(
    x: Float[Array, "b h w i"], kernel: Float[Array, "1 s i o"], pad: int
) -> Float[Array, "b h w o"]:
    return convolve(x, kernel, 1, [(0, 0), (pad, pad)])


def _conv_forward(
    x: Array, kernel: Array, stride: int, pad: int, activate: bool
) -> tuple[Array, tuple[Array, Array]]:
    return conv(x, kernel, stride, pad, activate), (x, kernel)


def _conv_backward(
    stride: int, pad: int, activate: bool, inputs: tuple[Array, Array], dy: Array
) -> tuple[Array, Array]:
    x, kernel = inputs
    active = silu(after(x, dy)) if activate else x
    function = functools.partial(convolve, stride=stride, padding=[(pad, pad)] * 2)
    if stride == 1:
        if kernel.size > dy[0].size:  # worth not being turned and transformed too early
            kernel = after(kernel, dy)
        turned = kernel[::-1, ::-1].swapaxes(2, 3)
        dx = conv(dy, turned, 1, len(kernel) - 1 - pad)
    else:
        (dx,) = jax.linear_transpose(lambda x: function(x, kernel), active)(dy)
    d_kernel = jax.lax.platform_dependent(
        active,
        dy,
        cpu=lambda x, dy: _kernel_gradient(x, dy, stride, pad),
        default=lambda x, dy: jax.linear_transpose(
            lambda kernel: function(x, kernel), kernel
        )(dy)[0],
    )
    return silu_gradient(x, dx) if activate else dx, d_kernel


conv.defvjp(_conv_forward, _conv_backward)


def _kernel_gradient(
    x: Float[Array, "b h w i"], dy: Float[Array, "b h2 w2 o"], stride: int, pad: int
) -> Float[Array, "s s i o"]:
    size = stride + 2 * pad
    if stride == 1 and winograd.suits(x, (size, size, x.shape[-1], dy.shape[-1])):
        return winograd.kernel_gradient(x, dy, size, _correlate_rows)
    return _correlate_smaller(x, dy, stride, [(pad, pad)] * 2)


def _correlate_rows(
    x: Float[Array, "b h w i"], dy: Float[Array, "b h w o"], pad: int
) -> Float[Array, "1 s i o"]:
    return _correlate_smaller(x, dy, 1, [(0, 0), (pad, pad)])


def _correlate_smaller(
    x: Array, dy: Array, stride: int, padding: Padding
) -> Float[Array, "s t i o"]:
    if stride == 1 and dy.shape[-1] < x.shape[-1]:
        # The same sum seen from the output; its taps come in the opposite order.
        return correlate(dy, x, 1, padding)[::-1, ::-1].transpose(0, 1, 3, 2)
    return correlate(x, dy, stride, padding)


def correlate(
    image: Float[Array, "b h w i"],
    other: Float[Array, "b h2 w2 o"],
    step: int,
    padding: Padding,
) -> Float[Array, "s t i o"]:
    """Correlates the channels of two stacks of images, the first moved over the second.

    Faster if the first has fewer channels, and if so few images are summed over at a
    time that both stay in the cache.
    """
    at_once = _CACHE // max(image[0].size, other[0].size)
    num_groups = _smallest_divisor(len(other), at_least=len(other) / max(1, at_once))

    def correlate_group(image: Array, other: Array) -> Float[Array, "i s t o"]:
        # Written out: in a loop XLA does not find fast code for unusual dimensions.
        image, other = image.transpose(3, 1, 2, 0), other.transpose(1, 2, 0, 3)
        return convolve(image, other, 1, padding, step)

    if num_groups == 1:
        return correlate_group(image, other).transpose(1, 2, 0, 3)
    groups = [x.reshape(num_groups, -1, *x.shape[1:]) for x in (image, other)]
    if num_groups <= _SIDE_BY_SIDE:
        parts = [correlate_group(*(x[i] for x in groups)) for i in range(num_groups)]
        return functools.reduce(jnp.add, parts).transpose(1, 2, 0, 3)
    nothing = jax.eval_shape(correlate_group, groups[0][0], groups[1][0])
    total, _ = jax.lax.scan(
        lambda total, pair: (total + correlate_group(*pair), None),
        jnp.zeros(nothing.shape, nothing.dtype),
        groups,
    )
    return total.transpose(1, 2, 0, 3)


def _smallest_divisor(number: int, at_least: float) -> int:
    return next(n for n in range(1, number + 1) if number % n == 0 and n >= at_least)
