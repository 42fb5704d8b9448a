"""Plans: operations by hand, CUDA lowered, TPUs compiled for, and readable tables."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_collections
import pytest
import small
from jax.extend import core
from test_train import small_config

from ocloc_jax import data, experiment, parameters, plan, train
from ocloc_jax.models import convolutions, upsampling
from ocloc_jax.plan import costs, flops, hardware, steps, tables, targets

ROOT = pathlib.Path(__file__).parents[1]
LIBTPU = ROOT / ".libtpu" / "libtpu" / "libtpu.so"


def spec(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def conv(x, kernel, **options):
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, dimension_numbers=names, **options)


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (jnp.matmul, (spec(3, 4), spec(4, 5)), 2 * 3 * 4 * 5),
        (lambda x: jnp.einsum("bij,bkj->bik", x, x), (spec(7, 2, 6),), 2 * 7 * 4 * 6),
        (conv, (spec(2, 8, 8, 3), spec(5, 5, 3, 4)), 2 * (2 * 64 * 4) * (25 * 3)),
        (
            lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, length=9)[0],
            (spec(4, 4),),
            9 * 2 * 4**3,
        ),
        (
            lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ y, lambda y: y, x),
            (spec(4, 4),),
            2 * 4**3,
        ),
        (
            lambda x: jax.lax.platform_dependent(
                x, cpu=lambda y: y @ y, default=lambda y: y @ y @ y
            ),
            (spec(4, 4),),
            2 * 2 * 4**3,
        ),
        (jax.jit(jnp.sin), (spec(4, 4),), 0),
    ],
)
def test_operations_of_known_programs(fn, args, expected: int):
    assert flops.count(fn, *args) == expected


def down(x, kernel):
    return conv(x, kernel, window_strides=(2, 2), padding=[(1, 1), (1, 1)])


@pytest.mark.parametrize(
    ("fn", "kernel"),
    [
        (down, (4, 4, 4, 4)),
        (lambda x, k: convolutions.conv(x, k, 1, 1), (3, 3, 4, 4)),
        (lambda x, k: convolutions.conv(x, k, 2, 1, True), (4, 4, 4, 4)),
        (upsampling.upsample_conv, (4, 4, 4, 4)),
    ],
    ids=["XLA's, strided", "ours", "ours, strided", "ours, doubling"],
)
def test_the_gradient_of_a_convolution_costs_twice_the_convolution(fn, kernel):
    """Padding aside: no zeros between rows are counted, and nothing is done twice."""
    args = spec(1, 64, 64, 4), spec(*kernel)
    forward = flops.count(fn, *args)
    both = flops.count(jax.grad(lambda *x: fn(*x).sum(), argnums=(0, 1)), *args)
    assert both == pytest.approx(3 * forward, rel=0.05)


def plan_config(**changes) -> ml_collections.ConfigDict:
    config = small_config(**{"stages.multi.views.max_views": 2, **changes})
    # Only for two views, so that one program is compiled.
    config.plan = dict(target="here", utilisation=0.5, views=(2,))
    return config


@pytest.fixture(scope="module")
def here_plan(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("plan")
    config = plan_config()
    del config.stages["single"]
    return plan.run(config, workdir), workdir


def test_plan_is_written_and_consistent(here_plan):
    found, workdir = here_plan
    assert json.loads((workdir / "plan.json").read_text()) == found
    assert (workdir / "plan.md").read_text() == tables.markdown(found)
    assert sum(found["parameters"].values()) == sum(
        leaf.size for leaf in jax.tree.leaves(small.params(small.model()))
    )
    (stage,) = found["stages"]
    one, two = stage["programs"]
    assert (one["views"], two["views"]) == (1, 2)
    assert one["flops"] < two["flops"]
    assert one["memory"] is None and one["fits"] is None
    assert two["fits"] and 1e5 < two["memory"] < 1e9 and two["bytes"] > 0
    assert stage["flops"] == 4 * (one["flops"] + two["flops"]) / 2
    # The compiler counts elementwise operations too, but a loop only once.
    ratio = 8 * two["compiler_flops"] / two["flops"]
    assert 0.5 < ratio < 3
    assert stage["hours"] == pytest.approx(stage["step_seconds"] * 4 / 3600)


def test_operations_are_linear_in_views_and_batch():
    config = plan_config(
        **{"stages.multi.views.max_views": 3, "stages.multi.batch_size": 8}
    )
    config.data.scenes.num_views = 3
    config.stages.multi.optimizer = "adam"  # Muon multiplies matrices once a step
    target = targets.find("cuda")
    step, state = steps.abstract_step(config, "multi", target)
    one, two, three = (
        flops.count(step, state, steps.batch_of(config, "multi", m)) for m in (1, 2, 3)
    )
    assert three - two == two - one > 0
    config.stages.multi.batch_size = 16
    doubled = flops.count(step, state, steps.batch_of(config, "multi", 3))
    # But for what is made of positions, once for all scenes.
    assert doubled == pytest.approx(2 * three, rel=1e-3)
    config.stages.multi.accumulate = 4
    parts, _ = steps.abstract_step(config, "multi", target)
    in_parts = flops.count(parts, state, steps.batch_of(config, "multi", 3))
    assert in_parts == pytest.approx(doubled, rel=1e-3)
    config.model.remat = "all"
    again, _ = steps.abstract_step(config, "multi", target)
    recomputed = flops.count(again, state, steps.batch_of(config, "multi", 3))
    assert 1.1 < recomputed / doubled < 4 / 3


def test_step_can_be_lowered_for_cuda(tmp_path, capsys):
    config = plan_config()
    config.plan.target = "cuda:4"
    del config.stages["single"]
    found = plan.run(config, tmp_path)
    assert found["devices"] == 4 and found["accelerator"] is None
    assert found["stages"][0]["programs"][0]["memory"] is None
    text = capsys.readouterr().out
    assert "lowered, not compiled" in text and "| A100 40 GB | 40 | 156 |" in text


def test_an_operation_that_cuda_lacks_is_named():
    """So that a program for CPUs only fails here and not on the cluster."""
    primitive = core.Primitive("only_here")
    primitive.def_abstract_eval(lambda x: x)
    jax.interpreters.mlir.register_lowering(
        primitive, lambda ctx, x: [x], platform="cpu"
    )
    step = jax.jit(lambda x: primitive.bind(x))
    with pytest.raises(ValueError, match="cannot be lowered for CUDA.*only_here"):
        steps._lower_for_cuda(step, (spec(3),))


@pytest.mark.parametrize("name", ["tpu", "gpu", "cuda:x", "here:2", "tpu:v5e:2x2:3"])
def test_unknown_targets_are_refused(name: str):
    with pytest.raises(ValueError, match="config.plan.target is.*'tpu:v5e:2x2'"):
        targets.find(name)


def test_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(targets, "_LIBTPU", tmp_path)
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(ValueError, match="make libtpu"):
        targets.find("tpu:v5e:2x2")


def test_a_batch_that_the_target_cannot_share_is_refused(tmp_path):
    config = plan_config()
    config.plan.target = "cuda:3"
    with pytest.raises(ValueError, match="batch_size is 8.*3 devices"):
        plan.run(config, tmp_path)


@pytest.mark.skipif(not LIBTPU.exists(), reason="run `make libtpu` first")
@pytest.mark.parametrize("topology", ["1x1", "2x2"])
def test_real_step_is_compiled_for_tpus(tmp_path, topology: str):
    """By the real command, in a process of its own: libtpu stays out of this one."""
    command = [sys.executable, "launch.py", "--mode=plan", f"--workdir={tmp_path}"]
    command += ["--config=configs/clevr.py:smoke", "--config.plan.views=(2,)"]
    command += [f"--config.plan.target=tpu:v5e:{topology}"]
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    env["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".jax_cache")
    ended = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "plan.json").read_text())
    assert found["devices"] == (4 if topology == "2x2" else 1)
    assert found["accelerator"]["name"] == "TPU v5e"
    single, multi = found["stages"]
    assert single["programs"][0]["memory"] is None  # one view, not asked for
    assert multi["limit"] in ("operations", "memory traffic")
    program = multi["programs"][-1]
    assert program["fits"] and 1e6 < program["memory"] < 1e9
    assert program["compiler_flops"] > 0 and program["bytes"] > 0


def test_programs_too_large_for_a_chip_say_how_large():
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. "
        "Used 26.50G of 15.75G hbm. Exceeded hbm capacity by 10.75G."
    )
    assert steps._memory_wanted(message) == int(26.5 * 2**30)
    with pytest.raises(ValueError, match="cannot be compiled: UNIMPLEMENTED"):
        steps._memory_wanted("UNIMPLEMENTED: something else")


def test_time_is_the_longer_of_operations_and_traffic():
    chip = hardware.Accelerator("chip", "", 10, 20, 16, 100)
    assert chip.seconds(5e12, "float32", 0.5) == 1.0
    assert chip.seconds(5e12, "bfloat16", 0.5) == 0.5
    config, options = plan_config(), {"utilisation": 0.5}
    split = data.data_sharding(jax.devices()[:2])
    target = targets.Target("two", "tpu", split, chip)
    for num_bytes, seconds, limit in [
        (1e11, 1.0, "operations"),
        (4e11, 4.0, "memory traffic"),
    ]:
        programs = [steps.Program(1, int(1e13), bytes=num_bytes)] * 2
        stage = costs.of_stage(config, "multi", programs, target, options)
        assert stage["limit"] == limit
        assert stage["step_seconds"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v5 lite", "TPU v5e"),
        ("TPU v5", "TPU v5p"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA L4", "L4"),
        ("cpu", None),
    ],
)
def test_accelerators_are_known_by_their_kind(kind: str, name: str | None):
    found = hardware.find(kind)
    assert (found and found.name) == name


def test_parameter_table_adds_up():
    params = small.params(experiment.make_model(plan_config()))
    shapes = parameters.shapes(params)
    sums = parameters.by_module(shapes)
    assert sum(sums.values()) == sum(x.size for x in jax.tree.leaves(params))
    text = parameters.table(shapes)
    assert f"{sum(sums.values()):,}" in text.splitlines()[-1]
    assert "decoder/object_net/conv_0/kernel" in text
    assert f"{sum(sums.values()):,} parameters" in parameters.summary(shapes)


def test_planned_step_is_the_trained_one():
    """The same function makes both, so that a plan cannot drift from the training."""
    config = plan_config()
    step, state = steps.abstract_step(config, "multi", targets.find("cuda"))
    assert isinstance(state, train.TrainState)
    out, metrics = jax.eval_shape(step, state, steps.batch_of(config, "multi", 2))
    assert jax.tree.structure(out) == jax.tree.structure(state)
    assert {"loss", "nll", "grad_norm"} <= set(metrics)
