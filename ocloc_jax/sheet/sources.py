"""Where the command gets its scenes: a run, a built dataset, pictures, or rays."""

import dataclasses
import json
import pathlib
from argparse import Namespace

import ml_collections

from ocloc_jax import data, experiment
from ocloc_jax.models.sizes import ModelSizes, check_image_size
from ocloc_jax.sheet.viewpoints import Images

DEFAULT_SLOTS = 7


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Scenes to show.

    Attributes:
      images: Photographs of each scene.
      names: Of the scenes.
      origin: In words.
      num_slots: What suits them, if nobody asks for another number.
    """

    images: list[Images]
    names: list[str]
    origin: str
    num_slots: int = DEFAULT_SLOTS


def load(args: Namespace, sizes: ModelSizes) -> Chosen:
    """Scenes that the command line asks for; see `__main__`."""
    if args.images:
        check_image_size(sizes, args.size, args.size)
        return _pictures(pathlib.Path(args.images), args)
    config = run_config(args.weights)
    slots = config.objective.num_slots if config else DEFAULT_SLOTS
    if args.data:
        scenes = data.open_dataset(args.data, args.split, args.data_dir)
        return _choose(scenes, args, f"{args.data}, {args.split}", slots)
    origin = "those of the run" if config else "ray-traced for this sheet"
    if config is None:
        check_image_size(sizes, args.size, args.size)
        config = _ray_traced(args)
    if "num_scenes" in config.data:  # ray-traced: no more of them than are needed
        config.data.num_scenes[args.split] = max(args.scenes) + 1
    if args.data_dir:
        config.data.data_dir = args.data_dir
    scenes = experiment.load_scenes(config, args.split)
    return _choose(scenes, args, f"{origin}, {args.split}", slots)


def run_config(weights: str | pathlib.Path) -> ml_collections.ConfigDict | None:
    """The config of the run that weights come from, if it lies above them."""
    for folder in list(pathlib.Path(weights).resolve().parents)[:2]:
        path = folder / "config.json"
        if path.exists():
            values = json.loads(path.read_text())
            if {"data", "objective"} <= values.keys():
                return ml_collections.ConfigDict(values)
    return None


def _ray_traced(args: Namespace) -> ml_collections.ConfigDict:
    scenes = dict(size=args.size, num_views=args.views)
    return ml_collections.ConfigDict(
        dict(data=dict(scenes=scenes, num_scenes={args.split: 0}, seed=0))
    )


def _choose(scenes: data.Scenes, args: Namespace, origin: str, slots: int) -> Chosen:
    images = []
    for i in args.scenes:
        if not 0 <= i < len(scenes):
            raise ValueError(
                f"No scene {i} in {origin}; choose 0 to {len(scenes) - 1}."
            )
        views = range(min(args.views, int(scenes.view_counts[i])))
        images.append(scenes.decode(scenes[i], views, ("image",))["image"])
    return Chosen(images, [f"Scene {i}" for i in args.scenes], origin, slots)


def _pictures(folder: pathlib.Path, args: Namespace) -> Chosen:
    """A folder of pictures is one scene, a folder of such folders several."""
    import numpy as np

    from tfds_builders import photographs, pictures

    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder.")
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    chosen = inside[: len(args.scenes)] or [folder]
    images = []
    for one in chosen:
        paths = photographs.list_views(one)[: args.views]
        images.append(np.stack([pictures.read(path, args.size) for path in paths]))
    names = [one.resolve().name for one in chosen]
    return Chosen(images, names, f"pictures in {folder.resolve().name}")
