"""Opens datasets that `tfds_builders` has built; TensorFlow is not needed."""

import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ocloc_jax.data import sources

PathLike = str | pathlib.Path
_INFO = "dataset_info.json"  # Every finished dataset has one.


def open_dataset(
    name: PathLike, split: str, data_dir: PathLike | None = None
) -> sources.RecordScenes:
    """Opens a split of a built dataset for random access to single views.

    Args:
      name: `multiview_clevr/raytraced_64`, a dataset and its config; a version may
        follow, the newest is the default. The directory of a dataset also works.
      split: `train`, `validation`, `test` or `test_general`.
      data_dir: Where datasets are kept; by default where TFDS keeps them
        (`TFDS_DATA_DIR`, or `~/tensorflow_datasets`).

    Raises:
      FileNotFoundError: The dataset is not built; the message has the command.
      ValueError: There is no such split, or several configs match.
    """
    import tensorflow_datasets as tfds  # Slow to import, not always needed.

    root = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    directory = _find(pathlib.Path(name).expanduser(), root)
    builder = tfds.builder_from_directory(directory)
    if split not in builder.info.splits:
        raise ValueError(
            f"No split {split!r} in {directory}; it has {sorted(builder.info.splits)}."
        )
    source = builder.as_data_source(
        split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
    )
    return _record_scenes(source, split, builder.info)


def _record_scenes(source: Any, split: str, info: Any) -> sources.RecordScenes:
    from ocloc_jax import records

    metadata = info.metadata or {}
    if metadata.get("layout") != records.LAYOUT:
        raise ValueError(
            f"The dataset has record layout {metadata.get('layout')}, this program "
            f"reads layout {records.LAYOUT}: build it again with "
            "`python -m tfds_builders build`."
        )
    parsed = ParsedRecords(source)
    smallest, largest = metadata["num_views"][split]
    counts = smallest
    if smallest != largest:  # Photographs: look once, a record takes about 1 ms.
        counts = np.array([parsed[i].num_views for i in range(len(parsed))])
    known = {
        "dataset": info.full_name,
        "fingerprint": metadata.get("fingerprint"),
        "num_objects": metadata.get("max_objects", {}).get(split),
    }
    keys = metadata["keys"][split]
    return sources.RecordScenes(parsed, keys, counts, _decode, known)


class ParsedRecords:
    """Splits stored bytes into encoded views when a scene is asked for."""

    def __init__(self, source: Any):
        """Takes a source of serialised examples."""
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, scene: int) -> Any:
        from ocloc_jax import records

        return records.parse(self._source[scene])


def _decode(record: Any, views: Sequence[int], keys: Sequence[str]) -> sources.Arrays:
    from ocloc_jax import records

    return {key: records.decode_views(record, key, views) for key in keys}


def _find(name: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """Finds the newest finished version of a dataset."""
    places = (name, root / name)
    found = [
        info.parent.resolve()
        for place in places
        for pattern in (_INFO, f"*/{_INFO}", f"*/*/{_INFO}")
        for info in place.glob(pattern)
        if _version(info.parent.resolve()) is not None
    ]
    if not found:
        raise FileNotFoundError(_not_built(name, root))
    configs = {directory.parent for directory in found}
    if len(configs) > 1:
        choices = sorted(str(config) for config in configs)
        raise ValueError(f"{name} could mean any of {choices}; name one of them.")
    return max(found, key=lambda directory: _version(directory) or ())


def _version(directory: pathlib.Path) -> tuple[int, ...] | None:
    # Unfinished builds live beside the others under names like 1.0.0.incompleteXYZ.
    parts = directory.name.split(".")
    return tuple(map(int, parts)) if all(p.isdigit() for p in parts) else None


def _not_built(name: pathlib.Path, root: pathlib.Path) -> str:
    dataset, *config = name.parts
    option = f" --config {config[0]}" if config else ""
    command = f"python -m tfds_builders build {dataset}{option} --data_dir {root}"
    if name.is_absolute():
        command = "python -m tfds_builders build NAME --data_dir DIRECTORY"
    return f"No finished dataset {name} under {root}. Build it with: {command}"


def unpack(
    scenes: sources.Scenes, directory: PathLike, keys: Sequence[str] = ("image",)
) -> sources.ArrayScenes:
    """Writes decoded views to `directory` once, or opens what lies there.

    The result is memory-mapped: a step then reads its own views and nothing else,
    with no decoding. It costs disk space, 3 bytes per pixel for `image`.
    """
    directory = pathlib.Path(directory).expanduser()
    if len(set(scenes.view_counts.tolist())) > 1:
        raise ValueError("Cannot unpack scenes with different numbers of views.")
    if not directory.exists():
        work = directory.with_name(f".{directory.name}.{os.getpid()}")
        work.mkdir(parents=True)
        try:
            _write(scenes, work, keys)
            work.rename(directory)  # Only a complete copy ever has the final name.
        finally:
            shutil.rmtree(work, ignore_errors=True)
    unpacked = _open_unpacked(directory, keys, scenes.metadata)
    if not _same(scenes, unpacked, keys):
        raise ValueError(
            f"{directory} was unpacked from another dataset; delete it, or name "
            "another directory."
        )
    return unpacked


def _write(scenes: sources.Scenes, work: pathlib.Path, keys: Sequence[str]) -> None:
    files: sources.Arrays = {}
    views = range(int(scenes.view_counts[0]))
    for i in range(len(scenes)):
        for key, array in scenes.decode(scenes[i], views, keys).items():
            if key not in files:
                shape, path = (len(scenes), *array.shape), work / f"{key}.npy"
                files[key] = np.lib.format.open_memmap(
                    path, mode="w+", dtype=array.dtype, shape=shape
                )
            files[key][i] = array
    for file in files.values():
        file.flush()


def _open_unpacked(
    directory: pathlib.Path, keys: Sequence[str], metadata: Mapping[str, Any]
) -> sources.ArrayScenes:
    missing = [key for key in keys if not (directory / f"{key}.npy").exists()]
    if missing:
        raise FileNotFoundError(
            f"{directory} lacks {missing}; delete it to unpack it again."
        )
    arrays = {key: np.load(directory / f"{key}.npy", mmap_mode="r") for key in keys}
    return sources.ArrayScenes(arrays, metadata)


def _same(left: sources.Scenes, right: sources.Scenes, keys: Sequence[str]) -> bool:
    """Compares the sizes, and a view of the first and of the last scene."""
    if not np.array_equal(left.view_counts, right.view_counts):
        return False
    decoded = (
        (left.decode(left[i], [0], keys), right.decode(right[i], [0], keys))
        for i in (0, len(left) - 1)
    )
    return all(np.array_equal(a[key], b[key]) for a, b in decoded for key in keys)
