"""What training starts from: every kind of file, and errors that name it."""

import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small
from test_convert import random_state

from ocloc_jax import released, start, train, weights
from ocloc_jax.checkpoints import Checkpoints
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import CLEVR

MODEL = small.model()


def write_best(directory, seed: int, loss: float = 1.0):
    params = small.params(MODEL, seed)
    weights.save(directory / "best.safetensors", MODEL, params)
    (directory / "best.json").write_text(json.dumps({"loss": loss, "step": 4}))
    return params


def test_one_file_starts_every_seed(tmp_path):
    params = write_best(tmp_path, 0)
    found = start.read(str(tmp_path / "best.safetensors"), MODEL, range(3))
    assert len(found) == 3
    for one in found:
        chex.assert_trees_all_equal(one, params)


def test_directory_of_a_stage_gives_its_best_or_each_seed_its_own(tmp_path):
    best = write_best(tmp_path, 5)
    own = [write_best(tmp_path / "seeds" / str(seed), seed) for seed in (1, 2)]
    found = start.read(str(tmp_path), MODEL, range(1, 3))
    chex.assert_trees_all_equal(found, [best, best])
    found = start.read(str(tmp_path), MODEL, range(1, 3), each=True)
    chex.assert_trees_all_equal(found, own)
    with pytest.raises(ValueError, match="seeds/3/best.safetensors does not exist"):
        start.read(str(tmp_path), MODEL, range(1, 4), each=True)


def test_pattern_means_the_best_by_validation(tmp_path):
    for seed, loss in enumerate((3.0, 1.0, 2.0)):
        write_best(tmp_path / f"single_{seed}" / "single", seed, loss)
    pattern = str(tmp_path / "single_*" / "single")
    assert start.find(pattern) == tmp_path / "single_1" / "single"
    found = start.find(pattern + "/best.safetensors")
    assert found == tmp_path / "single_1" / "single" / "best.safetensors"
    (tmp_path / "single_1" / "single" / "best.json").unlink()
    with pytest.raises(ValueError, match="single_1/single/best.json is missing"):
        start.find(pattern)
    with pytest.raises(ValueError, match="nothing matches"):
        start.find(str(tmp_path / "none_*"))


def save_state(directory, params, step: int) -> None:
    state = train.create_state(params, optax.sgd(0.1), 0)
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(step, state.replace(step=jnp.int32(step)))


def test_checkpoints_of_one_seed(tmp_path):
    for step in (2, 4):
        save_state(tmp_path / "checkpoints", small.params(MODEL, step), step)
    for path, step in (("checkpoints", 4), ("checkpoints/2", 2)):
        (found,) = start.read(str(tmp_path / path), MODEL, range(1))
        chex.assert_trees_all_equal(found, small.params(MODEL, step))
    with pytest.raises(ValueError, match="checkpoints holds a model of other sizes"):
        start.read(str(tmp_path / "checkpoints"), small.model(shadows=False), range(1))
    with pytest.raises(ValueError, match="holds no checkpoint"):
        start.read(str(tmp_path), MODEL, range(1))


def test_checkpoints_of_several_seeds(tmp_path):
    each = [small.params(MODEL, seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *each)
    save_state(tmp_path / "checkpoints", stacked, 2)
    path = str(tmp_path / "checkpoints")
    found = start.read(path, MODEL, range(2), each=True)
    chex.assert_trees_all_equal(found, each)
    for count, own in ((2, False), (3, True)):
        with pytest.raises(ValueError, match=f"holds 2 seeds, and {count} start"):
            start.read(path, MODEL, range(count), each=own)


def test_released_weights_need_no_conversion_first(tmp_path):
    state, path = random_state(), tmp_path / "state.npz"
    np.savez(path, **state)
    (found,) = start.read(str(path), Ocloc(CLEVR), range(1))
    for name, value in released.to_released(found, CLEVR).items():
        np.testing.assert_array_equal(value, state[name])
    with pytest.raises(ValueError, match="state.npz holds a model of other sizes"):
        start.read(str(path), MODEL, range(1))


def test_missing_file_says_what_is_accepted(tmp_path):
    with pytest.raises(ValueError, match="nowhere does not exist.*safetensors.*npz"):
        start.read(str(tmp_path / "nowhere"), MODEL, range(1))


def test_fresh_parameters_differ_by_seed_and_not_by_company():
    first, second = start.fresh(MODEL, range(3, 5))
    (again,) = start.fresh(MODEL, range(4, 5))
    chex.assert_trees_all_equal(second, again)
    path = "decoder", "background_net", "mlp", "layer_0", "kernel"
    a, b = (jax.tree.reduce(lambda x, _: x, _walk(p, path)) for p in (first, second))
    assert not np.allclose(a, b)


def _walk(tree, path):
    for key in path:
        tree = tree[key]
    return tree
