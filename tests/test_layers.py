"""Layers against independent forms of the same function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax.models import convolutions, layers


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8)], ids=str)
def test_upsample_conv_is_the_transposed_convolution(size: tuple[int, int]):
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (2, *size, 3))
    kernel = jax.random.normal(keys[1], (4, 4, 3, 5))
    expected = np.zeros((2, 2 * size[0] + 2, 2 * size[1] + 2, 5))
    for row, column, i, j in np.ndindex(*size, 4, 4):  # scatter, then crop the padding
        product = np.asarray(x)[:, row, column] @ np.asarray(kernel)[i, j]
        expected[:, 2 * row + i, 2 * column + j] += product
    found = convolutions.upsample_conv(x, kernel)
    np.testing.assert_allclose(found, expected[:, 1:-1, 1:-1], atol=1e-4)


def test_upsample_conv_has_the_gradient_of_the_transposed_convolution():
    keys = jax.random.split(jax.random.key(1), 3)
    x = jax.random.normal(keys[0], (2, 4, 6, 3))
    kernel = jax.random.normal(keys[1], (4, 4, 3, 5))
    weights = jax.random.normal(keys[2], (2, 8, 12, 5))

    def reference(x, kernel):
        return jax.lax.conv_transpose(x, kernel[::-1, ::-1], (2, 2), [(2, 2), (2, 2)])

    def total(function, x, kernel):
        return (weights * function(x, kernel)).sum()

    found = jax.grad(total, (1, 2))(convolutions.upsample_conv, x, kernel)
    expected = jax.grad(total, (1, 2))(reference, x, kernel)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_gru_is_the_textbook_formula():
    rng = np.random.default_rng(0)
    state, inputs = rng.normal(size=(4, 3)), rng.normal(size=(4, 5))
    module = layers.Gru()
    args = jnp.asarray(state, jnp.float32), jnp.asarray(inputs, jnp.float32)
    params = module.init(jax.random.key(0), *args)["params"]
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), params
    )
    found = module.apply({"params": params}, *args)

    def gate(name, x):
        kernel, bias = np.asarray(params[name]["kernel"]), params[name]["bias"]
        return np.split(x @ kernel + np.asarray(bias), 3, axis=-1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    (xr, xz, xn), (hr, hz, hn) = gate("input", inputs), gate("state", state)
    reset, update = sigmoid(xr + hr), sigmoid(xz + hz)
    expected = (1 - update) * np.tanh(xn + reset * hn) + update * state
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_position_grid_runs_from_corner_to_corner():
    grid = layers.position_grid(3, 5)
    np.testing.assert_array_equal(grid[0, 0], [-1, -1])
    np.testing.assert_array_equal(grid[0, -1], [1, -1])  # x first
    np.testing.assert_array_equal(grid[-1, 0], [-1, 1])
