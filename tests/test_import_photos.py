"""Photographs become datasets: upright, centred, with masks if there are any."""

import pathlib

import builder_data
import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from ocloc_jax import records
from tfds_builders import __main__ as command_line
from tfds_builders import photographs, pictures

RAW = tfds.decode.DeserializeMethod.RAW_BYTES


def _import(folder, data_dir, *more):
    options = ("import", folder, "--name", "mine", "--data_dir", data_dir, *more)
    return command_line.main([str(word) for word in options])


def _scenes(data_dir):
    """Returns `{split: {name: record}}`."""
    (info,) = pathlib.Path(data_dir).rglob("dataset_info.json")
    builder = tfds.builder_from_directory(info.parent)
    raws = {
        s: builder.as_data_source(s, deserialize_method=RAW)
        for s in builder.info.splits
    }
    parsed = {s: [records.parse(raw) for raw in source] for s, source in raws.items()}
    return {s: {r.name: r for r in scenes} for s, scenes in parsed.items()}


def test_views_of_any_number_and_size_are_kept_exactly(tmp_path):
    """A square PNG of the right size comes back bit by bit."""
    folders = builder_data.write_photographs(
        tmp_path / "photos", size=(16, 16), extension="png"
    )
    assert _import(tmp_path / "photos", tmp_path, "--size", 16) == 0
    found = {n: r for split in _scenes(tmp_path).values() for n, r in split.items()}
    assert sorted(found) == [folder.name for folder in folders]
    for number, folder in enumerate(folders):
        record = found[folder.name]
        assert record.num_views == 2 + number
        assert [key for key in records.KEYS if record.has(key)] == ["image"]
        views = [np.asarray(Image.open(p)) for p in sorted(folder.iterdir())]
        np.testing.assert_array_equal(records.decode_views(record, "image"), views)


def test_middle_square_is_kept_and_exif_rotation_undone(tmp_path):
    """A wide picture: red left, green middle, blue right, taken on its side."""
    wide = np.zeros((30, 90, 3), np.uint8)
    for third in range(3):
        wide[:, 30 * third : 30 * (third + 1), third] = 255
    wide[:10] //= 2  # The upper third is darker.
    Image.fromarray(wide).save(tmp_path / "plain.png")
    np.testing.assert_array_equal(
        pictures.read(tmp_path / "plain.png", 30), wide[:, 30:60]
    )
    turned = Image.fromarray(wide).transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # The viewer must turn it by 90 degrees clockwise.
    turned.save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(
        pictures.read(tmp_path / "turned.png", 30), wide[:, 30:60]
    )


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 77, (77, 77, 77)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (255, 0, 0, 255), (255, 0, 0)),
        ("CMYK", (0, 0, 0, 0), (255, 255, 255)),
        ("I;16", 0x4D00, (0x4D, 0x4D, 0x4D)),
    ],
)
def test_colour_modes(tmp_path, mode, colour, expected):
    path = tmp_path / "picture.tif"
    Image.new(mode, (5, 4), colour).save(path)
    np.testing.assert_array_equal(
        pictures.read(path, 3), np.broadcast_to(np.uint8(expected), (3, 3, 3))
    )


def test_masks_number_objects_from_one(tmp_path):
    scenes = builder_data.write_photographs(
        tmp_path / "photos", num_scenes=2, size=(8, 8), extension="png"
    )
    numbers = np.zeros((8, 8), np.uint8)
    numbers[:2], numbers[4:] = 1, 3
    for view in range(2):
        Image.fromarray(numbers).save(scenes[0] / f"view_{view}_mask.png")
    assert _import(tmp_path / "photos", tmp_path, "--size", 8) == 0
    found = _scenes(tmp_path)["train"]
    segment = records.decode_views(found["scene_0"], "segment")
    expected = np.full((2, 8, 8), 3)  # Three objects: 3 is the background.
    expected[:, :2], expected[:, 4:] = 0, 2
    np.testing.assert_array_equal(segment, expected)
    assert not found["scene_1"].has("segment")
    assert found["scene_0"].num_views == 2  # Masks are not views.


def test_partly_masked_scene_is_refused(tmp_path, capsys):
    scene = builder_data.write_photographs(tmp_path / "photos")[0]
    Image.new("L", (40, 30)).save(scene / "view_0_mask.png")
    assert _import(tmp_path / "photos", tmp_path) == 2
    assert "view_1_mask.png: missing" in capsys.readouterr().err
    (scene / "view_0_mask.png").rename(scene / "other_mask.png")
    assert _import(tmp_path / "photos", tmp_path) == 2
    assert "other_mask.png: a mask without a picture" in capsys.readouterr().err


def test_mask_in_colours_is_refused(tmp_path, capsys):
    scene = builder_data.write_photographs(tmp_path / "photos", num_scenes=1)[0]
    for view in range(2):
        Image.new("RGB", (40, 30)).save(scene / f"view_{view}_mask.png")
    assert _import(tmp_path / "photos", tmp_path) == 2
    assert "view_0_mask.png: mode RGB" in capsys.readouterr().err


def test_splits_depend_on_names_alone(tmp_path):
    for number in range(20):
        (tmp_path / "photos" / f"scene_{number}").mkdir(parents=True)
    first = photographs.assign_splits(tmp_path / "photos")
    assert {s: len(f) for s, f in first.items()} == {
        "train": 16,
        "validation": 2,
        "test": 2,
    }
    assert len({p for folders in first.values() for p in folders}) == 20
    (tmp_path / "photos").rename(tmp_path / "moved")
    second = photographs.assign_splits(tmp_path / "moved")
    for split in first:
        assert [p.name for p in first[split]] == [p.name for p in second[split]]


def test_folders_named_after_splits_decide(tmp_path):
    for seed, split in enumerate(("train", "val", "test")):
        builder_data.write_photographs(tmp_path / "photos" / split, seed + 1, seed=seed)
    assert _import(tmp_path / "photos", tmp_path, "--size", 8) == 0
    counts = {split: len(scenes) for split, scenes in _scenes(tmp_path).items()}
    assert counts == {"train": 1, "validation": 2, "test": 3}


def test_nothing_is_overwritten(tmp_path, capsys):
    builder_data.write_photographs(tmp_path / "photos")
    assert _import(tmp_path / "photos", tmp_path, "--size", 8) == 0
    before = {p: p.read_bytes() for p in (tmp_path / "mine").rglob("*") if p.is_file()}
    assert _import(tmp_path / "photos", tmp_path, "--size", 9) == 2
    assert "exists already" in capsys.readouterr().err
    after = {p: p.read_bytes() for p in (tmp_path / "mine").rglob("*") if p.is_file()}
    assert before == after


def test_same_photographs_same_bytes(tmp_path):
    builder_data.write_photographs(tmp_path / "photos")
    shards = []
    for name in "ab":
        assert _import(tmp_path / "photos", tmp_path / name, "--size", 8) == 0
        paths = (tmp_path / name).rglob("*.array_record-*")
        shards.append({path.name: path.read_bytes() for path in paths})
    assert shards[0] == shards[1] and shards[0]


def test_bad_name(tmp_path, capsys):
    builder_data.write_photographs(tmp_path / "photos")
    options = ["import", str(tmp_path / "photos"), "--name", "My Table"]
    assert command_line.main([*options, "--data_dir", str(tmp_path)]) == 2
    assert "name: 'My Table'" in capsys.readouterr().err
