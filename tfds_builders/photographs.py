"""Makes a dataset of photographs: one folder for each scene, no camera poses."""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from ocloc_jax import records
from tfds_builders import base, pictures, released
from tfds_builders.sources import SPLITS, DataError, Scene, Source

_MASK = "_mask.png"


@dataclasses.dataclass(frozen=True)
class PhotographSplit:
    """Folders of photographs; see `sources.Source`.

    Attributes:
      folders: Folder of each scene.
      size: Height and width that views are brought to.
      max_objects: Index of the background, None if there are no masks.
    """

    folders: tuple[str, ...]
    size: int
    max_objects: int | None

    @property
    def num_scenes(self) -> int:
        """One scene for each folder."""
        return len(self.folders)

    @property
    def num_views(self) -> int:
        """Views of the scene that has most."""
        return max(len(list_views(pathlib.Path(folder))) for folder in self.folders)

    def scene(self, index: int) -> tuple[str, Scene]:
        """Reads all views of a scene, and their masks if there are any."""
        folder = pathlib.Path(self.folders[index])
        views = list_views(folder)
        scene = {"image": np.stack([pictures.read(path, self.size) for path in views])}
        if masks := find_masks(folder, views):
            pairs = zip(masks, views, strict=True)
            segment = [pictures.read_mask(m, view, self.size) for m, view in pairs]
            # Files count objects from 1 and call the background 0.
            objects = np.stack(segment).astype(np.int32) - 1
            objects[objects < 0] = self.max_objects
            scene["segment"] = objects.astype(np.uint8)
        return folder.name, scene

    def identity(self) -> Mapping[str, Any]:
        """Everything above, and the size and time of every file."""
        paths = [p for folder in self.folders for p in sorted(_files(folder))]
        stats = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
        return dataclasses.asdict(self) | {"files": stats}


class PhotographBuilder(base.MultiviewBuilder, skip_registration=True):
    """A dataset of photographs under a name of the user's choice."""

    def __init__(
        self, *, name: str, size: int, sources: Mapping[str, Source], **kwargs
    ):
        """See `make_builder`."""
        self.name, self._view_size, self._photographs = name, size, dict(sources)
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Photographs, one folder for each scene, centre-cropped.",
            features=records.features(*self._size()),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(layout=records.LAYOUT, size=self._size()),
        )

    def _size(self) -> tuple[int, int]:
        return (self._view_size, self._view_size)

    def _sources(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Source]:
        return self._photographs


def make_builder(
    folder: str | pathlib.Path,
    name: str,
    data_dir: str | pathlib.Path,
    size: int = 128,
    shares: Sequence[int] = (80, 10, 10),
) -> PhotographBuilder:
    """Returns a builder that imports a folder of photographs.

    Args:
      folder: Holds one folder for each scene, or folders `train`, `validation`,
        `test` (and `test_general`) that do.
      name: Name of the new dataset: small letters, digits and `_`.
      data_dir: Where datasets live.
      size: Height and width that views are brought to.
      shares: Percent of the scenes for train, validation and test, if the folder
        does not say which scene belongs where.

    Raises:
      DataError: A folder or file is unusable, or the dataset exists already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DataError(f"name: {name!r}; use small letters, digits and '_'")
    if not 1 <= size <= 4096:
        raise DataError(f"size: {size}; expected 1 to 4096")
    splits = assign_splits(pathlib.Path(folder), shares)
    scenes = [scene for folders in splits.values() for scene in folders]
    most = _count_objects(scenes)
    sources = {
        split: PhotographSplit(tuple(map(str, folders)), size, most)
        for split, folders in splits.items()
        if folders
    }
    builder = PhotographBuilder(
        name=name, size=size, sources=sources, data_dir=data_dir
    )
    if builder.is_prepared():
        raise DataError(
            f"{builder.data_dir}: exists already; choose another --name or --data_dir"
        )
    return builder


def assign_splits(
    folder: pathlib.Path, shares: Sequence[int] = (80, 10, 10)
) -> dict[str, list[pathlib.Path]]:
    """Says which scene belongs to which split; the same folder, the same answer."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    inside = _folders(folder)
    named = {_split_of(path.name): path for path in inside}
    if None not in named and len(named) == len(inside):
        return {split: _folders(named[split]) for split in SPLITS if split in named}
    ranked = sorted(inside, key=lambda p: hashlib.sha256(p.name.encode()).digest())
    ends = np.cumsum([round(share * len(ranked) / 100) for share in shares[:0:-1]])
    test, validation, train = np.split(np.arange(len(ranked)), ends)
    chosen = {"train": train, "validation": validation, "test": test}
    return {s: sorted(ranked[i] for i in rows) for s, rows in chosen.items()}


def _split_of(name: str) -> str | None:
    for split, spellings in released.SPELLINGS.items():
        if name.lower() in spellings:
            return split
    return None


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
    inside = [path for path in folder.iterdir() if path.is_dir()]
    visible = sorted(path for path in inside if not path.name.startswith("."))
    if not visible:
        raise DataError(f"{folder}: no folders inside; expected one for each scene")
    return visible


def _files(folder: str | pathlib.Path) -> list[pathlib.Path]:
    inside = (path for path in pathlib.Path(folder).iterdir() if path.is_file())
    return [path for path in inside if not path.name.startswith(".")]


def list_views(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the photographs of a scene in the order of their names."""
    files = [path for path in _files(folder) if pictures.is_picture(path)]
    views = sorted(path for path in files if not path.name.endswith(_MASK))
    if not views:
        known = ", ".join(sorted(pictures.EXTENSIONS))
        raise DataError(f"{folder}: no pictures inside; expected files {known}")
    return views


def find_masks(
    folder: pathlib.Path, views: Sequence[pathlib.Path]
) -> list[pathlib.Path]:
    """Returns the mask of every view, or none if the scene has none.

    The mask of `a.jpg` is `a_mask.png`.
    """
    masks = [path.with_name(path.stem + _MASK) for path in views]
    there = [path.exists() for path in masks]
    if orphans := set(folder.glob(f"*{_MASK}")) - set(masks):
        raise DataError(f"{min(orphans)}: a mask without a picture of that name")
    if any(there) and not all(there):
        missing = masks[there.index(False)]
        raise DataError(f"{missing}: missing, though other views of the scene have one")
    return masks if any(there) else []


def _count_objects(scenes: Sequence[pathlib.Path]) -> int | None:
    """Largest object number in all masks; also finds unusable folders early."""
    masks = [mask for scene in scenes for mask in find_masks(scene, list_views(scene))]
    return max((pictures.count_objects(mask) for mask in masks), default=None)
