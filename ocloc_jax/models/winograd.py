"""Convolutions with fewer products: Winograd's way along the rows of an image.

Four neighbouring rows of an image filtered with five taps are 20 products of rows with
kernel rows. Read as polynomials, rows and kernel can be evaluated at eight points,
multiplied there, and the result interpolated: 8 products, and additions. Rows are then
convolved with a single kernel row each, which XLA's library for CPUs does at full speed
(docs/performance.md). All is exact but for rounding, which is some 1e-6 of a result.
"""

import fractions
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

TILE = 4  # rows that are made together
WIDE = 64  # channels from which on it is worth the additions

# Small, and with their reciprocals: rounding errors grow with powers of the points.
_POINTS = {3: (0, 1, -1, 0.5, -2), 5: (0, 1, -1, 2, -2, 0.5, -0.5)}

# With kernels of a single row, padded to either side; `convolutions` has them.
Correlate = Callable[[Array, Array, int], Float[Array, "1 s i o"]]
Convolve = Callable[[Array, Array, int], Float[Array, "b t w o"]]


class Transforms(NamedTuple):
    """What rows, kernel rows and products are multiplied by; n = TILE + taps - 1."""

    rows: Float[np.ndarray, "n n"]
    kernel: Float[np.ndarray, "n taps"]
    products: Float[np.ndarray, "tile n"]


def suits(x: Float[Array, "b h w i"], shape: tuple[int, ...]) -> bool:
    """Whether a convolution of x with a kernel of this shape is made this way."""
    fits = shape[0] in _POINTS and x.shape[1] % TILE == 0
    return fits and min(shape[2:]) >= WIDE and x.dtype == jnp.float32


def conv(
    x: Float[Array, "b h w i"], kernel: Float[Array, "s s i o"], convolve: Convolve
) -> Float[Array, "b h w o"]:
    """A convolution of stride 1 that keeps the size of images."""
    use, pad = transforms(len(kernel)), len(kernel) // 2
    kernels = jnp.einsum("nr,rsio->nsio", use.kernel, kernel)
    products = [
        convolve(row, kernels[n][None], pad)
        for n, row in enumerate(_evaluated(x, use, pad))
    ]
    rows = [_combined(weights, products) for weights in use.products]
    batch, tiles, *_ = rows[0].shape
    joined = jnp.concatenate([y.reshape(batch, tiles, 1, -1) for y in rows], axis=2)
    return joined.reshape(*x.shape[:3], kernel.shape[-1])


def kernel_gradient(
    x: Float[Array, "b h w i"],
    dy: Float[Array, "b h w o"],
    size: int,
    correlate: Correlate,
) -> Float[Array, "s s i o"]:
    """The gradient of `conv` for its kernel."""
    use, pad = transforms(size), size // 2
    tiles = dy.reshape(len(dy), -1, TILE, *dy.shape[2:])
    rows = [tiles[:, :, i] for i in range(TILE)]
    gradients = [
        correlate(row, _combined(use.products[:, n], rows), pad)[0]
        for n, row in enumerate(_evaluated(x, use, pad))
    ]
    return jnp.einsum("nr,nsio->rsio", use.kernel, jnp.stack(gradients))


def _evaluated(
    x: Float[Array, "b h w i"], use: Transforms, pad: int
) -> list[Float[Array, "b t w i"]]:
    """Combinations of the rows that a tile of the output sees, at each point."""
    batch, height, *row = x.shape
    count, tiles = len(use.rows), height // TILE
    below = TILE * -(-count // TILE) - TILE - pad  # to whole tiles
    x = jnp.pad(x, ((0, 0), (pad, below), (0, 0), (0, 0)))
    x = x.reshape(batch, -1, TILE, *row)
    rows = [x[:, i // TILE :, i % TILE][:, :tiles] for i in range(count)]
    return [_combined(weights, rows) for weights in use.rows]


def _combined(weights: Float[np.ndarray, " n"], arrays: Sequence[Array]) -> Array:
    pairs = zip(weights.tolist(), arrays, strict=True)
    terms = [x if weight == 1 else weight * x for weight, x in pairs if weight]
    return functools.reduce(jnp.add, terms)


@functools.cache
def transforms(taps: int) -> Transforms:
    """The matrices of Toom and Cook, with infinity as the last point."""
    points = [fractions.Fraction(point) for point in _POINTS[taps]]
    others = [[q for q in points if q != p] for p in points]
    rows = [[*_from_roots(rest), 0] for rest in others] + [_from_roots(points)]
    kernel = [
        [p**r / math.prod(p - q for q in rest) for r in range(taps)]
        for p, rest in zip(points, others, strict=True)
    ]
    kernel.append([0] * (taps - 1) + [1])
    products = [
        [*(p**i for p in points), 1 if i == TILE - 1 else 0] for i in range(TILE)
    ]
    arrays = [np.array(matrix, np.float64) for matrix in (rows, kernel, products)]
    # Powers of two, exact, that give the rows of all points about the same size.
    scale = 2.0 ** np.round(np.log2(np.abs(arrays[0]).sum(axis=1, keepdims=True)))
    arrays[0], arrays[1] = arrays[0] / scale, arrays[1] * scale
    return Transforms(*(array.astype(np.float32) for array in arrays))


def _from_roots(roots: Sequence[fractions.Fraction]) -> list[fractions.Fraction]:
    """Coefficients of the product of (x - root), the constant one first."""
    coefficients = [fractions.Fraction(1)]
    for root in roots:
        shifted, scaled = [0, *coefficients], [*coefficients, 0]
        coefficients = [a - root * b for a, b in zip(shifted, scaled, strict=True)]
    return coefficients
