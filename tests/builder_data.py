"""Small made-up inputs for the tests of the builders."""

import pathlib

import fake_scenes
import h5py
import numpy as np
from PIL import Image

GROUPS = {"train": 6, "valid": 6, "test": 6, "general": 10}


def released_scenes(group, size=32, num_scenes=2, num_views=3):
    """Returns arrays `[scene, view, ...]` of one group of a released file."""
    most = GROUPS[group]
    least = 3 if most == 6 else 7
    spec = fake_scenes.SceneSpec(size, num_views, least, most)
    seed = list(GROUPS).index(group)
    scenes = [fake_scenes.render(spec, seed, index) for index in range(num_scenes)]
    keys = ("image", "segment", "overlap", "masks")
    arrays = {key: np.stack([scene[key] for scene in scenes]) for key in keys}
    arrays["masks"] = arrays["masks"][..., None]
    return arrays


def write_released(path, size=32, num_scenes=2, num_views=3, names=None, drop=()):
    """Writes a file with the layout of the released ones; returns what is in it.

    Args:
      path: The file.
      size: Height and width.
      num_scenes: In each group.
      num_views: Of each scene.
      names: Other spellings of some groups.
      drop: Keys to leave out.
    """
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    contents = {}
    with h5py.File(path, "w") as file:
        for group in GROUPS:
            arrays = released_scenes(group, size, num_scenes, num_views)
            contents[group] = {k: v for k, v in arrays.items() if k not in drop}
            for key, value in contents[group].items():
                file[f"{(names or {}).get(group, group)}/{key}"] = value
    return contents


def write_photographs(folder, num_scenes=4, size=(40, 30), extension="jpg", seed=0):
    """Writes scenes of 2, 3, 4, ... views; returns the folders of the scenes."""
    rng = np.random.default_rng(seed)
    folders = [pathlib.Path(folder) / f"scene_{n}" for n in range(num_scenes)]
    for number, scene in enumerate(folders):
        scene.mkdir(parents=True)
        for view in range(2 + number):
            pixels = rng.integers(0, 256, (*size[::-1], 3), np.uint8)
            Image.fromarray(pixels).save(scene / f"view_{view}.{extension}")
    return folders
