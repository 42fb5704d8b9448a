"""Straight-through ordering: exact forward, soft backward, finite everywhere."""

import itertools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ocloc_jax.models import ordering

ONE, ZERO = jnp.float32(1), jnp.float32(0)


def random_case(seed: int, k: int = 5, batch: tuple[int, ...] = (2, 3)):
    rng = np.random.default_rng(seed)
    shape = rng.uniform(size=(*batch, k, 4, 3)).astype(np.float32)
    shape[rng.uniform(size=shape.shape) < 0.15] = 0
    shape[rng.uniform(size=shape.shape) < 0.15] = 1
    log_presence = np.log(rng.uniform(0.2, 1, size=(*batch, k))).astype(np.float32)
    order = rng.integers(-2, 3, size=(*batch, k)).astype(np.float32)  # with ties
    return shape, log_presence, order


def masks_by_pixel(shape, log_presence, order):
    """The formula of Section III.A, one pixel and one object at a time."""
    present = shape.astype(np.float64) * np.exp(log_presence)[..., None, None]
    objects = np.zeros_like(present)
    k = shape.shape[-3]
    for index in np.ndindex(*present.shape[:-3], *present.shape[-2:]):
        lead, (row, column) = index[:-2], index[-2:]
        for i in range(k):
            value = present[(*lead, i, row, column)]
            for j in range(k):
                if order[(*lead, j)] > order[(*lead, i)]:
                    value *= 1 - present[(*lead, j, row, column)]
            objects[(*lead, i, row, column)] = value
    return np.prod(1 - present, axis=-3), objects


@pytest.mark.parametrize("seed", range(3))
def test_forward_is_the_ordered_product(seed: int):
    case = random_case(seed)
    background, objects = ordering.layer_masks(*map(jnp.asarray, case), ONE)
    expected_background, expected = masks_by_pixel(*case)
    np.testing.assert_allclose(background, expected_background, atol=1e-6)
    np.testing.assert_allclose(objects, expected, atol=1e-6)


def test_masks_sum_to_one_for_every_order_of_the_objects():
    shape, log_presence, _ = random_case(0, k=4, batch=())
    for permutation in itertools.permutations(range(4)):
        order = jnp.array(permutation, jnp.float32)
        background, objects = ordering.layer_masks(
            jnp.asarray(shape), jnp.asarray(log_presence), order, ONE
        )
        np.testing.assert_allclose(background + objects.sum(axis=0), 1, atol=1e-6)


def test_nearest_opaque_object_hides_all_others():
    shape = jnp.ones((3, 2, 2))
    order = jnp.array([0.0, 2.0, 1.0])
    background, objects = ordering.layer_masks(shape, jnp.zeros(3), order, ONE)
    np.testing.assert_array_equal(background, 0)
    np.testing.assert_array_equal(
        objects, np.array([0, 1, 0])[:, None, None] + 0 * objects
    )


def plain_soft_masks(shape, log_presence, order):
    """Section III.C as it is printed, for shapes strictly between 0 and 1."""
    present = shape * jnp.exp(log_presence)[..., None, None]
    background = jnp.prod(1 - present, axis=-3)
    weights = present * jnp.exp(order)[..., None, None]
    share = weights / weights.sum(axis=-3, keepdims=True)
    return background, (1 - background)[..., None, :, :] * share


def weighted_sum(function, weights, *args):
    background, objects = function(*args)
    return (weights[0] * background).sum() + (weights[1] * objects).sum()


@pytest.mark.parametrize("hardness", [0.0, 0.4, 1.0])
def test_backward_is_that_of_the_soft_weights(hardness: float):
    keys = jax.random.split(jax.random.key(1), 5)
    shape = jax.random.uniform(keys[0], (2, 5, 4, 3), minval=0.01, maxval=0.99)
    log_presence = jnp.log(jax.random.uniform(keys[1], (2, 5), minval=0.1))
    order = jax.random.normal(keys[2], (2, 5))
    weights = (
        jax.random.normal(keys[3], (2, 4, 3)),
        jax.random.normal(keys[4], shape.shape),
    )

    def ours(*args):
        return ordering.layer_masks(*args, jnp.float32(hardness))

    inputs = (shape, log_presence, order)
    found = jax.grad(weighted_sum, (2, 3, 4))(ours, weights, *inputs)
    expected = jax.grad(weighted_sum, (2, 3, 4))(plain_soft_masks, weights, *inputs)
    for name, a, b in zip(("shape", "presence", "order"), found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=name)


def test_soft_part_is_the_printed_formula():
    shape, log_presence, order = map(jnp.asarray, random_case(3))
    shape = jnp.clip(shape, 0.01, 0.99)
    found = ordering.layer_masks(shape, log_presence, order, ZERO)
    expected = plain_soft_masks(shape, log_presence, order)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_gradient_keeps_its_precision_for_faint_shapes():
    shape = jnp.full((2, 1, 1), 1e-9)
    order = jnp.zeros(2)
    gradient = jax.grad(
        lambda s: ordering.layer_masks(s, jnp.zeros(2), order, ONE)[1][0].sum()
    )(shape)
    # Two equal faint shapes: mask 0 is close to shape 0 whatever shape 1 is.
    np.testing.assert_allclose(gradient.reshape(-1), [1, 0], atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["f32", "bf16"])
@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    shape=hnp.arrays(
        np.float32, (3, 1, 2), elements=st.sampled_from([0, 1e-30, 1e-9, 0.5, 1])
    ),
    presence=hnp.arrays(np.float32, 3, elements=st.floats(-1000, 0, width=32)),
    order=hnp.arrays(
        np.float32, 3, elements=st.floats(-(2.0**127), 2.0**127, width=32)
    ),
    hardness=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_always_finite(dtype, shape, presence, order, hardness):
    inputs = [jnp.asarray(x, dtype) for x in (shape, presence, order)]

    def total(*args):
        background, objects = ordering.layer_masks(*args, jnp.float32(hardness))
        weights = jnp.arange(1.0, 4.0, dtype=dtype)[:, None, None]
        return (background.sum() + (weights * objects).sum()).astype(jnp.float32)

    value, gradients = jax.value_and_grad(total, (0, 1, 2))(*inputs)
    assert value.dtype == jnp.float32 and all(g.dtype == dtype for g in gradients)
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.isfinite(np.asarray(gradient, np.float32)).all()


def test_follows_the_order_of_slots():
    shape, log_presence, order = map(jnp.asarray, random_case(5))
    flipped = ordering.layer_masks(
        shape[..., ::-1, :, :], log_presence[..., ::-1], order[..., ::-1], ONE
    )
    background, objects = ordering.layer_masks(shape, log_presence, order, ONE)
    np.testing.assert_allclose(flipped[0], background, atol=1e-6)
    np.testing.assert_allclose(flipped[1], objects[..., ::-1, :, :], atol=1e-6)
