"""Sums over slots and colours against those of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax.models import pixels


def test_sum_over_slots_and_its_gradient():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(2, 5, 3, 4)), rng.normal(size=(2, 3, 4))
    x, weights = jnp.asarray(x, jnp.float32), jnp.asarray(weights, jnp.float32)
    np.testing.assert_allclose(pixels.sum_slots(x), x.sum(axis=1), atol=1e-5)
    found = jax.grad(lambda x: (weights * pixels.sum_slots(x)).sum())(x)
    np.testing.assert_array_equal(found, np.broadcast_to(weights[:, None], x.shape))


def test_maximum_over_slots_has_no_gradient():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(pixels.max_slots(x), x[1])
    assert not np.any(jax.grad(lambda x: pixels.max_slots(x).sum())(x))


def test_squared_differences_broadcast_and_sum_over_colours():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 1, 3))
    found = pixels.sum_square(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(found, ((a - b) ** 2).sum(axis=-1), rtol=1e-5)
