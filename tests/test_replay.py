"""The black box of a step that is not finite, and what replaying it tells."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
import small
import tiny_config
from jax.sharding import NamedSharding, PartitionSpec

from ocloc_jax import (
    blackbox,
    data,
    experiment,
    loop,
    nonfinite,
    replay,
    start,
    train,
    weights,
)
from ocloc_jax.blackbox import Guard, NotFinite
from ocloc_jax.checkpoints import Checkpoints


def one_stage(**changes) -> ml_collections.ConfigDict:
    config = tiny_config.get_config("8,single")
    config.stages.single.batch_size = 8
    config.update_from_flattened_dict(changes)
    return config


def make_guard() -> tuple[Guard, list]:
    boxes: list = []
    return Guard("single", lambda *args: boxes.append(args) or "BOX"), boxes


def row(loss: float) -> dict[str, jax.Array]:
    return {"loss": jnp.array(loss), "grad_norm": jnp.array(1.0)}


def test_guard_names_the_step_although_it_looks_later():
    guard, boxes = make_guard()
    guard.watch(1, row(2.0))
    guard.watch(2, row(np.nan))
    with pytest.raises(NotFinite, match=r"Step 2 of stage single.*\['loss'\].*BOX"):
        guard.watch(3, row(np.nan))
    assert [step for step, _ in boxes] == [2]


def test_guard_looks_before_something_is_saved():
    guard, _ = make_guard()
    guard.watch(1, row(2.0))
    guard.settle(1, {"kernel": jnp.ones(2), "step": jnp.array(1)})
    guard.watch(2, row(np.inf))
    with pytest.raises(NotFinite, match="Step 2"):
        guard.settle(2)
    with pytest.raises(NotFinite, match=r"Step 3.*\['kernel'\]"):
        make_guard()[0].settle(3, {"kernel": jnp.array([1.0, np.inf])})


def test_guard_sees_every_seed():
    guard, _ = make_guard()
    guard.watch(1, {"loss": jnp.array([1.0, np.nan]), "grad_norm": jnp.ones(2)})
    with pytest.raises(NotFinite, match="Step 1"):
        guard.settle(1)


def test_guard_tells_of_the_step_even_without_a_box():
    def fail(*args):
        raise OSError("no space")

    guard = Guard("multi", fail)
    guard.watch(4, row(np.nan))
    with pytest.raises(NotFinite, match="Step 4 of stage multi.*No black box.*space"):
        guard.settle(4)


def names(function, *args) -> list[str]:
    return [operation.name for operation in nonfinite.find(function, *args)[1]]


def test_first_bad_operation():
    def function(x):
        with jax.named_scope("decoder"):
            y = jnp.log(x - 1)  # -inf
        return (y * 0).sum(), jnp.sqrt(x)

    result, (operation,) = nonfinite.find(function, jnp.ones(3))
    assert (operation.name, operation.module) == ("log", "decoder")
    assert "test_replay.py" in operation.source
    assert np.isnan(result[0])
    np.testing.assert_array_equal(result[1], 1.0)


def test_first_bad_operation_inside_loops_and_calls():
    def loop_body(carry, row):
        return carry * 10.0, jax.jit(jnp.exp)(carry) + row

    def function(x):
        return jax.lax.scan(loop_body, x, jnp.zeros(4))[1]

    assert names(function, jnp.array(1.0)) == ["exp"]  # in the third round
    assert names(function, jnp.array(0.001)) == []
    assert names(jax.grad(lambda x: jax.nn.relu(jnp.sqrt(x))), jnp.array(0.0)) == [
        "rsqrt" if "rsqrt" in names(jax.grad(jnp.sqrt), jnp.array(0.0)) else "div"
    ]


def test_what_was_not_finite_before_is_nobodys_fault():
    assert names(lambda x: jnp.log(x) + 1, jnp.array(np.nan)) == []
    assert names(lambda x: jnp.where(x > 0, x, -np.inf).max(), jnp.ones(3)) == []


@pytest.fixture(scope="module")
def exploded(tmp_path_factory):
    """A run from weights so large that the second convolution overflows."""
    workdir = tmp_path_factory.mktemp("exploded")
    config = one_stage(init_from=str(workdir / "huge.safetensors"))
    model = experiment.make_model(config)
    params = small.params(model)
    for layer in ("conv_0", "conv_1"):
        params["encoder"]["feature_net"][layer]["kernel"] *= 1e25
    weights.save(config.init_from, model, params)
    with pytest.raises(NotFinite, match="Step 1 of stage single.*--mode=replay"):
        experiment.run(config, workdir)
    return config, workdir


def test_black_box_holds_the_step(exploded):
    config, workdir = exploded
    box = workdir / "single" / "blackbox" / "step_1"
    record = json.loads((box / "box.json").read_text())
    assert (record["stage"], record["step"], record["seed"]) == ("single", 1, 0)
    pipeline, _ = pipelines(config)
    batch = pipeline.host_batch(0)
    assert record["index"] == batch["index"].tolist()
    assert record["views"] == batch["views"].tolist()
    with np.load(box / "batch.npz") as arrays:
        np.testing.assert_array_equal(arrays["image"], batch["image"])
    assert record["found"]["loss"] in ("nan", "inf")
    assert record["replayed"]["loss"] == record["found"]["loss"]
    modules = record["modules"]
    assert modules["encoder/feature_net"]["parameters"] > 1e24
    assert modules["encoder/view_head"]["parameters"] < 1e3
    assert not list((workdir / "single" / "checkpoints").iterdir())


def test_replay_names_the_first_bad_operation(exploded, capsys):
    config, workdir = exploded
    guilty = replay.run(config, workdir)
    assert guilty[0].name == "conv_general_dilated"
    assert guilty[0].module.endswith("encoder.features/feature_net/conv_1")
    assert "ocloc_jax/models/convolutions.py" in guilty[0].source
    shown = capsys.readouterr().out
    assert "stage single, step 1, seed 0" in shown
    assert "not finite, parameters before the step: none" in shown
    assert "conv_general_dilated in jvp(Ocloc.encode)" in shown


def test_the_same_command_finds_the_same_step_and_keeps_the_box(exploded):
    config, workdir = exploded
    record = workdir / "single" / "blackbox" / "step_1" / "box.json"
    written = record.stat().st_mtime_ns
    with pytest.raises(NotFinite, match="Step 1 of stage single"):
        experiment.run(config, workdir)
    assert record.stat().st_mtime_ns == written


def test_state_in_the_box_is_the_state_before_the_step(tmp_path):
    """Made anew from a checkpoint three steps earlier, bit by bit."""
    config = one_stage(checkpoint_every=5)
    experiment.run(config, tmp_path)  # saves 5 and 8
    directory = tmp_path / "single"
    whole = (directory / "checkpoints").rename(tmp_path / "whole")
    shutil.copytree(whole / "5", directory / "checkpoints" / "5")
    plan, model, optimizer, like = parts(config)
    split = data.data_sharding()
    state = jax.device_put(like, NamedSharding(split.mesh, PartitionSpec()))
    with Checkpoints(directory / "checkpoints") as checkpoints:
        step = loop.make_step(plan, model, optimizer)
        recorder = blackbox.Recorder(
            stage="single",
            seeds=plan.make_seeds(),
            directory=directory,
            checkpoints=checkpoints,
            fresh=lambda: state,
            step=train.jit_data_parallel(step, split),
            observed=loop.make_step(plan, model, blackbox.observed(optimizer)),
            batches=functools.partial(pipelines(config)[0].batches, sharding=split),
        )
        box = recorder(9, {"loss": np.nan})
    with Checkpoints(whole) as first, Checkpoints(box / "state") as second:
        one, other = first.load(8, like), second.load(8, like)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert bool(jnp.array_equal(a, b))
    # A sound step shows as such.
    assert np.isfinite(json.loads((box / "box.json").read_text())["replayed"]["loss"])


def parts(config: ml_collections.ConfigDict):
    plan = experiment.make_plan(config, config.stages.single)
    model = experiment.make_model(config)
    optimizer = plan.make_optimizer()
    (params,) = start.fresh(model, range(1))
    return plan, model, optimizer, train.create_state(params, optimizer, seed=0)


def pipelines(config: ml_collections.ConfigDict):
    splits = {s: experiment.load_scenes(config, s) for s in ("train", "validation")}
    return loop.make_pipelines(
        experiment.make_plan(config, config.stages.single), splits
    )


def test_replay_without_a_box(tmp_path):
    with pytest.raises(ValueError, match="no black box"):
        replay.run(one_stage(), tmp_path)


def test_norms_are_per_module():
    tree = {"encoder": {"key": {"kernel": np.full(4, 3.0), "bias": np.full(4, 4.0)}}}
    norms = blackbox.norms(tree, jax.tree.map(np.zeros_like, tree))
    assert norms == {"encoder/key": {"parameters": 10.0, "gradients": 0.0}}
