"""Where scenes come from: arrays, records, unpacked files, built datasets."""

import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from ocloc_jax import data, records
from ocloc_jax import scenes as ray_tracer

NUM_SCENES, NUM_VIEWS, SIZE = 11, 10, 8


@pytest.fixture(scope="module")
def arrays() -> dict:
    rng = np.random.default_rng(0)
    shape = (NUM_SCENES, NUM_VIEWS, SIZE, SIZE)
    return {
        "image": rng.integers(0, 256, (*shape, 3), np.uint8),
        "segment": rng.integers(0, 4, shape, np.uint8),
        "camera": rng.random((NUM_SCENES, NUM_VIEWS, 3)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def scenes(arrays: dict) -> data.ArrayScenes:
    return data.ArrayScenes(arrays)


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_array_equal(left[key], right[key], err_msg=key)


class CountingDecoder:
    """Stands in for a codec and records what it was asked to decode."""

    def __init__(self):
        self.calls = []

    def __call__(self, example, views, keys):
        self.calls += [(key, view) for key in keys for view in views]
        return {key: example[key][list(views)] for key in keys}


def encoded(arrays: dict, decode) -> data.RecordScenes:
    source = [{k: a[i] for k, a in arrays.items()} for i in range(NUM_SCENES)]
    return data.RecordScenes(source, tuple(arrays), NUM_VIEWS, decode)


def test_only_chosen_views_of_asked_keys_are_decoded(arrays, scenes):
    decode = CountingDecoder()
    train = data.TrainPipeline(encoded(arrays, decode), batch_size=4, seed=5)
    batch = train.host_batch(9)
    expected = [("image", view) for row in batch["views"] for view in row.tolist()]
    assert decode.calls == expected
    same = data.TrainPipeline(scenes, batch_size=4, seed=5)
    assert_equal(batch, same.host_batch(9))


def test_list_of_scenes_equals_stacked_arrays(arrays, scenes):
    listed = [{k: a[i] for k, a in arrays.items()} for i in range(NUM_SCENES)]
    left, right = (
        data.TrainPipeline(source, batch_size=4, keys=tuple(arrays))
        for source in (data.ArrayScenes(listed), scenes)
    )
    assert_equal(left.host_batch(3), right.host_batch(3))


SPEC = ray_tracer.SceneSpec(size=8, num_views=3, min_objects=1, max_objects=2)


def test_rendered_scenes_equal_a_render_of_all_at_once():
    rendered = data.RenderedScenes(SPEC, seed=7, num_scenes=5)
    whole = data.ArrayScenes(ray_tracer.render_batch(SPEC, 7, range(5)))
    assert isinstance(rendered, data.Scenes)
    assert set(rendered.keys) == set(whole.keys)
    left, right = (
        data.TrainPipeline(source, batch_size=4, keys=source.keys, max_views=3)
        for source in (rendered, whole)
    )
    for step in (0, 3):
        assert_equal(left.host_batch(step), right.host_batch(step))
    with pytest.raises(IndexError):
        rendered[5]
    with pytest.raises(ValueError, match="num_scenes is 0"):
        data.RenderedScenes(SPEC, seed=7, num_scenes=0)


def test_scenes_are_rendered_once_and_when_they_are_needed(monkeypatch):
    asked = []

    def render(spec, seed, index):
        asked.append(index)
        return render_one(spec, seed, index)

    render_one = ray_tracer.render
    monkeypatch.setattr(ray_tracer, "render", render)
    rendered = data.RenderedScenes(SPEC, seed=7, num_scenes=5)
    for view in (0, 2, 0):
        rendered.decode(rendered[3], [view], ("image",))
    assert asked == [3]
    rendered.decode(rendered[3], [1], ("camera",))  # was not kept
    rendered.decode(rendered[3], [1], ("camera", "image"))
    assert asked == [3, 3]


def test_unpacked_scenes_equal_the_packed(arrays, scenes, tmp_path):
    packed = encoded(arrays, CountingDecoder())
    unpacked = data.unpack(packed, tmp_path / "train", keys=("image", "camera"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train"]
    again = data.unpack(packed, tmp_path / "train", keys=("image",))
    expected = data.TrainPipeline(scenes, batch_size=4).host_batch(3)
    for source in (unpacked, again):
        found = data.TrainPipeline(source, batch_size=4).host_batch(3)
        assert_equal(found, expected)
    with pytest.raises(FileNotFoundError, match="segment"):
        data.unpack(packed, tmp_path / "train", keys=("segment",))
    other = data.ArrayScenes({"image": 255 - arrays["image"]})
    with pytest.raises(ValueError, match="unpacked from another dataset"):
        data.unpack(other, tmp_path / "train")


def test_interrupted_unpacking_leaves_nothing(arrays, tmp_path):
    def decode(example, views, keys):
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        data.unpack(encoded(arrays, decode), tmp_path / "train")
    assert not list(tmp_path.iterdir())


def test_errors_of_a_reader_reach_the_caller(arrays):
    def decode(example, views, keys):
        raise OSError("scene 3 is unreadable")

    train = data.TrainPipeline(encoded(arrays, decode), batch_size=2)
    with pytest.raises(OSError, match="scene 3 is unreadable"):
        next(train.batches())


def build(directory: pathlib.Path, scenes: list[dict]) -> None:
    """Writes scenes as the builders do."""
    import tensorflow_datasets as tfds

    directory.mkdir(parents=True)
    identity = tfds.core.dataset_info.DatasetIdentity(
        name="toy", version="1.0.0", data_dir=str(directory), module_name=""
    )
    counts = [len(scene["image"]) for scene in scenes]
    metadata = tfds.core.MetadataDict(
        layout=records.LAYOUT,
        num_views={"train": [min(counts), max(counts)]},
        keys={"train": list(scenes[0])},
    )
    info = tfds.core.DatasetInfo(
        builder=identity, features=records.features(SIZE, SIZE), metadata=metadata
    )
    writer = tfds.core.SequentialWriter(info, 4, file_format="array_record")
    writer.initialize_splits(["train"])
    writer.add_examples({"train": [records.encode_scene(s) for s in scenes]})
    writer.close_all()


@pytest.fixture(scope="module")
def data_dir(arrays, tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("built")
    listed = [{k: a[i] for k, a in arrays.items()} for i in range(NUM_SCENES)]
    build(root / "toy" / "small" / "1.0.0", listed)
    build(root / "photos" / "1.0.0", make_ragged())
    return root


def make_ragged() -> list[dict]:
    return [
        {"image": np.full((n, SIZE, SIZE, 3), n, np.uint8)} for n in (4, 2, 3, 2, 6)
    ]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_built_dataset_equals_arrays(data_dir, scenes, num_workers):
    opened = data.open_dataset("toy/small", "train", data_dir)
    assert set(opened.keys) == set(scenes.keys)
    assert opened.metadata["dataset"].startswith("toy/")
    keys = ("image", "segment", "camera")
    options = dict(batch_size=4, keys=keys, view_window=1.0, window_by="azimuth")
    train = data.TrainPipeline(opened, **options)
    expected = data.TrainPipeline(scenes, **options)
    with train.batches(2, 6, num_workers=num_workers) as batches:
        for step, batch in enumerate(batches, 2):
            assert_equal(batch, expected.host_batch(step))


def test_dataset_with_different_numbers_of_views(data_dir):
    opened = data.open_dataset(data_dir / "photos", "train")
    assert opened.view_counts.tolist() == [4, 2, 3, 2, 6]
    single = data.TrainPipeline(opened, batch_size=17, stage="single")
    np.testing.assert_array_equal(
        np.bincount(single.host_batch(0)["index"]), [4, 2, 3, 2, 6]
    )
    multi = data.TrainPipeline(opened, batch_size=5, max_views=2)
    assert {multi.host_batch(step)["image"].shape[1] for step in range(9)} == {1, 2}
    with pytest.raises(ValueError, match="max_views is 8, but scene 1 has 2 views"):
        data.TrainPipeline(opened, batch_size=4)


def test_unbuilt_datasets_and_unknown_splits(data_dir, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        data.open_dataset("multiview_clevr/raytraced_64", "train", tmp_path)
    assert (
        "python -m tfds_builders build multiview_clevr --config raytraced_64"
        f" --data_dir {tmp_path}"
    ) in str(error.value)
    with pytest.raises(ValueError, match=r"No split 'valid' in .* has \['train'\]"):
        data.open_dataset("toy", "valid", data_dir)
    unfinished = tmp_path / "toy" / "small" / "1.0.0.incomplete7"
    unfinished.mkdir(parents=True)
    (unfinished / "dataset_info.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="No finished dataset"):
        data.open_dataset("toy", "train", tmp_path)


@pytest.mark.parametrize("name", ["toy", "toy/small", "toy/small/1.0.0"])
def test_dataset_is_found_from_anywhere(data_dir, monkeypatch, name):
    assert len(data.open_dataset(data_dir / name, "train")) == NUM_SCENES
    monkeypatch.chdir(data_dir)
    assert len(data.open_dataset(name, "train")) == NUM_SCENES
    assert len(data.open_dataset(name, "train", data_dir)) == NUM_SCENES


def test_several_configs_must_be_told_apart(tmp_path):
    for config in ("a", "b"):
        (tmp_path / "toy" / config / "1.0.0").mkdir(parents=True)
        (tmp_path / "toy" / config / "1.0.0" / "dataset_info.json").write_text("{}")
    with pytest.raises(ValueError, match="could mean any of"):
        data.open_dataset("toy", "train", tmp_path)


def test_no_tensorflow_and_a_clean_exit(data_dir):
    """In a program that never parses absl flags and never closes its iterator."""
    program = f"""
        import sys
        from ocloc_jax import data
        if __name__ == "__main__":
            scenes = data.open_dataset("toy", "train", {str(data_dir)!r})
            train = data.TrainPipeline(scenes, batch_size=4)
            threads, processes = train.batches(), train.batches(num_workers=1)
            assert (next(threads)["views"] == next(processes)["views"]).all()
            assert "tensorflow" not in sys.modules
    """
    script = data_dir / "program.py"
    script.write_text(textwrap.dedent(program))
    result = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(pathlib.Path.cwd()), "JAX_PLATFORMS": "cpu"},
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr and "Exception" not in result.stderr
