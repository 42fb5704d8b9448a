"""Evaluation: passes, what is stored of them, constancy, refusals."""

import csv
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import ml_collections
import numpy as np
import pytest
import small

from configs import common
from ocloc_jax import data, evaluate, experiment, inference, metrics, scenes, weights
from ocloc_jax.evaluation import interpolation, passes, provenance, tables
from ocloc_jax.metrics import published


def small_config(**changes) -> ml_collections.ConfigDict:
    config = ml_collections.ConfigDict()
    config.data = dict(
        # Large objects from low cameras, so that they hide each other.
        scenes=dict(
            size=16,
            num_views=2,
            min_objects=2,
            max_objects=2,
            samples=1,
            object_scale=1.5,
            elevation=(0.1, 0.25),
        ),
        general=dict(min_objects=3, max_objects=3),
        num_scenes=dict(test=5, test_general=3),
        seed=0,
    )
    config.eval = common.evaluation(num_views=2, test=3, test_general=4)
    config.eval.batch_size = 3
    config.update_from_flattened_dict(changes)
    return config


@pytest.fixture(scope="module")
def model():
    model = small.model(num_iterations=2)
    return model, small.params(model)


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    weights.save(path, *model)
    return path


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, weights_file):
    workdir = tmp_path_factory.mktemp("workdir")
    evaluate.run(small_config(), workdir, weights_file)
    return workdir


def refuse(constant: str):
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def results(workdir):
    text = (workdir / "eval" / "results.json").read_text()
    return json.loads(text, parse_constant=refuse)


def test_five_passes_with_mean_and_deviation(results):
    assert results["seeds"] == [0, 1, 2, 3, 4]
    for split, sizes in {"test": (5, 3, 2), "test_general": (3, 4, 3)}.items():
        found = results["splits"][split]
        names = ("num_scenes", "num_slots", "num_objects")
        assert tuple(found[name] for name in names) == sizes
        assert [p["seed"] for p in found["passes"]] == [0, 1, 2, 3, 4]
        for kind in ("pooled", "per_scene"):
            values = [p[kind]["iou"] for p in found["passes"]]
            assert len(set(values)) == 5
            assert found["mean"][kind]["iou"] == pytest.approx(np.mean(values))
            assert found["sd"][kind]["iou"] == pytest.approx(np.std(values))


def test_scores_are_those_of_the_collected_predictions(results, model):
    scenes_of_split = experiment.load_scenes(small_config(), "test")
    options = dict(num_views=2, num_slots=3, seed=3, batch_size=5)
    found = list(inference.predictions(*model, scenes_of_split, **options))
    arrays = {k: np.stack([p.arrays[k] for p in found]) for k in found[0].arrays}
    expected = metrics.evaluate(**arrays)
    stored = results["splits"]["test"]["passes"][3]
    for kind in ("pooled", "per_scene"):
        for name, value in expected[kind].items():
            # The batch was another one, which may change the rounding.
            assert stored[kind][name] == pytest.approx(value, abs=1e-5), name


def test_the_same_call_gives_the_same_numbers(results, weights_file, tmp_path):
    config = small_config(**{"eval.constancy": False})
    again = evaluate.run(config, tmp_path, weights_file)
    for split, found in again["splits"].items():
        for name in ("passes", "mean", "sd", "dataset"):
            assert found[name] == results["splits"][split][name]
    assert "constancy" not in again


def test_results_say_where_they_come_from(results, weights_file):
    digest = hashlib.sha256(weights_file.read_bytes()).hexdigest()
    assert results["weights"] == {"path": str(weights_file), "sha256": digest}
    assert results["config_sha256"] == provenance.config_digest(small_config())
    assert results["config_sha256"] != provenance.config_digest(
        small_config(**{"eval.num_views": 1})
    )
    assert results["versions"]["jax"] and results["hardware"]["cores"] >= 1
    first, second = (results["splits"][s]["dataset"] for s in tables.TITLES)
    assert first["spec"]["max_objects"] == 2 and second["spec"]["max_objects"] == 3
    assert first["sha256_of_scored"] != second["sha256_of_scored"]
    commit = provenance.commit()
    assert commit is None or len(commit.removesuffix("-dirty")) == 40


def test_tables_stand_beside_the_published_rows(workdir, results):
    text = (workdir / "eval" / "table.md").read_text()
    for method in published.METHODS:
        assert text.count(f"| {method} | CLEVR | pooled |") == 2
    assert "0.791 ± 2e-6" in text and "N/A" in text
    assert text.count("**The published rows are for another dataset**") == 2
    ours = results["splits"]["test"]
    score = published.Score(ours["mean"]["pooled"]["f1"], ours["sd"]["pooled"]["f1"])
    assert f"**{tables.cell(score)}**" in text
    between = results["constancy"]["interpolation"]["mse"]["nearest_view"]
    assert f"copy of the nearer view {between:.5f}" in text
    assert "of 10 pairs of views |" in text  # 5 scenes, 2 objects in both views
    with (workdir / "eval" / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * (6 + 2)
    assert [line["average"] for line in lines[6:8]] == ["pooled", "per_scene"]
    assert float(lines[6]["f1_sd"]) == score.sd
    latex = (workdir / "eval" / "table.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert r"ocloc\_jax & ray-traced & per\_scene" in latex


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (None, "N/A"),
        (published.Score(-0.0002, 0.0), "0.000 ± 0"),
        (published.Score(0.7914, 2.4e-6), "0.791 ± 2e-6"),
        (published.Score(1.0, 0.096), "1.000 ± 1e-1"),
    ],
)
def test_cells_are_written_as_in_the_paper(score: published.Score | None, text: str):
    assert tables.cell(score) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("multiview_gso/released/1.0.0", ("GSO", True)),
        ("multiview_shop/raytraced_64/1.0.0", ("SHOP", False)),
        ("my_table/1.0.0", ("CLEVR", False)),
        (None, ("CLEVR", False)),
    ],
)
def test_rows_of_the_right_dataset(name: str | None, expected: tuple[str, bool]):
    assert tables.published_for(name) == expected


def test_views_curve_begins_and_ends_where_it_must(results, workdir):
    views = results["constancy"]["views"]
    assert views["num_views"] == [1, 2]
    whole = results["splits"]["test"]["passes"][0]["pooled"]
    for name, value in whole.items():
        joint, first = views["all_views"][name], views["first_view"].get(name)
        assert first is None or joint[0] == first[0]
        assert joint[1] == value
    assert views["all_views"].keys() - views["first_view"].keys() == {"oca"}
    assert views["first_view"]["mse"][1] != views["all_views"]["mse"][1]
    assert (workdir / "eval" / "views.png").stat().st_size > 1000


def test_constancy_has_numbers_or_reasons(results):
    found = results["constancy"]
    assert found["split"] == "test"
    assert 0 <= found["identity_switches"]["rate"]["mean"] <= 1
    assert found["identity_switches"]["num_pairs"]["mean"] > 0
    for name in ("hidden", "mostly_hidden"):
        assert "not_measured" in found[name] or 0 <= found[name]["recall"]["mean"] <= 1
    assert found["camera_probe"]["elevation"]["mean"] <= 1
    between = found["interpolation"]
    assert (between["num_scenes"], between["num_pairs"]) == (5, 5)
    counts = [row["num_pairs"] for row in between["by_angle"]]
    assert sum(counts) == 5
    weighted = np.average([r["decoded"] for r in between["by_angle"]], weights=counts)
    assert between["mse"]["decoded"] == pytest.approx(weighted)


def test_decoded_viewpoints_begin_at_the_reconstruction(model):
    split = _split(experiment.load_scenes(small_config(), "test"))
    [prediction, *_] = split.predictions(*model, seed=0)
    view = prediction.latents["view"]
    pairs = interpolation.Pairs(np.array([1]), np.array([0]), np.array([0.3]))
    for share, end in ((0.0, 1), (1.0, 0)):
        between = interpolation.mix(view, pairs, share)
        image = interpolation._decode(*model, prediction.latents, between, (16, 16))
        expected = prediction.arrays["reconstruction"][end]
        np.testing.assert_allclose(image[0], expected, atol=1e-5)


def test_neighbours_lie_next_to_each_other():
    azimuth = np.array([0.1, 3.0, 6.2, 1.0])
    pairs = interpolation.neighbours(azimuth)
    turns = {(a, b): t for a, b, t in zip(*pairs, strict=True)}
    # From 3.0 on to 6.2 is more than half a turn.
    expected = {(0, 3): 0.9, (3, 1): 2.0, (2, 0): 0.1 + 2 * np.pi - 6.2}
    assert turns.keys() == expected.keys()
    assert all(turns[pair] == pytest.approx(t) for pair, t in expected.items())
    assert len(interpolation.neighbours(np.array([0.0, np.pi])).turn) == 1
    cameras = np.stack([azimuth, azimuth + 1, azimuth + 2], axis=1)
    half = interpolation.cameras_between(cameras, pairs, 0.5)
    row = list(zip(pairs.first, pairs.second, strict=True)).index((2, 0))
    middle = 6.2 + (0.1 + 2 * np.pi - 6.2) / 2  # not 3.15, on the other side
    np.testing.assert_allclose(half[row], [middle, 4.15, 5.15])


def _split(loaded: data.Scenes, **changes) -> passes.Split:
    options = dict(num_views=2, num_slots=3, batch_size=5) | changes
    return passes.Split(name="test", scenes=loaded, **options)


def test_scenes_are_read_as_they_are_scored(model, monkeypatch):
    """However many there are: those in memory are a few batches."""
    image, scored, ahead = np.zeros((2, 16, 16, 3), np.uint8), [], []

    def decode(example, views, keys):
        ahead.append(example - len(scored))
        return {"image": image}

    def score(scene):
        scored.append(None)
        return metrics.score_scene(scene)

    monkeypatch.setattr(metrics.scoring, "score_scene", score)
    source = data.RecordScenes(range(40), ("image",), 2, decode)
    passes.run(*model, _split(source, batch_size=1), seed=0)
    assert len(scored) == 40
    assert max(ahead) <= 2 * min(8, os.cpu_count()) + 8


@pytest.mark.parametrize(
    ("keys", "unscored", "notes"),
    [
        (("image",), set(metrics.METRICS), 0),
        (("image", "segment"), {"iou", "f1", "ooa"}, 1),
        (("image", "segment", "overlap", "masks"), set(), 0),
    ],
    ids=["image", "segment", "all"],
)
def test_missing_labels_leave_the_rest(model, keys, unscored: set, notes: int):
    spec, seed = (
        f(small_config(), "test")
        for f in (experiment.scene_spec, experiment.split_seed)
    )
    record = scenes.render_batch(spec, seed, range(5))
    split = _split(data.ArrayScenes({key: record[key] for key in keys}))
    result, done = evaluate.evaluate_split(*model, split, num_passes=1)
    assert set(result["not_scored"]) == unscored
    assert all("the dataset has no" in why for why in result["not_scored"].values())
    scored = {n for n, x in result["mean"]["pooled"].items() if math.isfinite(x)}
    assert scored == {*metrics.METRICS, "mse", "psnr"} - unscored
    assert len(result["notes"]) == notes
    found = evaluate.constancy.camera_probe(split, done)
    assert found == {"not_measured": "the dataset has no `camera`"}
    assert "not_measured" in interpolation.measure(*model, split, done[0])
    if "segment" in keys:
        assert split.num_objects == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"eval.splits.test.num_slots": 1},
            r"eval\.splits\.test\.num_slots is 1.*2 ob",
        ),
        ({"eval.splits.test_general.num_slots": 2}, "up to 3 objects"),
        ({"eval.num_views": 3}, "eval.num_views is 3.*only 2 views"),
        ({"eval.splits.train.num_slots": 3}, "data.num_scenes has no split 'train'"),
        ({"eval.num_passes": 0}, "eval.num_passes is 0"),
        (
            {"eval.splits.test.num_slots": 0, "eval.splits.test_general.num_slots": 0},
            "asks for nothing",
        ),
        ({"eval.splits": {"tests": {"num_slots": 3}}}, r"asks for \['tests'\]"),
    ],
)
def test_impossible_evaluations_are_named(tmp_path, weights_file, changes, message):
    with pytest.raises(ValueError, match=message):
        evaluate.run(small_config(**changes), tmp_path, weights_file)
    assert not list(tmp_path.iterdir())


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights of a run.*train there"):
        evaluate.run(small_config(), tmp_path)
    with pytest.raises(ValueError, match=r"nothing\.safetensors"):
        evaluate.run(small_config(), tmp_path, tmp_path / "nothing.safetensors")


def test_best_weights_of_a_run_are_found(tmp_path, weights_file):
    for stage in ("single", "multi"):
        (tmp_path / stage).mkdir()
        shutil.copy(weights_file, tmp_path / stage / "best.safetensors")
        found = weights.find(tmp_path)
        assert found == tmp_path / stage / "best.safetensors"


def test_other_results_are_set_aside(tmp_path, model):
    config = small_config(**{"eval.constancy": False, "eval.num_passes": 1})
    config.eval.splits.test_general.num_slots = 0
    tiny, params = model
    for number in range(2):
        scaled = jax.tree.map(lambda x, by=1 + 0.1 * number: by * x, params)
        weights.save(tmp_path / f"{number}.safetensors", tiny, scaled)
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "results.json").write_text("notes of somebody")
    for number in (0, 1, 1):
        evaluate.run(config, tmp_path, tmp_path / f"{number}.safetensors")
    stored = {p.parent.name: p.read_text() for p in tmp_path.glob("*/results.json")}
    assert stored.pop("eval-1") == "notes of somebody"
    names = {k: json.loads(v)["weights"]["path"][-13:] for k, v in stored.items()}
    assert names == {"eval-2": "0.safetensors", "eval": "1.safetensors"}


def test_training_points_at_init_from_instead_of_weights(tmp_path):
    command = [sys.executable, "launch.py", "--config=configs/demo.py"]
    options = ["--weights=a.safetensors", f"--workdir={tmp_path}"]
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 1 and not list(tmp_path.iterdir())
    assert "--config.init_from=a.safetensors" in done.stderr


def test_training_may_end_without_evaluation():
    config = small_config()
    assert evaluate.is_asked_for(config)
    for split in config.eval.splits.values():
        split.num_slots = 0
    assert not evaluate.is_asked_for(config)
    assert not evaluate.is_asked_for(ml_collections.ConfigDict())


def test_splits_keep_their_own_slots():
    options = evaluate.options_of(small_config())
    assert options.num_slots == {"test": 3, "test_general": 4}
    published_config = common.published("clevr")
    assert evaluate.options_of(published_config).num_slots == {
        "test": 7,
        "test_general": 11,
    }
    assert dataclasses.asdict(options)["num_passes"] == 5
