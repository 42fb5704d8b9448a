"""Muon: what becomes orthogonal, how large updates are, and what is left to Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import demo
from ocloc_jax import optimizers
from ocloc_jax.models import initial
from ocloc_jax.models.ocloc import Ocloc

RATE = dict(base=1e-2, num_steps=10, decay=1.0, warmup_steps=0)


def first_update(kind: str, params: dict, seed: int = 0) -> tuple[dict, dict]:
    """Random gradients of a tree, and the first update made of them."""
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    grads = tree.unflatten([rng.normal(size=x.shape).astype("f4") for x in leaves])
    optimizer = optimizers.make(RATE, 1e9, kind)
    return grads, optimizer.update(grads, optimizer.init(params), params)[0]


@pytest.mark.parametrize(
    "shape, matrix",
    [((24, 40), (24, 40)), ((5, 5, 3, 16), (75, 16)), ((2, 16, 48), (2, 16, 48))],
)
def test_updates_of_matrices_are_orthogonal_and_as_large_as_those_of_adam(
    shape, matrix
):
    params = {"kernel": jnp.zeros(shape)}
    _, update = first_update("muon", params)
    singular = np.linalg.svd(np.reshape(update["kernel"], matrix), compute_uv=False)
    # Newton and Schulz in five steps bring all of them between 0.7 and 1.2.
    size = 1e-2 * 0.2 * np.sqrt(max(matrix[-2:]))
    assert singular.min() > 0.65 * size and singular.max() < 1.25 * size
    _, adam = first_update("adam", params)
    rms = np.sqrt(np.mean(np.square(update["kernel"])))
    assert 0.1 < rms / np.sqrt(np.mean(np.square(adam["kernel"]))) < 0.3


def test_it_goes_down_where_the_gradient_does():
    params = {"kernel": jnp.zeros((24, 40))}
    grads, update = first_update("muon", params)
    left, _, right = np.linalg.svd(grads["kernel"], full_matrices=False)
    inner = np.einsum("ik,ij,kj->k", left, update["kernel"], right)
    assert (inner < 0).all()


def test_the_rest_is_left_to_adam():
    """With Nesterov's momentum, as Muon has it."""
    params = {"bias": jnp.zeros(40), "head": {"kernel": jnp.zeros((24, 6))}}
    grads, updates = first_update("muon", params)
    adam = optax.nadam(1e-2)
    expected, _ = adam.update(grads, adam.init(params), params)
    for one, other in zip(*map(jax.tree.leaves, (updates, expected)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


SHARING = [(24, 40), (24, 40), (40, 24), (24, 36), (5, 5, 3, 16), (2, 16, 48)]


def test_matrices_that_share_a_room_are_treated_by_themselves():
    """Whatever their shapes: in a room of its own, each has the same update."""
    kernels = {f"net_{i}": {"kernel": jnp.zeros(x)} for i, x in enumerate(SHARING)}
    grads, together = first_update("muon", kernels | {"bias": jnp.zeros(5)})
    assert len(optimizers.arrange(kernels)) == 1
    for name, one in kernels.items():
        optimizer = optimizers.make(RATE, 1e9, "muon")
        tree = {name: one, "bias": jnp.zeros(5)}
        own = {key: grads[key] for key in tree}
        alone, _ = optimizer.update(own, optimizer.init(tree), tree)
        alone, shared = alone[name]["kernel"], together[name]["kernel"]
        np.testing.assert_allclose(alone, shared, atol=1e-5 * np.abs(alone).max())


def test_matrices_of_the_demo_are_in_few_rooms_and_most_parameters_in_matrices():
    model = Ocloc(demo.small_sizes())
    params = jax.eval_shape(lambda key: initial.init(model, key), jax.random.key(0))
    arranged = jax.eval_shape(optimizers.arrange, params)
    sizes = {name: x.size for name, x in arranged.items()}
    total = sum(x.size for x in jax.tree.leaves(params))
    assert len(sizes) <= 8
    assert total <= sum(sizes.values()) < 1.3 * total
    assert sizes["rest"] < 0.1 * total
