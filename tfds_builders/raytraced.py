"""Scenes from the built-in ray tracer, as a source for the builders."""

import dataclasses
import functools
import hashlib
import inspect
import pathlib
from collections.abc import Mapping
from typing import Any

from tfds_builders.sources import SPLITS, DataError, Scene

# Splits draw from far apart ranges of scene indices, so that no scene is in two of
# them and a split keeps its scenes when another one grows.
SPLIT_STRIDE = 1 << 24


@dataclasses.dataclass(frozen=True)
class RaytracedSplit:
    """Scenes `first, first + 1, ...` of a seed; see `sources.Source`."""

    spec: Any  # ocloc_jax.scenes.SceneSpec
    seed: int
    first: int
    num_scenes: int

    @property
    def num_views(self) -> int:
        """Views of every scene."""
        return self.spec.num_views

    @property
    def max_objects(self) -> int:
        """Index of the background in `segment`."""
        return self.spec.max_objects

    def scene(self, index: int) -> tuple[str, Scene]:
        """Renders one scene."""
        from ocloc_jax import scenes

        arrays = scenes.render(self.spec, seed=self.seed, index=self.first + index)
        return f"seed{self.seed}/{self.first + index:08d}", arrays

    def identity(self) -> Mapping[str, Any]:
        """The specification, and the code that renders it."""
        return dataclasses.asdict(self) | {"code": code_digest()}


def make_splits(
    num_scenes: Mapping[str, int],
    num_objects: Mapping[str, tuple[int, int]],
    seed: int,
    **spec: Any,
) -> dict[str, RaytracedSplit]:
    """Returns the sources of all splits.

    Args:
      num_scenes: Scenes in each split; a split with none is left out.
      num_objects: Smallest and largest number of objects in each split.
      seed: Seed of the whole dataset.
      **spec: Other fields of `ocloc_jax.scenes.SceneSpec`.
    """
    check(num_scenes, seed)
    return {
        split: RaytracedSplit(
            make_spec(*num_objects[split], spec),
            seed,
            SPLITS.index(split) * SPLIT_STRIDE,
            count,
        )
        for split, count in num_scenes.items()
        if count
    }


def check(num_scenes: Mapping[str, int], seed: int) -> None:
    """Refuses unknown splits, no scenes at all and negative seeds."""
    for split, count in num_scenes.items():
        if split not in SPLITS or not 0 <= count <= SPLIT_STRIDE:
            raise DataError(
                f"num_scenes: {split}={count}; splits are {list(SPLITS)}, counts lie "
                f"in 0..{SPLIT_STRIDE}"
            )
    if not any(num_scenes.values()):
        raise DataError("num_scenes: no split has a scene")
    if seed < 0:
        raise DataError(f"seed: {seed} is negative; use 0 or more")


def make_spec(least: int, most: int, fields: Mapping[str, Any]) -> Any:
    """Returns the `SceneSpec` of a split; explains values that are out of range."""
    from ocloc_jax import scenes

    if not 0 <= least <= most <= 254:
        raise DataError(
            f"objects: {least} to {most}; expected 0 <= least <= most <= 254, because "
            "segment is stored in one byte"
        )
    try:
        return scenes.SceneSpec(min_objects=least, max_objects=most, **fields)
    except (TypeError, ValueError) as error:
        known = [field.name for field in dataclasses.fields(scenes.SceneSpec)]
        cause = " ".join(str(error).split())
        raise DataError(f"scene: {cause}; fields are {known}") from error


def code_digest() -> str:
    """SHA-256 of the ray tracer, so that a restart never mixes two versions of it."""
    from ocloc_jax import scenes

    return _digest_of(pathlib.Path(inspect.getfile(scenes)))


@functools.cache
def _digest_of(path: pathlib.Path) -> str:
    files = sorted(path.parent.rglob("*.py")) if path.stem == "__init__" else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
