"""The builders with the real ray tracer, as small as it goes."""

import pathlib

import numpy as np
import tensorflow_datasets as tfds

from ocloc_jax import scenes
from tfds_builders import __main__ as command_line


def test_stored_scene_is_the_rendered_one(tmp_path):
    counts = "train=2,validation=0,test=0,test_general=0"
    scale = ["--size", "16", "--num_views", "2", "--num_scenes", counts, "--seed", "5"]
    options = ["build", "multiview_clevr", "--config", "raytraced_tiny", *scale]
    assert command_line.main([*options, "--data_dir", str(tmp_path)]) == 0
    (info,) = pathlib.Path(tmp_path).rglob("dataset_info.json")
    source = tfds.builder_from_directory(info.parent).as_data_source("train")
    assert len(source) == 2
    spec = scenes.SceneSpec(size=16, num_views=2, min_objects=3, max_objects=6)
    for key, value in scenes.render(spec, seed=5, index=1).items():
        np.testing.assert_array_equal(np.stack(source[1][key]), value)
