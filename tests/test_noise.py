"""Pixel noise: uniform, without visible dependence, the same on any devices."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from scipy import stats

from ocloc_jax.models import noise as noise_lib

SHAPE = (4, 1, 3, 32, 32)


@pytest.fixture(scope="module")
def draw():
    return jax.jit(lambda key: noise_lib.cheap_uniform(key, 3, SHAPE))


def test_numbers_are_uniform_inside_the_open_interval(draw):
    for array in map(np.asarray, draw(jax.random.key(0))):
        assert 0 < array.min() and array.max() < 1
        assert stats.kstest(array.ravel(), "uniform").pvalue > 1e-3
        assert len(np.unique(array)) > 0.99 * array.size


def test_neighbours_arrays_and_keys_are_uncorrelated(draw):
    arrays = [x for seed in (0, 1, 2**31) for x in draw(jax.random.key(seed))]
    arrays += [np.roll(arrays[0], 1, axis) for axis in range(-3, 0)]
    correlation = np.corrcoef(np.stack([np.ravel(x) for x in arrays]))
    largest = np.abs(correlation - np.eye(len(arrays))).max()
    assert largest < 5 / np.sqrt(np.prod(SHAPE))


def test_split_over_devices_the_numbers_are_the_same(draw):
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    function = jax.jit(
        lambda key: noise_lib.cheap_uniform(key, 3, SHAPE), out_shardings=split
    )
    text = function.lower(jax.random.key(0)).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text
    for a, b in zip(function(jax.random.key(0)), draw(jax.random.key(0)), strict=True):
        np.testing.assert_array_equal(a, b)
