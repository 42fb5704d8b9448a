"""Reads the authors' HDF5 files, and says exactly what is wrong with a bad one."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from tfds_builders.sources import SPLITS, DataError, Scene

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("valid", "val", "validation"),
    "test": ("test", "test_1", "test1", "testing"),
    "test_general": (
        "general",
        "test_2",
        "test2",
        "generalization",
        "generalisation",
        "test_general",
    ),
}
# Axes before a possible last axis of length one.
_AXES: Mapping[str, str] = {
    "image": "scenes views h w 3",
    "segment": "scenes views h w",
    "overlap": "scenes views h w",
    "masks": "scenes views n+1 h w",
}


@dataclasses.dataclass(frozen=True)
class ReleasedSplit:
    """One group of a released file; see `sources.Source`."""

    path: str
    group: str
    keys: tuple[str, ...]
    num_scenes: int
    num_views: int
    max_objects: int

    def scene(self, index: int) -> tuple[str, Scene]:
        """Reads and checks one scene."""
        where = f"{self.path}: {self.group}"
        with _one_line(f"{where}: scene {index}"):
            group = _open(self.path)[self.group]
            scene = {key: _squeeze(key, group[key][index]) for key in self.keys}
        _check_values(scene, self.max_objects, f"{where}: scene {index}")
        return f"{self.group}/{index:05d}", scene

    def identity(self) -> Mapping[str, Any]:
        """Everything above, and the size and time of the file."""
        stat = pathlib.Path(self.path).stat()
        file = {"bytes": stat.st_size, "modified": stat.st_mtime_ns}
        return dataclasses.asdict(self) | file


def open_splits(
    path: str | pathlib.Path, size: int, max_objects: Mapping[str, int]
) -> dict[str, ReleasedSplit]:
    """Checks the layout of a released file and returns its splits.

    Args:
      path: The HDF5 file.
      size: Expected height and width of the views.
      max_objects: For each split the largest number of objects in a scene.

    Raises:
      DataError: The file is not as released; the message names file, group,
        key and shape.
    """
    path = str(path)
    with _one_line(path):
        file = _open(path)
        groups = {split: _find_group(file, path, split) for split in SPLITS}
    return {
        split: _check_group(file[group], path, split, size, max_objects[split])
        for split, group in groups.items()
    }


def find_size(path: str | pathlib.Path) -> int:
    """Returns the height of the training views."""
    with _one_line(str(path)):
        file = _open(str(path))
        image = file[_find_group(file, str(path), "train")].get("image")
    if getattr(image, "ndim", 0) != 5:
        raise DataError(f"{path}: train: no dataset 'image' of five axes")
    return image.shape[2]


def _open(path: str) -> h5py.File:
    stat = pathlib.Path(path).stat()
    return _open_once(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _open_once(path: str, size: int, modified: int) -> h5py.File:
    """One handle for each process and state of the file."""
    return h5py.File(path, "r")


@contextlib.contextmanager
def _one_line(where: str) -> Iterator[None]:
    """Turns what HDF5 says about damaged files into one line."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = " ".join(str(error).split())
        raise DataError(
            f"{where}: cannot be read as HDF5 ({cause}); the file is truncated or "
            "damaged: fetch it again"
        ) from error


def _find_group(file: h5py.File, path: str, split: str) -> str:
    lower = {name.lower(): name for name in file}
    for spelling in SPELLINGS[split]:
        if spelling in lower:
            return lower[spelling]
    raise DataError(
        f"{path}: no group for split {split!r}; it has {sorted(file)}, expected one of "
        f"{list(SPELLINGS[split])}"
    )


def _check_group(
    group: h5py.Group, path: str, split: str, size: int, max_objects: int
) -> ReleasedSplit:
    name = group.name.strip("/")
    where = f"{path}: {name}"
    required = ("image",) if split == "train" else ("image", "segment")
    for key in required:
        if not isinstance(group.get(key), h5py.Dataset):
            raise DataError(f"{where}: no dataset {key!r}; it has {sorted(group)}")
    keys = tuple(key for key in _AXES if key in group)
    for key in keys:
        _check_dataset(group[key], group["image"], f"{where}: {key}", size, max_objects)
    scenes, views = group["image"].shape[:2]
    return ReleasedSplit(path, name, keys, scenes, views, max_objects)


def _check_dataset(
    data: h5py.Dataset, image: h5py.Dataset, where: str, size: int, max_objects: int
) -> None:
    key = where.rsplit(" ", 1)[-1]
    if data.dtype != np.uint8:
        hint = "ragged arrays are not supported" if data.dtype == object else "convert"
        raise DataError(f"{where}: dtype {data.dtype}, expected uint8; {hint}")
    shape = data.shape[:-1] if _has_unit_axis(key, data.shape) else data.shape
    axes = _AXES[key].split()
    if len(shape) != len(axes) or 0 in shape:
        raise DataError(f"{where}: shape {data.shape}, expected [{', '.join(axes)}]")
    if shape[:2] != image.shape[:2]:
        raise DataError(
            f"{where}: {shape[0]} scenes of {shape[1]} views, but image has "
            f"{image.shape[0]} of {image.shape[1]}; make them agree"
        )
    found = dict(zip(axes, shape, strict=True))
    _check_size(found, where, size, max_objects)


def _check_size(
    found: Mapping[str, int], where: str, size: int, max_objects: int
) -> None:
    if (found["h"], found["w"]) != (size, size):
        raise DataError(
            f"{where}: views of {found['h']}x{found['w']}, expected {size}x{size}; "
            f"resize them or pass --size"
        )
    if found.get("3", 3) != 3:
        raise DataError(f"{where}: {found['3']} colour channels, expected 3")
    if found.get("n+1", max_objects + 1) != max_objects + 1:
        raise DataError(
            f"{where}: {found['n+1'] - 1} objects and the background, expected at "
            f"most {max_objects} objects; pass --num_objects"
        )


def _has_unit_axis(key: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(_AXES[key].split()) + 1 and shape[-1] == 1


def _squeeze(key: str, value: np.ndarray) -> np.ndarray:
    """Drops the last axis of length one that `masks` carries on file."""
    return value[..., 0] if _has_unit_axis(key, (1, *value.shape)) else value


def _check_values(scene: Scene, max_objects: int, where: str) -> None:
    for key in ("segment", "overlap"):
        if key in scene and scene[key].max() > max_objects:
            view = int((scene[key] > max_objects).any(axis=(1, 2)).argmax())
            raise DataError(
                f"{where}: {key} of view {view} has the value {scene[key].max()}, but "
                f"the split has at most {max_objects} objects; pass --num_objects"
            )
    if "segment" in scene and not (scene["segment"] == max_objects).any():
        raise DataError(
            f"{where}: segment never has the background index {max_objects} (largest "
            f"value {scene['segment'].max()}); renumber the background"
        )
    if "masks" in scene and not (scene["masks"][:, -1] == 255).all():
        raise DataError(
            f"{where}: the last mask (index {max_objects}) is not 255 everywhere; the "
            "background must come last"
        )
