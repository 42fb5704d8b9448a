"""With TensorFlow or Apache Beam installed, they give the same data."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import builder_data
import fake_scenes
import pytest
import tensorflow_datasets as tfds

import ocloc_jax
from tfds_builders import __main__ as command_line
from tfds_builders import base, raytraced

ROOT = pathlib.Path(__file__).parents[1]
NEEDS_BEAM = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="needs ocloc-jax[beam]"
)
NEEDS_TENSORFLOW = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs ocloc-jax[tfds]"
)


@pytest.fixture(autouse=True)
def ray_tracer(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocloc_jax.scenes", fake_scenes)
    monkeypatch.setattr(ocloc_jax, "scenes", fake_scenes, raising=False)


def _fingerprint(data_dir):
    (info,) = pathlib.Path(data_dir).rglob("dataset_info.json")
    builder = tfds.builder_from_directory(info.parent)
    assert builder.info.file_format.value == "array_record"
    return builder.info.metadata["fingerprint"]


@NEEDS_BEAM
def test_beam_gives_the_same_data(tmp_path):
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny", "--data_dir"]
    assert command_line.main([*options, str(tmp_path / "a")]) == 0
    beam = ["--beam", "runner=DirectRunner,direct_num_workers=1"]
    assert command_line.main([*options, str(tmp_path / "b"), *beam]) == 0
    assert _fingerprint(tmp_path / "a") == _fingerprint(tmp_path / "b")


@NEEDS_TENSORFLOW
def test_tfds_build_gives_the_same_data(tmp_path):
    builder_data.write_released(
        tmp_path / "gso.h5", size=128, num_scenes=2, num_views=2
    )
    where = ["--manual_dir", str(tmp_path), "--data_dir"]
    assert (
        command_line.main(["build", "multiview_gso", *where, str(tmp_path / "a")]) == 0
    )
    tool = shutil.which("tfds", path=pathlib.Path(sys.executable).parent)
    folder = ROOT / "tfds_builders" / "multiview_gso"
    subprocess.run(
        [tool, "build", "--config", "released", *where, str(tmp_path / "b")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert _fingerprint(tmp_path / "a") == _fingerprint(tmp_path / "b")


def test_beam_transform_covers_every_scene(monkeypatch):
    """What Beam is given, without Beam."""

    class Step:
        def __init__(self, call):
            self.call = call

        def __or__(self, other):
            return Step(lambda: other.call(self.call()))

    class Beam:
        Create = staticmethod(lambda values: Step(lambda: list(values)))
        Reshuffle = staticmethod(lambda: Step(lambda values: values[::-1]))
        Map = staticmethod(lambda make: Step(lambda values: list(map(make, values))))

    monkeypatch.setitem(sys.modules, "apache_beam", Beam)
    (source,) = raytraced.make_splits(
        {"test": 3}, {"test": (1, 2)}, seed=0, size=8, num_views=2
    ).values()
    made = base.MultiviewBuilder._generate_examples(None, source).call()
    assert [index for index, _ in made] == [2, 1, 0]
    assert [len(example["image"]) for _, example in made] == [2, 2, 2]


@pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is not None, reason="Beam is installed"
)
def test_beam_that_is_absent_is_named(tmp_path, capsys):
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny"]
    options += ["--data_dir", str(tmp_path), "--beam", "runner=DirectRunner"]
    assert command_line.main(options) == 2
    assert "install ocloc-jax[beam]" in capsys.readouterr().err
