"""A batch taken in parts: the same gradient, in less memory."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import small

from ocloc_jax import data, recipes, train

SIZE = (8, 2, small.SIZE, small.SIZE, 3)


def compiled_step(accumulate: int, num_devices: int = 1):
    """A step of plain descent, whose change of the parameters is the gradient."""
    model, optimizer = small.model(), optax.sgd(1e-3)
    table = recipes.coefficients("blender", "multi", num_steps=10)
    objective = train.Objective(num_slots=3)
    step = train.make_train_step(model, optimizer, table, objective, accumulate)
    state = train.create_state(small.params(model), optimizer, seed=1)
    sharding = data.data_sharding(jax.devices()[:num_devices])
    rng = np.random.default_rng(0)
    batch = {"image": jnp.asarray(rng.integers(0, 256, SIZE, np.uint8))}
    whole = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    state, batch = jax.device_put(state, whole), jax.device_put(batch, sharding)
    compiled = train.jit_data_parallel(step, sharding).lower(state, batch).compile()
    return compiled, (state, batch)


def test_parts_give_the_gradient_of_the_whole_batch():
    """Two parts on each of two devices, against the whole on one."""
    at_once, arguments = compiled_step(1)
    expected, metrics = at_once(*arguments)
    compiled, arguments = compiled_step(2, num_devices=2)
    found, others = compiled(*arguments)
    assert int(found.step) == 1
    chex.assert_trees_all_close(found.params, expected.params, rtol=1e-5, atol=1e-5)
    before = small.params(small.model())
    moved = jax.tree.map(lambda a, b: float(abs(a - b).max()), before, expected.params)
    assert max(jax.tree.leaves(moved)) > 1e-2  # so that the comparison says something
    assert set(metrics) == set(others)
    for name, value in metrics.items():
        np.testing.assert_allclose(others[name], value, rtol=1e-4, err_msg=name)
    less, more = (
        program.memory_analysis().temp_size_in_bytes for program in (compiled, at_once)
    )
    assert less < 0.5 * more


def test_each_part_takes_rows_of_every_device():
    """No row has to move: with 4 devices of 2 rows, a part has one row of each."""
    rows = jnp.arange(8)
    firsts = train.mean_over_parts(lambda part: part.astype(jnp.float32), rows, 2)
    np.testing.assert_array_equal(firsts, [0.5, 2.5, 4.5, 6.5])
