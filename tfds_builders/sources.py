"""What a builder needs to know about where its scenes come from."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

SPLITS = ("train", "validation", "test", "test_general")

Scene = Mapping[str, np.ndarray]


class DataError(ValueError):
    """Bad input; the message is one line that says what is wrong and what to do."""


class Source(Protocol):
    """The scenes of one split, by index; it travels to worker processes by pickle.

    Attributes:
      num_scenes: Number of scenes.
      num_views: Largest number of views of a scene, to plan the size of shards.
      max_objects: Index of the background in `segment`; None if unknown.
    """

    num_scenes: int
    num_views: int
    max_objects: int | None

    def scene(self, index: int) -> tuple[str, Scene]:
        """Returns the name and the arrays of one scene."""
        ...

    def identity(self) -> Mapping[str, Any]:
        """JSON values that change whenever the scenes may have changed."""
        ...


def digest(values: Any) -> str:
    """SHA-256 of JSON values, independent of the order of keys."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
