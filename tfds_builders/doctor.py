"""Looks a dataset over: what is in it, what is suspicious, and how it looks."""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tqdm

from ocloc_jax import records
from tfds_builders import configs, contact_sheet, released, shards, sources
from tfds_builders.sources import DataError, Scene

_SHEET_SCENES = 3  # Of each split.
_LISTED = 20  # Duplicates written out in full.

Scenes = Iterator[tuple[str, Scene]]


@dataclasses.dataclass
class _Opened:
    """A dataset whose scenes have yet to be read.

    Attributes:
      scenes: Scenes of each split.
      max_objects: Index of the background in each split.
      fingerprint: What the builder noted about the contents, if there was one.
      digests: SHA-256 of the examples, filled while they are read.
    """

    scenes: dict[str, Scenes]
    max_objects: Mapping[str, Any]
    fingerprint: str | None = None
    digests: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def problems(self) -> list[str]:
        """What only shows when all scenes have been read."""
        if self.fingerprint in (None, sources.digest(self.digests)):
            return []
        return ["the contents are not those that were built (fingerprint differs)"]


def examine(data: str | pathlib.Path, report_dir: str | None = None) -> dict[str, Any]:
    """Reads all scenes and returns the report; see `as_text` for its contents.

    Args:
      data: Folder of a dataset (or a folder above it), or a released .h5 file.
      report_dir: If given, receives `report.json`, `report.txt` and
        `contact_sheet.png`.

    Raises:
      DataError: There is no dataset, or it is damaged.
    """
    path = pathlib.Path(data).expanduser()
    opened = _open_released(path) if path.suffix == ".h5" else _open_built(path)
    seen: dict[bytes, list[tuple[str, str]]] = collections.defaultdict(list)
    summaries, rows = {}, []
    for split, scenes in opened.scenes.items():
        summaries[split] = _Summary(split, opened.max_objects[split], seen)
        for name, scene in tqdm.tqdm(scenes, desc=split, unit="scene", leave=False):
            summaries[split].add(name, scene)
            if summaries[split].scenes <= _SHEET_SCENES:
                rows.append((f"{split}: {name}", scene, opened.max_objects[split]))
    report = _report(str(path), summaries, seen)
    report["problems"] += opened.problems()
    if report_dir:
        _write(pathlib.Path(report_dir).expanduser(), report, rows)
    return report


class _Summary:
    """What is counted about one split."""

    def __init__(self, split: str, max_objects: int | None, seen: dict):
        self.split, self.max_objects, self.seen = split, max_objects, seen
        self.scenes = 0
        self.views: collections.Counter[int] = collections.Counter()
        self.objects: collections.Counter[int] = collections.Counter()
        self.sizes: collections.Counter[str] = collections.Counter()
        self.keys: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []

    def add(self, name: str, scene: Scene) -> None:
        self.scenes += 1
        self.views[len(scene["image"])] += 1
        self.sizes["x".join(map(str, scene["image"].shape[1:3]))] += 1
        self.keys.update(list(scene))
        for view, image in enumerate(scene["image"]):
            place = (self.split, f"{self.split}: {name} view {view}")
            self.seen[hashlib.blake2b(image.tobytes(), digest_size=16).digest()].append(
                place
            )
            if (image == image[0, 0]).all():
                self.problems.append(f"{place[1]} is blank")
        if "segment" in scene:
            self._add_segment(name, scene["segment"])

    def _add_segment(self, name: str, segment: np.ndarray) -> None:
        present = set(np.unique(segment).tolist())
        if max(present) > self.max_objects:
            self.problems.append(
                f"{self.split}: {name} has segment {max(present)}, above the "
                f"background index {self.max_objects}"
            )
        self.objects[len(present - {self.max_objects})] += 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenes": self.scenes,
            "max_objects": self.max_objects,
            "views_per_scene": _sorted(self.views),
            "objects_per_scene": _sorted(self.objects),
            "sizes": _sorted(self.sizes),
            "scenes_with_key": {key: self.keys[key] for key in records.KEYS},
        }


def _sorted(counter: collections.Counter) -> dict[str, int]:
    return {str(key): counter[key] for key in sorted(counter)}


def _report(path: str, summaries: Mapping[str, _Summary], seen: dict) -> dict[str, Any]:
    repeated = [places for places in seen.values() if len(places) > 1]
    across = [places for places in repeated if len({split for split, _ in places}) > 1]
    problems = [line for summary in summaries.values() for line in summary.problems]
    if across:
        problems.append(f"{len(across)} pictures occur in more than one split")
    return {
        "data": path,
        "splits": {split: summary.as_dict() for split, summary in summaries.items()},
        "duplicates_across_splits": [[p for _, p in x] for x in across[:_LISTED]],
        "num_duplicates_across_splits": len(across),
        "num_duplicates_within_splits": len(repeated) - len(across),
        "problems": problems,
    }


def as_text(report: Mapping[str, Any]) -> str:
    """Returns the report for people."""
    lines = [f"data: {report['data']}"]
    for split, summary in report["splits"].items():
        lines += [f"{split}: {summary['scenes']} scenes"]
        lines += [f"  views per scene: {_histogram(summary['views_per_scene'])}"]
        lines += [f"  objects per scene: {_histogram(summary['objects_per_scene'])}"]
        lines += [f"  sizes: {_histogram(summary['sizes'])}"]
        keys = {key: n for key, n in summary["scenes_with_key"].items() if n}
        lines += [f"  entries: {_histogram(keys)}"]
    lines += [
        f"pictures in more than one split: {report['num_duplicates_across_splits']}"
    ]
    lines += [f"  {' = '.join(x)}" for x in report["duplicates_across_splits"]]
    lines += [f"repeated in one split: {report['num_duplicates_within_splits']}"]
    lines += ["problems:" if report["problems"] else "problems: none"]
    return "\n".join(lines + [f"  {line}" for line in report["problems"]])


def _histogram(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} ({count})" for key, count in counts.items()) or "unknown"


def _write(directory: pathlib.Path, report: Mapping[str, Any], rows: list) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(json.dumps(report, indent=2) + "\n")
        (directory / "report.txt").write_text(as_text(report) + "\n")
        contact_sheet.draw(rows).save(directory / "contact_sheet.png")
    except OSError as error:
        raise DataError(
            f"{directory}: cannot be written ({error.strerror}); change --report"
        ) from error


def _open_released(path: pathlib.Path) -> _Opened:
    if not path.exists():
        raise DataError(f"{path}: no such file")
    most = {split: ends[1] for split, ends in configs.NUM_OBJECTS.items()}
    splits = released.open_splits(path, released.find_size(path), most)
    scenes = {s: map(x.scene, range(x.num_scenes)) for s, x in splits.items()}
    return _Opened(scenes, most)


def _open_built(path: pathlib.Path) -> _Opened:
    import tensorflow_datasets as tfds

    found = sorted(path.rglob("dataset_info.json")) if path.is_dir() else []
    if not found:
        raise DataError(f"{path}: no dataset here (no dataset_info.json)")
    if len(found) > 1:
        names = [str(file.parent) for file in found]
        raise DataError(f"{path}: several datasets, choose one of {names}")
    info = tfds.builder_from_directory(found[0].parent).info
    try:
        most, fingerprint = (info.metadata[k] for k in ("max_objects", "fingerprint"))
    except KeyError as error:
        raise DataError(
            f"{path}: not made by tfds_builders ({error} unknown)"
        ) from error
    opened = _Opened({}, most, fingerprint)
    for split, split_info in info.splits.items():
        digests = opened.digests.setdefault(str(split), [])
        opened.scenes[str(split)] = _read_split(split_info, digests)
    return opened


def _read_split(info: Any, digests: list[str]) -> Scenes:
    for path, length in zip(info.filepaths, info.shard_lengths, strict=True):
        try:
            examples = list(shards.read_examples(path))
        except (OSError, RuntimeError, ValueError) as error:
            cause = " ".join(str(error).split())
            raise DataError(f"{path}: cannot be read ({cause}); build again") from error
        if len(examples) != length:
            raise DataError(f"{path}: {len(examples)} scenes, expected {length}")
        for raw in examples:
            digests.append(hashlib.sha256(raw).hexdigest())
            record = records.parse(raw)
            stored = (key for key in records.KEYS if record.has(key))
            yield record.name, {k: records.decode_views(record, k) for k in stored}
