"""Training: the step, devices, the loop, and going on after a stop."""

import dataclasses
import json
import os
import signal

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import pytest
import small

from configs import common
from ocloc_jax import data, experiment, loop, optimizers, recipes, train, weights
from ocloc_jax.logs import read_json_lines

OBJECTIVE = train.Objective(num_slots=3)


def small_config(**changes) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.seed, config.init_from = 0, ""
    config.model = dict(
        sizes=dataclasses.asdict(small.SIZES),
        shadows=True,
        mode="released",
        num_iterations=2,
        remat="none",
        dtype="float32",
    )
    config.objective = dict(num_slots=3, sigma_x=0.2, alpha=4.5)
    config.data = dict(
        scenes=dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1),
        num_scenes=dict(train=16, validation=12, test=9),
        seed=0,
    )
    config.eval = common.evaluation(num_views=2, test=3)
    config.eval.num_passes, config.eval.constancy = 2, False
    config.stages = {
        name: dict(
            batch_size=8,
            views=dict(stage=name, max_views=2),
            learning_rate=recipes.learning_rate("blender", name, num_steps=4),
            clip_norm=5.0,
            optimizer=optimizer,
            coefficients=recipes.coefficients("blender", name, num_steps=4),
        )
        for name, optimizer in (("single", "adam"), ("multi", "muon"))
    }
    config.log_every = config.validate_every = config.checkpoint_every = 2
    config.update_from_flattened_dict(changes)
    return config


def random_batch(seed: int = 0, batch: int = 8, views: int = 2) -> data.Batch:
    rng = np.random.default_rng(seed)
    shape = (batch, views, small.SIZE, small.SIZE, 3)
    return {"image": jnp.asarray(rng.integers(0, 256, shape, np.uint8))}


def make_step(num_devices: int):
    model = small.model()
    # Adam would blow up the rounding noise of gradients that are exactly zero.
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.sgd(0.01))
    table = recipes.coefficients("blender", "multi", num_steps=10)
    step = train.make_train_step(model, optimizer, table, OBJECTIVE)
    sharding = data.data_sharding(jax.devices()[:num_devices])
    state = train.create_state(small.params(model), optimizer, seed=1)
    whole = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    state = jax.device_put(state, whole)
    return train.jit_data_parallel(step, sharding), state, sharding


def test_one_and_eight_devices_agree():
    results = []
    for num_devices in (1, 8):
        step, state, sharding = make_step(num_devices)
        for i in range(2):
            state, metrics = step(state, jax.device_put(random_batch(i), sharding))
        assert int(state.step) == 2
        results.append((metrics, state.params))
    (one, params), (eight, others) = results
    for name in one:
        np.testing.assert_allclose(one[name], eight[name], rtol=1e-4, err_msg=name)
    chex.assert_trees_all_close(params, others, rtol=1e-6, atol=2e-5)


def test_a_stage_may_train_with_fewer_iterations_than_the_model_has():
    losses = []
    for stage, of_model in ((1, 3), (None, 1), (None, 3)):
        config = small_config(**{"model.num_iterations": of_model})
        config.stages.single.num_iterations = stage
        plan = experiment.make_plan(config, config.stages.single)
        model, optimizer = experiment.make_model(config), optax.sgd(0.01)
        state = train.create_state(small.params(model), optimizer, seed=1)
        step = jax.jit(loop.make_step(plan, model, optimizer))
        losses.append(float(step(state, random_batch(views=1))[1]["loss"]))
    assert losses[0] == losses[1] != losses[2]


def test_noise_that_nothing_weighs_is_not_drawn():
    images = jnp.zeros((1, 1, small.SIZE, small.SIZE, 3))

    def drawn(mode: str = "released", **table: float) -> set[str]:
        schedule = {k: dict(steps=(1,), values=(v,)) for k, v in table.items()}
        coefficients = train.schedules.coefficients(schedule, 1)
        args = images, jax.random.key(0), coefficients, OBJECTIVE
        noise = train.draw_noise(small.model(mode=mode), *args)
        pixels = ("shape", "shadow_shape", "appearance")
        return {name for name in pixels if getattr(noise, name) is not None}

    assert drawn() == drawn("paper", ratio_mixture=0.5) == set()
    assert drawn(ratio_mixture=0.5) == {"shape", "shadow_shape"}
    assert drawn(ratio_stick_breaking=1.0) == {"shape", "shadow_shape"}
    everything = {"shape", "shadow_shape", "appearance"}
    assert drawn(ratio_mixture=0.5, noise_max=0.1) == everything


def test_step_is_clipped_adam_with_features_and_decoder_held_back():
    """Against the recipe written out with plain optax on one step."""
    model, params = small.model(), small.params(small.model())
    table = recipes.coefficients("blender", "multi", num_steps=10)
    options = recipes.learning_rate("blender", "multi", num_steps=10)
    optimizer = optimizers.make(options, clip_norm=5.0)
    state = train.create_state(params, optimizer, seed=1)
    batch = random_batch()
    step = jax.jit(train.make_train_step(model, optimizer, table, OBJECTIVE))
    after, metrics = step(state, batch)

    @jax.jit
    def gradient(params):
        coefficients = train.schedules.coefficients(table, 1)
        key = jax.random.fold_in(jax.random.key(1), 0)
        images = data.to_model_range(batch["image"])
        args = images, key, coefficients, OBJECTIVE
        return jax.grad(lambda p: train.forward(model, p, *args)[0].mean())(params)

    grads = gradient(params)
    for part in (grads["decoder"], grads["encoder"]["feature_net"]):
        for path, leaf in jax.tree_util.tree_leaves_with_path(part):
            owner = part
            for entry in path[:-1]:
                owner = owner[entry.key]
            owner[path[-1].key] = 1e-3 * leaf  # ratio_dec at step 1
    norm = float(optax.tree.norm(grads))
    assert float(metrics["grad_norm"]) == pytest.approx(norm, rel=1e-3)
    scale = min(1.0, 5.0 / norm)
    for old, new, g in zip(
        *map(jax.tree.leaves, (params, after.params, grads)), strict=True
    ):
        g = scale * np.asarray(g)
        expected = np.asarray(old) - 1e-4 * g / (np.abs(g) + 1e-8)  # Adam's first step
        certain = np.abs(g) > 1e-7
        np.testing.assert_allclose(
            np.asarray(new)[certain], expected[certain], atol=2e-6
        )


def final_params(workdir):
    return weights.load(workdir / "multi" / "best.safetensors")[1]


def rows(workdir, stage):
    found = read_json_lines(workdir / stage / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "time"} for row in found]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    experiment.run(small_config(), workdir)
    return workdir


def test_run_leaves_what_people_read(whole_run):
    results = json.loads((whole_run / "eval" / "results.json").read_text())
    test = results["splits"]["test"]
    assert test["num_scenes"] == 9 and 0 <= test["mean"]["pooled"]["oca"] <= 1
    for name in ("decomposition.png", "single/curves.png", "multi/curves.png"):
        assert (whole_run / name).stat().st_size > 1000
    row = rows(whole_run, "multi")[-1]
    assert row["step"] == 4 and "validation/ari_obj_m" in row
    assert "seed" not in row and not (whole_run / "multi" / "seeds").exists()


@pytest.mark.parametrize("stop", ["exception", "signal"])
def test_interrupted_run_is_bit_identical(tmp_path, monkeypatch, whole_run, stop: str):
    """Stopped in each stage, and continued by the same call."""

    def stop_after_third(self):
        self._bar.update()
        if self._bar.n == 3 and (self._name, stop) not in stopped:
            stopped.add((self._name, stop))
            if stop == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                raise KeyboardInterrupt

    stopped: set = set()
    monkeypatch.setattr(loop.logs.StageLog, "advance", stop_after_third)
    for _ in range(2):
        with pytest.raises((KeyboardInterrupt, loop.Stopped)):
            experiment.run(small_config(), tmp_path)
    experiment.run(small_config(), tmp_path)
    chex.assert_trees_all_equal(final_params(tmp_path), final_params(whole_run))
    for stage in ("single", "multi"):
        assert rows(tmp_path, stage) == rows(whole_run, stage)


def test_other_config_in_the_same_place_is_refused(whole_run):
    changed = small_config(**{"objective.sigma_x": 0.3})
    with pytest.raises(ValueError, match="objective.sigma_x: 0.2 -> 0.3"):
        experiment.run(changed, whole_run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages.single.batch_size": 9}, "stages.single.batch_size is 9"),
        ({"objective.num_slots": 1}, "up to 2 objects"),
        ({"stages.multi.views.max_views": 3}, "max_views is 3.*2 views"),
        ({"init_from": "nothing.safetensors"}, "nothing.safetensors"),
    ],
)
def test_impossible_values_are_named(tmp_path, change, message: str):
    with pytest.raises(ValueError, match=message):
        experiment.run(small_config(**change), tmp_path)
