"""Convolutions with fewer products against the plain ones, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax.models import convolutions, winograd

WIDE = winograd.WIDE


@pytest.mark.parametrize("taps", [3, 5])
def test_transforms_turn_a_filter_into_products(taps):
    rng = np.random.default_rng(0)
    use = winograd.transforms(taps)
    signal, kernel = rng.normal(size=winograd.TILE + taps - 1), rng.normal(size=taps)
    found = use.products @ ((use.rows @ signal) * (use.kernel @ kernel))
    np.testing.assert_allclose(
        found, np.correlate(signal, kernel, "valid"), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("taps", [3, 5])
def test_filters_are_as_exact_as_float32_allows(taps):
    x, kernel, weights = map(jnp.asarray, arrays(taps, outputs=WIDE + 16))
    assert winograd.suits(x, kernel.shape)

    def ours(x, kernel):
        return convolutions.conv(x, kernel, 1, taps // 2)

    y, backward = jax.vjp(ours, x, kernel)
    expected = by_taps(x, kernel, weights)
    for a, b in zip((y, *backward(weights)), expected, strict=True):
        error = np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)
        assert error < 4e-6  # seen: 1.7e-6


def by_taps(x, kernel, dy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Result and gradients of a convolution in float64, tap by tap."""
    x, kernel, dy = (np.asarray(a, np.float64) for a in (x, kernel, dy))
    pad, (height, width) = len(kernel) // 2, x.shape[1:3]
    margin = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    padded, y = np.pad(x, margin), np.zeros_like(dy)
    d_padded, d_kernel = np.zeros_like(padded), np.zeros_like(kernel)
    for i, j in np.ndindex(kernel.shape[:2]):
        seen = np.s_[:, i : i + height, j : j + width]
        y += padded[seen] @ kernel[i, j]
        d_padded[seen] += dy @ kernel[i, j].T
        d_kernel[i, j] = np.einsum("bhwi,bhwo->io", padded[seen], dy)
    return y, d_padded[:, pad:-pad, pad:-pad], d_kernel


def arrays(taps: int, outputs: int = WIDE, height: int = 8) -> list[np.ndarray]:
    rng = np.random.default_rng(taps)
    shapes = (
        (2, height, 6, WIDE),
        (taps, taps, WIDE, outputs),
        (2, height, 6, outputs),
    )
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def plain(x, kernel):
    pad = len(kernel) // 2
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def test_products_are_fewer():
    def flops(function, x, kernel):
        cost = jax.jit(function).lower(x, kernel).compile().cost_analysis()
        return cost["flops"]

    x, kernel, _ = arrays(taps=5, height=16)
    ours = flops(lambda x, k: convolutions.conv(x, k, 1, 2), x, kernel)
    assert ours < 0.7 * flops(plain, x, kernel)


@pytest.mark.parametrize(
    ("shape", "kernel", "dtype"),
    [
        ((2, 6, 8, WIDE), (5, 5, WIDE, WIDE), jnp.float32),
        ((2, 8, 8, WIDE), (4, 4, WIDE, WIDE), jnp.float32),
        ((2, 8, 8, WIDE), (5, 5, WIDE, WIDE // 2), jnp.float32),
        ((2, 8, 8, WIDE), (5, 5, WIDE, WIDE), jnp.bfloat16),
    ],
    ids=["rows left over", "no such taps", "few channels", "bfloat16"],
)
def test_other_filters_stay_as_they_are(shape, kernel, dtype):
    assert not winograd.suits(jnp.zeros(shape, dtype), kernel)
    x = np.random.default_rng(0).normal(size=shape)
    x, kernel = jnp.asarray(x, dtype), jnp.ones(kernel, dtype)
    if len(kernel) % 2:
        found = convolutions.conv(x, kernel, 1, len(kernel) // 2)
        assert found.shape == (*shape[:3], kernel.shape[-1])
