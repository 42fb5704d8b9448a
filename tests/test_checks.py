"""Configs that cannot be meant stop at once and say what to change."""

import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

from configs import circle, common, demo
from ocloc_jax import checks, data

ROOT = pathlib.Path(__file__).parents[1]


def smoke_config(**changes):
    config = common.published("clevr", "smoke")
    config.update_from_flattened_dict(changes)
    return config


@pytest.mark.parametrize("dataset", ["clevr", "shop", "gso", "shapenet"])
@pytest.mark.parametrize("variant", common.VARIANTS)
def test_published_configs_pass(dataset: str, variant: str):
    checks.check(common.published(dataset, variant), num_devices=8)


@pytest.mark.parametrize("module", [demo, circle])
def test_our_own_configs_pass(module: types.ModuleType):
    for variant in module.VARIANTS:
        checks.check(module.get_config(variant), num_devices=1)
    with pytest.raises(ValueError, match="Unknown variant 'tiny'; use one of"):
        module.get_config("tiny")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", -1, "seed is -1; choose 0 or more"),
        ("log_every", 0, "log_every is 0; choose 1 or more"),
        ("figure_every", -5, "figure_every is -5; choose 0 or more"),
        ("model.mode", "papr", "model.mode is 'papr'; use one of .*paper"),
        ("model.remat", "some", "model.remat is 'some'; use one of .*decoder"),
        ("model.dtype", "float16", "model.dtype is 'float16'; use .*bfloat16"),
        ("model.num_iterations", 0, r"\(T\) is 0; choose 1 or more"),
        ("model.sizes.objects.num_heads", 3, "objects.width is 16, which 3 heads"),
        ("stages.multi.learning_rate.scale", "cubic", "scale is 'cubic'; use one of"),
        ("objective.num_slots", 0, r"\(K\) is 0; choose 1 or more"),
        ("objective.num_slots", 1, "num_slots is 1, but scenes have up to 2 objects"),
        ("objective.sigma_x", 0.0, "objective.sigma_x is 0.0; it must be positive"),
        ("objective.alpha", -1.0, "objective.alpha is -1.0; it must be positive"),
        ("data.scenes.size", 20, "20x20 do not fit.*multiples of 8"),
        ("data.scenes.samples", 3, "SceneSpec: samples=3"),
        ("data.num_scenes.train", 0, "data.num_scenes.train is missing or 0"),
        ("stages.single.batch_size", 9, "single.batch_size is 9.*8 devices.*of 8"),
        ("stages.single.batch_size", 0, "single.batch_size is 0"),
        ("stages.multi.accumulate", 3, "8 devices in 3 parts.*multiple of 24"),
        ("stages.multi.accumulate", 0, "multi.accumulate is 0; choose 1 or more"),
        ("stages.multi.images_at_a_time", -1, "images_at_a_time is -1; choose 1 or"),
        ("stages.multi.clip_norm", 0.0, "multi.clip_norm is 0.0"),
        ("stages.multi.num_iterations", -1, r"multi.num_iterations \(T\) is -1"),
        ("stages.multi.optimizer", "sgd", "multi.optimizer is 'sgd'; choose .*muon"),
        ("stages.multi.learning_rate.num_steps", -4, "num_steps is -4"),
        ("stages.multi.learning_rate.warmup_steps", -1, "warmup_steps is -1"),
        ("stages.multi.learning_rate.base", 0.0, "learning_rate.base is 0.0"),
        ("stages.multi.views.stage", "dual", "views.stage is 'dual'; use one of"),
        ("stages.multi.views.max_views", 3, "max_views is 3.*a scene 2 views"),
        ("stages.multi.views.max_views", 0, "1 to 0 views"),
        ("stages.multi.coefficients.temp_shp.scale", "cubic", "multi.*'temp_shp'"),
        ("plan.utilisation", 30.0, "plan.utilisation is a share"),
    ],
)
def test_impossible_values_are_named(key: str, value, message: str):
    with pytest.raises(ValueError, match=message):
        checks.check(smoke_config(**{key: value}), num_devices=8)


def test_all_faults_are_told_together():
    config = smoke_config(**{"seed": -1, "objective.sigma_x": -0.1})
    with pytest.raises(ValueError, match="seed is -1.*\n.*sigma_x is -0.1"):
        checks.check(config)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sed", "no key 'sed' in config. Did you mean seed"),
        ("model.dtyp", "no key 'dtyp' in config.model. Did you mean dtype"),
        ("model.sizes.objects.widht", "in config.model.sizes.objects.*mean width"),
        ("data.scenes.num_view", "'num_view' in config.data.scenes.*mean num_views"),
        ("stages.multi.batchsize", "in config.stages.multi.*mean batch_size"),
        ("stages.multi.views.max_view", "in config.stages.multi.views.*max_views"),
        ("stages.multi.coefficients.temp_shap", "mean temp_shp"),
        ("stages.third", "no key 'third' in config.stages.*single"),
    ],
)
def test_unknown_keys_of_a_file_are_named(path: str, message: str):
    config = smoke_config()
    *parents, key = path.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    node[key] = {}
    with pytest.raises(ValueError, match=message):
        checks.check(config)


def test_data_must_come_from_one_place():
    config = smoke_config()
    config.data.name = "multiview_clevr"
    with pytest.raises(ValueError, match="either a name.*or scenes"):
        checks.check(config, num_devices=1)


def test_wandb_must_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="wandb is not installed"):
        checks.check(smoke_config(wandb="project"), num_devices=1)


def test_datasets_on_disk_say_how_many_slots_they_need():
    def opened(num_objects):
        known = dict(num_objects=num_objects)
        return data.RecordScenes([0], ("image",), 8, lambda *_: {}, known)

    config = common.published("clevr")
    checks.check_scenes(config, {"train": opened(6), "validation": opened(None)})
    with pytest.raises(ValueError, match="num_slots is 7.*validation have up to 10"):
        checks.check_scenes(config, {"train": opened(6), "validation": opened(10)})


def test_misspelt_override_ends_with_a_sentence(tmp_path):
    """Of the real command, without a traceback."""
    command = [sys.executable, "launch.py", "--config=configs/clevr.py:smoke"]
    command += ["--config.stages.multi.batch_sze=4", f"--workdir={tmp_path}"]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "no key 'batch_sze' in config.stages.multi" in ended.stderr
    assert "Did you mean batch_size?" in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("seed", None),
        ("stages.multi.batch_size", None),
        ("stages.multi.batch", "no key 'batch' in config.stages.multi"),
        ("seed.value", "config.seed is a value"),
    ],
)
def test_overrides(path: str, found: str | None):
    fault = checks.unknown_override(smoke_config(), path)
    assert fault is None if found is None else found in fault


def test_narrow_sizes_keep_the_structure():
    config, whole = smoke_config(), common.published("clevr")
    few, many = config.model.sizes, whole.model.sizes
    assert few.num_convs == many.num_convs
    assert np.array_equal(few.objects.channels, np.array(many.objects.channels) // 8)
    assert few.objects.num_layers == many.objects.num_layers
