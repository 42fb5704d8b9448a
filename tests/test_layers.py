"""Layers against independent forms of the same function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ocloc_jax.models import layers


def test_silu_and_its_gradient():
    x = jnp.linspace(-9, 9, 101)
    np.testing.assert_allclose(layers.silu(x), jax.nn.silu(x), atol=1e-6)
    found = jax.vmap(jax.grad(layers.silu))(x)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(jax.nn.silu))(x), atol=1e-6)


def test_layer_norm_and_its_gradient_are_those_of_flax():
    rng = np.random.default_rng(0)
    x, weights = (jnp.asarray(rng.normal(3, 2, (2, 3, 5, 6))) for _ in range(2))
    params = {k: jnp.asarray(rng.normal(size=6)) for k in ("scale", "bias")}
    reference = nn.LayerNorm(epsilon=layers.EPSILON, use_fast_variance=False)

    def total(module, params, x):
        return (weights * module.apply({"params": params}, x)).sum()

    found = jax.value_and_grad(total, (1, 2))(layers.layer_norm(), params, x)
    expected = jax.value_and_grad(total, (1, 2))(reference, params, x)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


def test_layer_norm_in_bfloat16_has_statistics_in_float32():
    x = jnp.asarray([[256.0, 257.0, 258.0, 259.0]])  # not all of them bfloat16 numbers
    module = layers.layer_norm(dtype=jnp.bfloat16)
    found = module.apply(module.init(jax.random.key(0), x), x)
    assert found.dtype == jnp.bfloat16
    expected = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25)
    np.testing.assert_allclose(found[0].astype(jnp.float32), expected, rtol=1e-2)


def test_attention_is_that_of_jax_also_for_large_logits():
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(2, 7, 3, 4)), jnp.float32) for _ in range(4)]
    *inputs, weights = arrays
    inputs[0] = 60 * inputs[0]  # exponents that would overflow without their maximum

    def total(function, *inputs):
        return (weights * function(*inputs)).sum()

    gradient = jax.value_and_grad(total, (1, 2, 3))
    found = gradient(layers.attention, *inputs)
    expected = gradient(jax.nn.dot_product_attention, *inputs)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_attention_keeps_no_weights_for_its_gradient():
    inputs = 3 * [jnp.ones((2, 7, 3, 4))]
    _, backward = jax.vjp(layers.attention, *inputs)
    kept = {leaf.size for leaf in jax.tree.leaves(backward)}
    assert kept and max(kept) == inputs[0].size


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


@pytest.mark.parametrize(
    ("num_parts", "sizes"), [(1, []), (2, [3, 3]), (4, [2, 2, 1, 1]), (9, 6 * [1])]
)
def test_parts_of_a_batch_come_together_in_order(num_parts: int, sizes: list[int]):
    seen = []

    def net(x):
        seen.append(x.shape)
        return x.sum(axis=-1, keepdims=True)

    x = jnp.arange(24.0).reshape(2, 3, 4)
    found = layers.in_parts(net, x, num_parts, axes=1)
    np.testing.assert_array_equal(found, x.sum(axis=-1, keepdims=True))
    assert seen == ([(n, 4) for n in sizes] or [x.shape])
