"""Ten kinds of broken input, and some more, each with a one-line cause."""

import pathlib
import shutil
import sys

import builder_data
import fake_scenes
import h5py
import numpy as np
import pytest
from PIL import Image

import ocloc_jax
from tfds_builders import __main__ as command_line
from tfds_builders import raytraced, shards


@pytest.fixture(autouse=True)
def ray_tracer(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocloc_jax.scenes", fake_scenes)
    monkeypatch.setattr(ocloc_jax, "scenes", fake_scenes, raising=False)


@pytest.fixture
def fails(capsys):
    """Runs the command line, expects status 2 and one line; returns the line."""

    def run(*arguments):
        assert command_line.main([str(word) for word in arguments]) == 2
        lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1 and lines[-1] == errors[0]
        return errors[0]

    return run


@pytest.fixture
def released(tmp_path, fails):
    """Writes a good file, lets `damage` change it, returns the cause."""

    def run(damage=None, **kwargs):
        path = tmp_path / "gso.h5"
        builder_data.write_released(path, **kwargs)
        if damage:
            with h5py.File(path, "r+") as file:
                damage(file)
        line = _build(fails, tmp_path)
        assert str(path) in line
        assert not list(tmp_path.rglob("dataset_info.json"))
        return line

    return run


def _build(fails, folder, *more):
    where = ("--data_dir", folder / "data", "--manual_dir", folder)
    return fails("build", "multiview_gso", "--size", 32, *where, *more)


def _replace(key, change):
    """Returns a damage that rewrites one dataset."""

    def damage(file):
        value = change(file[key][()])
        del file[key]
        file[key] = value

    return damage


def test_1_missing_group(released):
    line = released(lambda file: file.move("valid", "elsewhere"))
    assert "no group for split 'validation'" in line
    assert "['elsewhere', 'general', 'test', 'train']" in line and "'valid'" in line


def test_1_missing_key(released):
    line = released(lambda file: file["test"].pop("segment"))
    assert "test: no dataset 'segment'" in line
    assert "['image', 'masks', 'overlap']" in line


@pytest.mark.parametrize("key", ["image", "segment", "overlap", "masks"])
def test_2_wrong_dtype(released, key):
    line = released(_replace(f"train/{key}", lambda value: value.astype(np.float32)))
    assert f"train: {key}: dtype float32, expected uint8" in line


def test_3_ragged_views(released):
    line = released(_replace("test/segment", lambda value: value[:, :-1]))
    assert "test: segment: 2 scenes of 2 views, but image has 2 of 3" in line


def test_3_ragged_arrays(released):
    def damage(file):
        del file["train/image"]
        file["train"].create_dataset("image", (2,), h5py.vlen_dtype(np.uint8))

    assert "ragged arrays are not supported" in released(damage)


def test_4_segment_out_of_range(released):
    def change(value):
        value[1, 2, 5, 5] = 9
        return value

    line = released(_replace("valid/segment", change))
    assert "valid: scene 1: segment of view 2 has the value 9" in line
    assert "at most 6 objects" in line


def test_4_background_index(released):
    line = released(_replace("general/segment", lambda value: np.minimum(value, 7)))
    assert "general: scene 0: segment never has the background index 10" in line


def test_4_background_mask(released):
    line = released(_replace("test/masks", lambda value: value[:, :, ::-1]))
    assert "test: scene 0: the last mask (index 6) is not 255 everywhere" in line


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_5_truncated_file(tmp_path, fails, kept):
    path = tmp_path / "gso.h5"
    builder_data.write_released(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    line = _build(fails, tmp_path)
    assert f"{path}: cannot be read as HDF5" in line and "fetch it again" in line


def test_6_too_many_objects(released):
    def change(value):
        return np.concatenate([value, value[:, :, :2]], axis=2)

    line = released(_replace("train/masks", change))
    assert "train: masks: 8 objects and the background" in line
    assert "at most 6 objects; pass --num_objects" in line


def test_6_too_many_objects_to_render(tmp_path, fails):
    options = ("--config", "raytraced_tiny", "--num_objects", "3-300")
    line = fails("build", "multiview_clevr", *options, "--data_dir", tmp_path)
    assert "objects: 3 to 300" in line and "254" in line


def test_7_empty_folder(tmp_path, fails):
    (tmp_path / "photos").mkdir()
    options = ("--name", "mine", "--data_dir", tmp_path / "data")
    line = fails("import", tmp_path / "photos", *options)
    assert f"{tmp_path / 'photos'}: no folders inside" in line
    (tmp_path / "photos" / "scene").mkdir()
    line = fails("import", tmp_path / "photos", *options)
    assert f"{tmp_path / 'photos' / 'scene'}: no pictures inside" in line


def test_8_unreadable_image(tmp_path, fails):
    scene = builder_data.write_photographs(tmp_path / "photos")[1]
    data = (scene / "view_1.jpg").read_bytes()
    (scene / "view_1.jpg").write_bytes(data[: len(data) // 2])
    options = ("--name", "mine", "--data_dir", tmp_path / "data")
    line = fails("import", tmp_path / "photos", *options)
    assert f"{scene / 'view_1.jpg'}: cannot be read as a picture" in line
    assert not list(tmp_path.rglob("dataset_info.json"))


def test_9_wrong_size(released):
    line = released(size=16)
    assert "train: image: views of 16x16, expected 32x32" in line and "--size" in line


def test_9_mask_of_another_size(tmp_path, fails):
    scene = builder_data.write_photographs(tmp_path / "photos", num_scenes=1)[0]
    for view in range(2):
        mask = Image.fromarray(np.ones((30 - view, 40), np.uint8))
        mask.save(scene / f"view_{view}_mask.png")
    line = fails("import", tmp_path / "photos", "--name", "a", "--data_dir", tmp_path)
    assert "view_1_mask.png: 40x29 pixels, but view_1.jpg has 40x30" in line


def test_10_target_that_cannot_be_written(tmp_path, fails):
    (tmp_path / "file").write_text("not a folder")
    options = ("build", "multiview_clevr", "--config", "raytraced_tiny", "--data_dir")
    for target in (tmp_path / "file" / "data", pathlib.Path("/proc/nowhere")):
        line = fails(*options, target)
        assert f"{target}: cannot be written" in line and "--data_dir" in line


def test_10_disk_full_in_the_middle(tmp_path, fails, monkeypatch):
    """The third example does not fit; what was written before is kept."""
    written, append = [], shards._append

    def full(file, example):
        written.append(example)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        append(file, example)

    monkeypatch.setattr(shards, "_append", full)
    options = ("build", "multiview_clevr", "--config", "raytraced_tiny", "--data_dir")
    line = fails(*options, tmp_path)
    assert "cannot be written (No space left on device)" in line and "go on" in line
    assert not list(tmp_path.rglob("dataset_info.json"))
    monkeypatch.setattr(shards, "_append", append)
    assert command_line.main([*options, str(tmp_path)]) == 0


def test_released_file_is_nowhere(tmp_path, fails, monkeypatch):
    monkeypatch.setattr(
        "tfds_builders.base.HOME", "http://127.0.0.1:9/nothing-listens-here"
    )
    line = _build(fails, tmp_path)
    assert "gso.h5: not in the manual directory" in line
    assert "/resolve/main/gso.h5 cannot be fetched" in line and "--manual_dir" in line


def test_unknown_config(tmp_path, fails):
    line = fails("build", "multiview_gso", "--config", "raytraced_64")
    assert "no config 'raytraced_64'; it has ['released', 'blender_128'" in line


def test_released_scenes_cannot_be_rescaled(tmp_path, fails):
    line = fails("build", "multiview_gso", "--num_views", 3, "--data_dir", tmp_path)
    assert "config 'released' reads a file: ['num_views']" in line


def test_unknown_scene_field(tmp_path, fails):
    options = ("--config", "raytraced_tiny", "--scene", "fog=1", "--data_dir", tmp_path)
    line = fails("build", "multiview_clevr", *options)
    assert "'fog'" in line and "'background'" in line


def test_dead_worker_is_explained(tmp_path, monkeypatch):
    from tfds_builders import parallel

    splits = raytraced.make_splits(
        {"train": 2}, {"train": (1, 2)}, seed=0, size=8, num_views=1
    )
    source = _Killer(splits["train"])
    plan = {
        "train": [
            shards.Shard(str(tmp_path / str(n)), source, n, n + 1, (8, 8))
            for n in range(2)
        ]
    }
    with pytest.raises(ValueError, match="a worker process died.*build again"):
        parallel.make_shards(plan, workers=2)


class _Killer:
    """A source whose worker dies as if the kernel had run out of memory."""

    num_views = 1

    def __init__(self, split):
        self.num_scenes = split.num_scenes

    def scene(self, index):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)


def test_doctor_names_the_damaged_file(tmp_path, fails):
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny"]
    assert command_line.main([*options, "--data_dir", str(tmp_path)]) == 0
    (path,) = tmp_path.rglob("*train.array_record*")
    path.write_bytes(path.read_bytes()[:100])
    assert f"{path}: cannot be read" in fails("doctor", tmp_path)
    shutil.rmtree(path.parent)
    assert "no dataset here" in fails("doctor", tmp_path)
