"""The report counts what is there and notices what should not be."""

import json
import shutil
import sys

import builder_data
import fake_scenes
import numpy as np
import pytest
from PIL import Image

import ocloc_jax
from tfds_builders import __main__ as command_line
from tfds_builders import contact_sheet, doctor


@pytest.fixture(autouse=True)
def ray_tracer(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocloc_jax.scenes", fake_scenes)
    monkeypatch.setattr(ocloc_jax, "scenes", fake_scenes, raising=False)


def test_counts_of_a_built_dataset(tmp_path):
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny"]
    assert command_line.main([*options, "--data_dir", str(tmp_path)]) == 0
    report = doctor.examine(tmp_path, tmp_path / "report")
    assert report["problems"] == []
    general = report["splits"]["test_general"]
    assert general["scenes"] == 2 and general["views_per_scene"] == {"4": 2}
    assert general["sizes"] == {"32x32": 2}
    spec = fake_scenes.SceneSpec(32, 4, 7, 10)
    counts = [
        len(
            set(np.unique(fake_scenes.render(spec, 0, 3 * 2**24 + n)["segment"])) - {10}
        )
        for n in range(2)
    ]
    expected = {str(n): counts.count(n) for n in sorted(counts)}
    assert general["objects_per_scene"] == expected
    stored = json.loads((tmp_path / "report" / "report.json").read_text())
    assert stored == report
    assert "test_general: 2 scenes" in (tmp_path / "report" / "report.txt").read_text()
    with Image.open(tmp_path / "report" / "contact_sheet.png") as sheet:
        assert sheet.height > 4 * 2 * 96


def test_duplicates_across_splits_and_blank_views(tmp_path, capsys):
    for seed, split in enumerate(("train", "test")):
        builder_data.write_photographs(tmp_path / "photos" / split, 2, seed=seed)
    source = tmp_path / "photos" / "train" / "scene_1" / "view_2.jpg"
    shutil.copy(source, tmp_path / "photos" / "test" / "scene_0" / "view_9.jpg")
    Image.new("RGB", (40, 30), "red").save(
        tmp_path / "photos" / "test" / "scene_1" / "view_0.jpg"
    )
    options = ["import", str(tmp_path / "photos"), "--name", "mine", "--size", "16"]
    assert command_line.main([*options, "--data_dir", str(tmp_path)]) == 0
    assert command_line.main(["doctor", str(tmp_path / "mine")]) == 1
    text = capsys.readouterr().out
    assert "pictures in more than one split: 1" in text
    assert "train: scene_1 view 2 = test: scene_0 view 2" in text
    assert "test: scene_1 view 0 is blank" in text


def test_exchanged_shard_is_noticed(tmp_path):
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny", "--data_dir"]
    assert command_line.main([*options, str(tmp_path / "a")]) == 0
    assert command_line.main([*options, str(tmp_path / "b"), "--seed", "1"]) == 0
    (old,) = (tmp_path / "a").rglob("*-test.array_record*")
    (new,) = (tmp_path / "b").rglob("*-test.array_record*")
    shutil.copy(new, old)
    (problem,) = doctor.examine(tmp_path / "a")["problems"]
    assert "fingerprint differs" in problem


def test_released_file_can_be_examined_before_building(tmp_path):
    builder_data.write_released(tmp_path / "shop.h5", size=16, num_scenes=3)
    report = doctor.examine(tmp_path / "shop.h5")
    assert report["splits"]["train"]["scenes"] == 3
    assert report["splits"]["train"]["sizes"] == {"16x16": 3}
    assert report["problems"] == []


def test_sheet_shows_views_and_segments():
    scene = {
        "image": np.full((2, 8, 8, 3), (10, 200, 30), np.uint8),
        "segment": np.full((2, 8, 8), 4, np.uint8),
    }
    sheet = np.asarray(contact_sheet.draw([("a", scene, 4)]))
    colours = {tuple(colour) for colour in sheet.reshape(-1, 3).tolist()}
    assert {(10, 200, 30), (51, 51, 51)} <= colours
