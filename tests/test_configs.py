"""Every config can be built, and says what the published recipe says."""

import importlib

import pytest

from configs import common
from ocloc_jax import experiment, schedules

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
