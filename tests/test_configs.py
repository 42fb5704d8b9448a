"""Every config can be built, and says what the published recipe says."""

import importlib

import pytest

from configs import common, demo, sweep
from ocloc_jax import checks, experiment, schedules

DATASETS = ("clevr", "shop", "gso", "shapenet")


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("variant", common.VARIANTS)
def test_published_config(dataset: str, variant: str):
    module = importlib.import_module(f"configs.{dataset}")
    config = module.get_config(variant)
    for stage in config.stages.values():
        schedules.check_table(stage.coefficients.to_dict())
    model = experiment.make_model(config)
    assert model.shadows == (variant != "no_shadow")
    assert model.mode == ("paper" if variant == "paper" else "released")


@pytest.mark.parametrize(("dataset", "steps"), [("clevr", 100_000), ("gso", 200_000)])
def test_published_numbers(dataset: str, steps: int):
    config = common.published(dataset)
    single, multi = config.stages.single, config.stages.multi
    assert (single.batch_size, multi.batch_size) == (32, 8)
    assert single.learning_rate.num_steps == steps
    assert multi.learning_rate.num_steps == 500_000
    assert single.learning_rate.warmup_steps == 10_000
    assert config.objective.to_dict() == dict(num_slots=7, sigma_x=0.2, alpha=4.5)
    assert multi.views.max_views == 8


def test_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="'tiny'.*no_shadow"):
        common.published("clevr", "tiny")


@pytest.mark.parametrize("dataset", DATASETS)
def test_sweep_is_the_published_protocol(dataset: str):
    module = importlib.import_module(f"configs.{dataset}")
    runs = list(module.sweep())
    assert [run["only_stage"] for run in runs] == 10 * ["single"] + 5 * ["multi"]
    assert [run["seed"] for run in runs] == [*range(10), *range(5)]
    for run in runs:
        config = module.get_config("smoke")
        config.update_from_flattened_dict(run)
        plans = experiment.make_plans(config)
        checks.check(config)
        assert list(plans) == [run["only_stage"]]
        assert plans[run["only_stage"]].seed == run["seed"]
    # The multi-view runs start where the single-view ones end.
    first, last = list(sweep.commands(dataset, "runs/x"))[:: len(runs) - 1]
    assert "--workdir=runs/x/single_0 --config.only_stage=single" in first
    assert "--config.init_from=runs/x/single_*/single" in last


def test_protocol_in_one_run():
    config = common.published("clevr", "smoke")
    config.stages.single.num_seeds, config.stages.multi.num_seeds = 10, 5
    plans = experiment.make_plans(config)
    checks.check(config)
    assert {name: plan.num_seeds for name, plan in plans.items()} == {
        "single": 10,
        "multi": 5,
    }


def test_defaults_are_one_seed_and_no_early_stop():
    for plan in experiment.make_plans(common.published("gso")).values():
        assert (plan.num_seeds, plan.over_seeds) == (1, "auto")
        assert plan.stop_dead == dict(after=0, patience=0)
        assert plan.views.get("views_seed") is None


def test_ablations_of_the_demo_train_as_long_and_differ_in_one_thing():
    plans = {v: experiment.make_plans(demo.get_config(v)) for v in demo.VARIANTS}
    steps = {
        variant: sum(plan.num_steps * plan.num_seeds for plan in stages.values())
        for variant, stages in plans.items()
    }
    for variant in ("no_shadow", "multi_only", "paper"):
        assert steps[variant] == steps["demo"]
    assert [plan.num_seeds for plan in plans["demo"].values()] == [2, 1]
    assert not demo.get_config("no_shadow").model.shadows
    assert plans["no_shadow"] == plans["demo"]
    assert list(plans["multi_only"]) == ["multi"]
    assert demo.get_config("paper").model.mode == "paper"
    assert set(plans["paper"]["multi"].coefficients) == {"temp_pres"}
