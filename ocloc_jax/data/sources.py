"""Random access to scenes, whether decoded arrays in memory or encoded records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

Example = Any  # A scene that is not decoded yet; only `decode` looks inside.
Arrays = dict[str, np.ndarray]
Decoder = Callable[[Example, Sequence[int], Sequence[str]], Arrays]


@runtime_checkable
class Scenes(Protocol):
    """What the pipeline asks of a dataset.

    Attributes:
      keys: The arrays that every scene can give.
      view_counts: How many views each scene has; its length is that of the dataset.
      metadata: What is known beyond the scenes: `dataset` (its name), `fingerprint`,
        `num_objects` (the largest number in a scene, the background's index),
        `image_size` (height and width, where no scene has to be read to tell).
    """

    keys: tuple[str, ...]
    view_counts: Int[np.ndarray, " s"]
    metadata: Mapping[str, Any]

    def __len__(self) -> int: ...

    def __getitem__(self, scene: int) -> Example:
        """Fetches one scene without decoding any view."""

    def decode(
        self, example: Example, views: Sequence[int], keys: Sequence[str]
    ) -> Arrays:
        """Decodes the chosen views (first axis of every array), and no others."""


class ArrayScenes:
    """Decoded scenes: a list of scenes, or arrays with a leading scene axis.

    Takes what `ocloc_jax.scenes.render` and `render_batch` return. Arrays may be
    memory-mapped (see `ocloc_jax.data.unpack`): only chosen views are then read.
    """

    def __init__(
        self,
        scenes: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ):
        """Checks that all arrays agree on the numbers of scenes and views."""
        if isinstance(scenes, Mapping):
            _check_equal_lengths("the numbers of scenes differ", scenes)
            size = len(next(iter(scenes.values()))) if scenes else 0
            scenes = [{k: a[i] for k, a in scenes.items()} for i in range(size)]
        if not scenes or not scenes[0]:
            raise ValueError("No scenes were given; pass at least one.")
        self.keys = tuple(scenes[0])
        for i, scene in enumerate(scenes):
            if set(scene) != set(self.keys):
                raise ValueError(
                    f"Scene {i} has the keys {sorted(scene)} but scene 0 has "
                    f"{sorted(self.keys)}; give every scene the same."
                )
            _check_equal_lengths(f"scene {i}: the numbers of views differ", scene)
        self._scenes, self.metadata = scenes, dict(metadata or {})
        counts = [len(scene[self.keys[0]]) for scene in scenes]
        self.view_counts = np.array(counts, np.int64)

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, scene: int) -> Example:
        return self._scenes[scene]

    def decode(
        self, example: Example, views: Sequence[int], keys: Sequence[str]
    ) -> Arrays:
        chosen = np.asarray(views, np.int64)
        return {key: np.asarray(example[key][chosen]) for key in keys}


class RecordScenes:
    """Encoded scenes, such as a TFDS data source, of which single views are decoded."""

    def __init__(
        self,
        source: Any,
        keys: Sequence[str],
        view_counts: int | Int[np.ndarray, " s"],
        decode: Decoder,
        metadata: Mapping[str, Any] | None = None,
    ):
        """Wraps a source of encoded scenes.

        Args:
          source: Has `__len__`, and `__getitem__` that returns an encoded example.
          keys: What `decode` can give of an example.
          view_counts: Number of views of every scene, or of each one.
          decode: Called with an example, views and keys; decodes those views.
          metadata: See `Scenes`.
        """
        self.metadata = dict(metadata or {})
        self.keys = tuple(keys)
        self.view_counts = np.broadcast_to(
            np.asarray(view_counts, np.int64), (len(source),)
        )
        self._source, self._decode = source, decode

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, scene: int) -> Example:
        return self._source[scene]

    def decode(
        self, example: Example, views: Sequence[int], keys: Sequence[str]
    ) -> Arrays:
        return self._decode(example, views, keys)


def _check_equal_lengths(problem: str, arrays: Mapping[str, Any]) -> None:
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Arrays do not match, {problem}: {lengths}.")
