"""Convolutions and their gradients against independent forms of the same function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax.models import convolutions, upsampling


def normal(seed: int, *shapes: tuple[int, ...]) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


@pytest.fixture(params=[1, 32], ids=["in turns", "side by side"])
def in_groups(request, monkeypatch):
    """With a cache that holds no more than two small images."""
    monkeypatch.setattr(convolutions, "_SIDE_BY_SIDE", request.param)
    monkeypatch.setattr(convolutions, "_CACHE", 2 * 6 * 8 * 20)


@pytest.mark.parametrize(
    ("channels", "size", "stride"),
    [((3, 5), 4, 2), ((5, 3), 3, 1), ((20, 3), 3, 1), ((3, 20), 3, 1), ((4, 4), 5, 1)],
    ids=str,
)
@pytest.mark.parametrize("activate", [False, True])
def test_conv_and_gradients_are_those_of_jax(
    channels, size, stride, activate, in_groups
):
    pad, (inputs, outputs) = (size - stride) // 2, channels
    x, kernel, weights = normal(
        0,
        (6, 6, 8, inputs),
        (size, size, inputs, outputs),
        (6, 6 // stride, 8 // stride, outputs),
    )

    def reference(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        padding = [(pad, pad)] * 2
        x = jax.nn.silu(x) if activate else x
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), padding, dimension_numbers=numbers
        )

    def function(x, kernel):
        return convolutions.conv(x, kernel, stride, pad, activate)

    compare(function, reference, weights, x, kernel)


def compare(function, reference, weights, *inputs):
    def total(f, *inputs):
        return (weights * f(*inputs)).sum()

    np.testing.assert_allclose(function(*inputs), reference(*inputs), atol=1e-4)
    found = jax.grad(total, (1, 2))(function, *inputs)
    expected = jax.grad(total, (1, 2))(reference, *inputs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_conv_of_an_odd_width_is_not_paired():
    x, kernel = normal(1, (2, 4, 5, 3), (3, 3, 3, 2))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = sum(
        padded[:, i : i + 4, j : j + 5] @ np.asarray(kernel)[i, j]
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_allclose(convolutions.conv(x, kernel, 1, 1), expected, atol=1e-5)


def test_both_forms_of_upsampling_agree():
    x, kernel = normal(2, (2, 3, 5, 3), (4, 4, 3, 2))
    by_parity = upsampling._upsample_by_parity(x, kernel)
    dilated = upsampling._upsample_dilated(x, kernel)
    np.testing.assert_allclose(by_parity, dilated, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8)], ids=str)
def test_upsample_conv_is_the_transposed_convolution(size: tuple[int, int]):
    x, kernel = normal(0, (2, *size, 3), (4, 4, 3, 5))
    expected = np.zeros((2, 2 * size[0] + 2, 2 * size[1] + 2, 5))
    for row, column, i, j in np.ndindex(*size, 4, 4):  # scatter, then crop the padding
        product = np.asarray(x)[:, row, column] @ np.asarray(kernel)[i, j]
        expected[:, 2 * row + i, 2 * column + j] += product
    found = upsampling.upsample_conv(x, kernel)
    np.testing.assert_allclose(found, expected[:, 1:-1, 1:-1], atol=1e-4)


@pytest.mark.parametrize("activate", [False, True])
def test_upsample_conv_has_the_gradient_of_the_transposed_convolution(activate):
    x, kernel, weights = normal(3, (2, 4, 6, 3), (4, 4, 3, 5), (2, 8, 12, 5))

    def reference(x, kernel):
        x = jax.nn.silu(x) if activate else x
        return jax.lax.conv_transpose(x, kernel[::-1, ::-1], (2, 2), [(2, 2), (2, 2)])

    def function(x, kernel):
        return upsampling.upsample_conv(x, kernel, activate)

    compare(function, reference, weights, x, kernel)


def test_nothing_but_the_input_is_kept_of_an_activation():
    x, kernel = normal(4, (2, 6, 8, 3), (3, 3, 3, 3))
    _, backward = jax.vjp(lambda x, k: convolutions.conv(x, k, 1, 1, True), x, kernel)
    kept = sorted(leaf.size for leaf in jax.tree.leaves(backward))
    assert kept == [kernel.size, x.size]


def test_double_is_the_same_with_and_without_a_gradient():
    inputs = normal(5, (2, 4, 6, 3), (4, 4, 3, 5), (5,), (3, 3, 5, 2), (2,))

    def reference(x, up, up_bias, kernel, bias):
        y = jax.nn.silu(
            upsampling.upsample_conv(jax.nn.silu(x), up) + up_bias[None, None, None]
        )
        return convolutions.conv(y, kernel, 1, 1) + bias[None, None, None]

    without = upsampling.double(*inputs)
    found, backward = jax.vjp(upsampling.double, *inputs)
    expected, reference_backward = jax.vjp(reference, *inputs)
    np.testing.assert_allclose(without, expected, atol=1e-4)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    pairs = zip(backward(found), reference_backward(found), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-2)
