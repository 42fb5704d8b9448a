"""Seeds as an axis: each as if it ran alone, frozen ones, and what is made of them."""

import functools
import json
import pathlib
import re
from unittest import mock

import chex
import jax
import numpy as np
import optax
import pytest
import small
from test_train import OBJECTIVE, random_batch, rows, small_config

from ocloc_jax import (
    checks,
    data,
    experiment,
    loop,
    over_seeds,
    recipes,
    seeds,
    train,
    validation,
    weights,
)

NUMBERS = range(3, 7)


@functools.cache
def plain_step():
    # Adam would blow up the rounding noise of gradients that are exactly zero.
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.sgd(0.01))
    table = recipes.coefficients("blender", "multi", num_steps=10)
    return train.make_train_step(small.model(), optimizer, table, OBJECTIVE), optimizer


def batch_of(seed: int, step: int) -> data.Batch:
    return random_batch(seed=100 * seed + step, batch=4, views=1)


@pytest.fixture(scope="module")
def alone():
    """States and metrics of each seed after two steps of its own."""
    results, (step, optimizer) = {}, plain_step()
    for seed in NUMBERS:
        group = seeds.make(seed, devices=jax.devices()[:1])
        if not results:
            step = over_seeds.jit_step(step, group)
        state = group.create_state([small.params(small.model(), seed)], optimizer)
        for i in range(2):
            batch = jax.device_put(batch_of(seed, i), group.batch_sharding)
            state, metrics = step(state, batch)
        results[seed] = state, metrics
    return results


@functools.cache
def together(way: str, num_devices: int):
    """The same seeds in one state; the step is compiled once."""
    group = seeds.make(
        NUMBERS[0],
        len(NUMBERS),
        way=way,
        patience=1,
        devices=jax.devices()[:num_devices],
    )
    step, optimizer = plain_step()
    params = [small.params(small.model(), seed) for seed in NUMBERS]
    return (
        group,
        over_seeds.jit_step(step, group),
        lambda: group.create_state(params, optimizer),
    )


def run_two_steps(group, step, state):
    for i in range(2):
        parts = [batch_of(seed, i) for seed in group.numbers]
        batch = jax.tree.map(lambda *x: np.stack(x), *parts)
        batch = jax.device_put(batch, group.batch_sharding)
        state, metrics = step(state, batch)
    return state, metrics


@pytest.mark.parametrize(
    ("way", "num_devices", "mesh", "atol"),
    [("vmap", 8, (4, 2), 2e-5), ("loop", 1, (1,), 0)],
)
def test_every_seed_runs_as_if_alone(alone, way, num_devices, mesh, atol):
    group, step, start = together(way, num_devices)
    assert group.mesh.devices.shape == mesh
    state, metrics = run_two_steps(group, step, start())
    assert int(state.step) == 2
    lines = group.rows(metrics, group.frozen(state))
    for seed, params in zip(NUMBERS, group.parts(state.params), strict=True):
        expected, numbers = alone[seed]
        chex.assert_trees_all_close(params, expected.params, rtol=atol, atol=atol)
        for name, value in numbers.items():
            np.testing.assert_allclose(lines[seed][name], value, rtol=5 * atol)


@pytest.mark.parametrize(("way", "num_devices"), [("vmap", 8), ("loop", 1)])
def test_frozen_seed_stays_and_the_others_do_not_notice(way, num_devices):
    group, step, start = together(way, num_devices)
    free, _ = run_two_steps(group, step, start())
    state = group.count_dead(start(), [False, True, False, False])
    before = jax.device_get(state.params)
    state, metrics = run_two_steps(group, step, state)
    frozen = group.frozen(state)
    np.testing.assert_array_equal(frozen, [False, True, False, False])
    assert list(group.rows(metrics, frozen)) == [3, 5, 6]
    others = np.flatnonzero(~frozen)
    chex.assert_trees_all_equal(
        *(
            jax.tree.map(lambda x: np.asarray(x)[others], s.params)
            for s in (free, state)
        )
    )
    same = jax.tree.map(lambda a, b: (a[1] == b[1]).all(), before, state.params)
    assert all(jax.tree.leaves(jax.device_get(same)))
    again = group.count_dead(state, 4 * [False])  # there is no way back
    np.testing.assert_array_equal(group.frozen(again), frozen)


@pytest.mark.parametrize(
    ("num_seeds", "num_devices", "shape"),
    [(4, 8, (4, 2)), (8, 8, (8, 1)), (10, 4, (2, 2)), (3, 8, (1, 8))],
)
def test_seeds_go_to_different_devices_first(num_seeds, num_devices, shape):
    assert seeds.mesh_shape(num_seeds, num_devices) == shape


def test_platform_decides():
    assert seeds.choose_way("cpu") == "loop"
    assert seeds.choose_way("gpu") == seeds.choose_way("tpu") == "vmap"


def test_vmap_keeps_seeds_apart():
    """No device needs another seed's numbers: gradients meet along `data` only."""
    group, step, start = together("vmap", 8)
    batch = jax.tree.map(lambda x: np.stack(4 * [x]), batch_of(0, 0))
    batch = jax.device_put(batch, group.batch_sharding)
    text = step.lower(start(), batch).compile().as_text()
    assert "all-to-all" not in text and "collective-permute" not in text
    # Devices 2i and 2i + 1 hold seed i.
    reduces = [line for line in text.splitlines() if " all-reduce(" in line]
    found = {re.search(r"replica_groups=(\S+),", line)[1] for line in reduces}
    # Two ways to write the same groups; which one XLA takes depends on the program.
    assert found and found <= {"{{0,1},{2,3},{4,5},{6,7}}", "[4,2]<=[8]"}


def test_batches_are_those_of_each_seed_but_share_the_number_of_views():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (12, 5, 2, 2, 3), np.uint8)
    scenes = data.ArrayScenes({"image": image})
    group = seeds.make(5, 2, devices=jax.devices()[:1])
    stacked = data.stack_seeds(
        scenes, 4, group.numbers, group.batch_sharding, stage="multi", max_views=5
    )
    batches = list(stacked.batches(7, 12, sharding=group.batch_sharding))
    first, second = (
        data.TrainPipeline(scenes, 4, seed=seed, views_seed=5, max_views=5)
        for seed in (5, 6)
    )
    for step, batch in enumerate(batches, 7):
        one, other = first.host_batch(step), second.host_batch(step)
        for key, value in batch.items():
            np.testing.assert_array_equal(value, np.stack([one[key], other[key]]))
    assert len({batch["views"].shape for batch in batches}) > 1
    usual = data.TrainPipeline(scenes, 4, seed=5, max_views=5)
    np.testing.assert_array_equal(usual.plan(9).views, first.plan(9).views)


def seeds_config(**changes):
    """Like `small_config`, without the evaluation at the end."""
    config = small_config()
    del config.eval
    config.data.num_scenes = dict(train=16, validation=12)
    config.only_stage = ""
    for stage in config.stages.values():
        stage.views.views_seed = None
    config.update_from_flattened_dict(changes)
    return config


def best_params(directory: pathlib.Path):
    return weights.load(directory / "best.safetensors")[1]


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory):
    """Both stages of seeds 3 and 4, each going on from its own best."""
    workdir = tmp_path_factory.mktemp("two")
    config = seeds_config(seed=3)
    config.update(num_seeds=2, select="each")
    experiment.run(config, workdir)
    return workdir


def test_run_of_two_seeds_leaves_what_people_read(two_seeds):
    for stage in ("single", "multi"):
        lines = rows(two_seeds, stage)
        assert [line.get("seed") for line in lines] == 4 * [3, 4, None]
        for own, other, mean in zip(*(iter(lines),) * 3, strict=True):
            assert mean["step"] == own["step"] == other["step"]
            for key in set(mean) - {"step"}:
                expected = (own[key] + other[key]) / 2
                assert mean[key] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        result = json.loads((two_seeds / stage / "seeds.json").read_text())
        records = {
            seed: json.loads(
                (two_seeds / stage / "seeds" / seed / "best.json").read_text()
            )
            for seed in ("3", "4")
        }
        for seed, record in records.items():
            assert result["seeds"][seed]["loss"] == record["loss"]
            assert result["seeds"][seed]["step"] == record["step"]
        best = str(result["best_seed"])
        assert records[best]["loss"] == min(r["loss"] for r in records.values())
        chex.assert_trees_all_equal(
            best_params(two_seeds / stage),
            best_params(two_seeds / stage / "seeds" / best),
        )


def test_each_stage_of_one_of_the_seeds_can_be_run_alone(two_seeds, tmp_path):
    """Bit for bit what it was among others, on CPU."""
    changes = {"seed": 4, "only_stage": "single"}
    experiment.run(seeds_config(**changes), tmp_path / "a")
    own = two_seeds / "single" / "seeds" / "4"
    chex.assert_trees_all_equal(best_params(tmp_path / "a/single"), best_params(own))
    assert not (tmp_path / "a/single/seeds").exists()
    changes = {
        "seed": 4,
        "only_stage": "multi",
        "init_from": str(own / "best.safetensors"),
        "stages.multi.views.views_seed": 3,
    }
    experiment.run(seeds_config(**changes), tmp_path / "b")
    own = two_seeds / "multi" / "seeds" / "4"
    chex.assert_trees_all_equal(best_params(tmp_path / "b/multi"), best_params(own))
    alone = rows(tmp_path / "b", "multi")
    among = [row for row in rows(two_seeds, "multi") if row.pop("seed", None) == 4]
    assert alone == among


def test_interrupted_seeds_are_bit_identical(two_seeds, tmp_path, monkeypatch):
    def stop_after_third(self):
        self._bar.update()
        if self._bar.n == 3:
            raise KeyboardInterrupt

    config = seeds_config(seed=3, only_stage="single")
    config.update(num_seeds=2, select="each")
    with monkeypatch.context() as patch:
        patch.setattr(loop.logs.StageLog, "advance", stop_after_third)
        with pytest.raises(KeyboardInterrupt):
            experiment.run(config, tmp_path)
    experiment.run(config, tmp_path)
    assert rows(tmp_path, "single") == rows(two_seeds, "single")
    for seed in ("3", "4"):
        chex.assert_trees_all_equal(
            best_params(tmp_path / "single/seeds" / seed),
            best_params(two_seeds / "single/seeds" / seed),
        )


def fake_training(monkeypatch, background_share: float) -> None:
    """A stage that computes nothing and reports this background."""
    names = "slots_in_use slots_present usage_entropy presence presence_saturation"
    metrics = {f"health/{name}": 0.5 for name in names.split()}
    metrics |= {"health/background_share": background_share, "loss": 1.0}
    metrics["grad_norm"] = 1.0

    def make_train_step(*_):
        def step(state, batch, mesh=None):
            numbers = {k: np.float32(v) + 0 * state.step for k, v in metrics.items()}
            return state.replace(step=state.step + 1), numbers

        return step

    def make_validation(plan, *_):
        scores = {seed: {"loss": 1.0} for seed in plan.make_seeds().numbers}
        return mock.Mock(validation.Validation, return_value=scores)

    monkeypatch.setattr(loop.train, "make_train_step", make_train_step)
    monkeypatch.setattr(loop, "make_validation", make_validation)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_stage_of_dead_seeds_stops(tmp_path, monkeypatch, num_seeds):
    config = seeds_config(log_every=1)
    config.update(num_seeds=num_seeds, stop_dead=dict(after=1, patience=2))
    fake_training(monkeypatch, 0.999)
    for _ in range(2):  # the same command says so again at once
        with pytest.raises(loop.AllDead, match="single was given up after step 3"):
            experiment.run(config, tmp_path)
    last = rows(tmp_path, "single")[-1]
    assert last["step"] == 3
    assert last["train/health/background_share"] == pytest.approx(0.999)


def test_living_seeds_go_on(tmp_path, monkeypatch):
    config = seeds_config(log_every=1)
    config.update(num_seeds=2, stop_dead=dict(after=0, patience=1))
    fake_training(monkeypatch, 0.9)
    experiment.run(config, tmp_path)
    assert rows(tmp_path, "multi")[-1]["step"] == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"select": "some"}, "select is 'some'; use 'best' or 'each'"),
        ({"num_seeds": 0}, "num_seeds of stage single is 0"),
        ({"over_seeds": "pmap"}, "over_seeds is 'pmap'"),
        ({"stop_dead": dict(after=0, patience=-1)}, "patience cannot be negative"),
        (
            {"only_stage": "triple"},
            "only_stage is 'triple'; choose 'multi' or 'single'",
        ),
        ({"only_stage": "multi"}, "starts from single-view weights"),
    ],
)
def test_impossible_values_are_named(tmp_path, changes, message):
    config = seeds_config()
    config.update(changes)
    with pytest.raises(ValueError, match=message):
        experiment.run(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_stages_may_differ_in_seeds_only_if_the_best_goes_on(tmp_path):
    config = seeds_config()
    config.stages.single.num_seeds, config.select = 2, "each"
    plans = experiment.make_plans(config)
    assert {k: v.num_seeds for k, v in plans.items()} == {"single": 2, "multi": 1}
    with pytest.raises(ValueError, match="'single': 2, 'multi': 1.*equal numbers"):
        checks.check(config)
    config.select = "best"
    checks.check(config)
