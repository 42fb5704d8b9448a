"""Builders: released files and rendered scenes come back exactly as they went in."""

import dataclasses
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import builder_data
import fake_scenes
import numpy as np
import pytest
import tensorflow_datasets as tfds

import ocloc_jax
from ocloc_jax import records
from tfds_builders import __main__ as command_line
from tfds_builders import commands, configs, download

SPLIT_OF = {
    "train": "train",
    "valid": "validation",
    "test": "test",
    "general": "test_general",
}
RAW = tfds.decode.DeserializeMethod.RAW_BYTES
ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def ray_tracer(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocloc_jax.scenes", fake_scenes)
    monkeypatch.setattr(ocloc_jax, "scenes", fake_scenes, raising=False)


def _build(*arguments):
    assert command_line.main(["build", *map(str, arguments)]) == 0


def _open(path):
    (info,) = pathlib.Path(path).rglob("dataset_info.json")
    return tfds.builder_from_directory(info.parent)


def _raw(builder):
    return {s: list(builder.as_data_source(s, deserialize_method=RAW)) for s in SPLITS}


SPLITS = tuple(SPLIT_OF.values())


@pytest.mark.parametrize("name", commands.NAMES)
def test_released_layout_builds_under_every_name(name, tmp_path):
    path = tmp_path / f"{name.removeprefix('multiview_')}.h5"
    contents = builder_data.write_released(path, size=128, num_scenes=1, num_views=2)
    _build(name, "--data_dir", tmp_path / "data", "--manual_dir", tmp_path)
    builder = _open(tmp_path / "data" / name)
    for group, split in SPLIT_OF.items():
        (scene,) = builder.as_data_source(split)
        for key, value in contents[group].items():
            value = value[0, ..., 0] if key == "masks" else value[0]
            np.testing.assert_array_equal(np.stack(scene[key]), value)
        assert list(scene["order"]) == list(scene["camera"]) == []
    assert builder.info.metadata["max_objects"]["test_general"] == 10


def test_spelling_of_groups_and_missing_keys_are_tolerated(tmp_path):
    names = {"train": "Training", "valid": "val", "test": "test_1", "general": "test_2"}
    builder_data.write_released(
        tmp_path / "gso.h5", names=names, drop=("overlap", "masks")
    )
    options = ("--size", 32, "--data_dir", tmp_path, "--manual_dir", tmp_path)
    _build("multiview_gso", *options)
    builder = _open(tmp_path / "multiview_gso")
    assert builder.info.config_name == "released_size32"
    assert builder.info.metadata["keys"]["test"] == ["image", "segment"]


def test_rendered_scenes_come_back(tmp_path):
    _build("multiview_clevr", "--config", "raytraced_tiny", "--data_dir", tmp_path)
    builder = _open(tmp_path)
    counts = {str(s): info.num_examples for s, info in builder.info.splits.items()}
    assert counts == {"train": 8, "validation": 2, "test": 2, "test_general": 2}
    spec = fake_scenes.SceneSpec(32, 4, 7, 10)
    expected = fake_scenes.render(spec, seed=0, index=3 * 2**24 + 1)
    scene = builder.as_data_source("test_general")[1]
    for key, value in expected.items():
        np.testing.assert_array_equal(np.stack(scene[key]), value)


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path):
    options = ("multiview_clevr", "--config", "raytraced_tiny", "--data_dir")
    _build(*options, tmp_path / "a")
    _build(*options, tmp_path / "b")
    _build(*options, tmp_path / "c", "--seed", 1)
    files = [
        {p.name: p.read_bytes() for p in (tmp_path / d).rglob("*.array_record-*")}
        for d in "abc"
    ]
    assert len(files[0]) == 4
    assert files[0] == files[1]
    assert not set(files[0].values()) & set(files[2].values())


def test_no_scene_is_in_two_splits_and_splits_do_not_depend_on_each_other(tmp_path):
    options = ("multiview_clevr", "--config", "raytraced_tiny", "--num_objects", "1-2")
    _build(*options, "--data_dir", tmp_path / "a")
    few = "train=3,validation=2,test=2,test_general=2"
    _build(*options, "--data_dir", tmp_path / "b", "--num_scenes", few)
    many, less = (_raw(_open(tmp_path / name)) for name in "ab")
    assert less["train"] == many["train"][:3]
    assert less["test"] == many["test"]
    assert len({raw for raws in many.values() for raw in raws}) == 14


def test_workers_do_not_change_the_data(tmp_path):
    """Two processes, several shards; the command line runs by itself."""
    counts = "train=90,validation=0,test=1,test_general=1"
    scale = ("--config", "raytraced_tiny", "--size", 64, "--num_scenes", counts)
    for workers in (1, 2):
        where = ("--workers", workers, "--data_dir", tmp_path / str(workers))
        _run("build", "multiview_clevr", *scale, *where)
    one, two = (_open(tmp_path / str(n)) for n in (1, 2))
    assert len(one.info.splits["train"].shard_lengths) == 2
    assert one.info.metadata["fingerprint"] == two.info.metadata["fingerprint"]


def _run(*arguments, **kwargs):
    script = str(ROOT / "tests" / "fake_scenes.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, **kwargs)


def test_tensorflow_is_never_imported(tmp_path):
    script = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
import fake_scenes
fake_scenes.install()
from tfds_builders.__main__ import main
assert main(["build", "multiview_clevr", "--config", "raytraced_tiny",
             "--data_dir", {str(tmp_path)!r}]) == 0
assert main(["doctor", {str(tmp_path)!r}]) == 0
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory(
    {str(tmp_path / "multiview_clevr" / "raytraced_tiny" / "1.0.0")!r})
assert len(builder.as_data_source("train")[0]["image"]) == 4
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_feature_is_documented():
    from tfds_builders.multiview_clevr import multiview_clevr_dataset_builder as module

    info = module.Builder(config="raytraced_tiny").info
    for key in records.KEYS:
        assert info.features[key].doc.desc
    assert "yuan2024unsupervised" in info.citation
    assert "viewpoints" in info.description


@pytest.mark.parametrize("name", commands.NAMES)
def test_paper_scale_and_valid_tags(name):
    module = __import__(
        f"tfds_builders.{name}.{name}_dataset_builder", fromlist=["Builder"]
    )
    config = module.Builder.BUILDER_CONFIGS[0]
    assert config.name == "released"
    assert tuple(config.num_scenes.values()) == (5000, 100, 100, 100)
    tags = module.Builder.get_metadata().tags
    assert tags and set(tags) <= set(tfds.core.dataset_metadata.valid_tags())


def test_names_of_custom_configs_tell_their_values():
    config = configs.raytraced()[1]
    changed = configs.customise(
        config, num_views=8, num_scenes={"train": 20}, scene={"background": "sky"}
    )
    assert changed.name == "raytraced_64_views8_train20_backgroundsky"
    assert (changed.size, changed.num_views) == (64, 8)
    assert changed.num_scenes == {**configs.NUM_SCENES, "train": 20}
    assert configs.customise(config, size=64, seed=None) is config


@dataclasses.dataclass
class _Manager:
    """The part of the TFDS download manager that is used."""

    download_dir: pathlib.Path

    @property
    def manual_dir(self):
        raise AssertionError("does not exist")


class _Handler(http.server.BaseHTTPRequestHandler):
    content = bytes(range(256)) * 20
    asked: list[str] = []

    def do_GET(self):  # noqa: N802, the name is that of the library
        self.asked.append(self.headers["Range"])
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start:])

    def log_message(self, *arguments):
        """Keeps quiet."""


def test_download_goes_on_where_it_stopped(tmp_path):
    server = http.server.HTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "clevr.h5.part").write_bytes(_Handler.content[:1000])
    home = f"http://127.0.0.1:{server.server_port}/data"
    path = download.find_or_fetch(_Manager(tmp_path), home, "clevr.h5")
    assert path.read_bytes() == _Handler.content
    assert _Handler.asked == ["bytes=1000-"]
    assert download.find_or_fetch(_Manager(tmp_path), home, "clevr.h5") == path
    assert len(_Handler.asked) == 1
    server.shutdown()
    server.server_close()


def test_metadata_file_is_plain_json(tmp_path):
    _build("multiview_clevr", "--config", "raytraced_tiny", "--data_dir", tmp_path)
    (path,) = tmp_path.rglob("1.0.0/metadata.json")
    metadata = json.loads(path.read_text())
    assert metadata["layout"] == records.LAYOUT
    assert metadata["size"] == [32, 32]
    assert metadata["num_views"]["train"] == [4, 4]
