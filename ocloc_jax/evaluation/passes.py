"""Inference passes over a split: scene by scene through the model and the metrics."""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm
from jaxtyping import PyTree

from ocloc_jax import data, inference, metrics
from ocloc_jax.models.ocloc import Ocloc

KINDS = ("pooled", "per_scene")
Arrays = dict[str, np.ndarray]
Watch = Callable[[Mapping[str, Any]], None]


def check_views(split: str, num_views: int, available: int) -> None:
    """Stops if scenes have fewer views than are to be looked at."""
    if not 1 <= num_views <= available:
        raise ValueError(
            f"eval.num_views is {num_views}, but scenes of {split} may have only "
            f"{available} views; choose 1 to {available}."
        )


def check_slots(split: str, num_slots: int, num_objects: int) -> None:
    """Stops if objects could not each have a slot."""
    if num_slots < num_objects:
        raise ValueError(
            f"eval.splits.{split}.num_slots is {num_slots}, but scenes of {split} have "
            f"up to {num_objects} objects; give at least {num_objects} slots."
        )


@dataclasses.dataclass(frozen=True)
class Split:
    """Scenes, and how they are looked at.

    Attributes:
      name: `test`, for instance.
      scenes: Where scenes come from.
      num_views: M, from the first view of a scene.
      num_slots: K.
      batch_size: Scenes in work at a time; the scores do not depend on it.
    """

    name: str
    scenes: data.Scenes
    num_views: int
    num_slots: int
    batch_size: int

    def __post_init__(self) -> None:
        """Fails before any work."""
        available = int(self.scenes.view_counts.min())
        check_views(self.name, self.num_views, available)
        if self.num_objects is not None:
            check_slots(self.name, self.num_slots, self.num_objects)

    @property
    def is_labelled(self) -> bool:
        """Whether anything but the reconstruction can be scored."""
        return "segment" in self.scenes.keys

    @functools.cached_property
    def num_objects(self) -> int | None:
        """Index of the background, also the largest number of objects."""
        known = self.scenes.metadata.get("num_objects")
        if known is not None or not self.is_labelled:
            return known
        if "masks" in self.scenes.keys:
            return self.read(0, ("masks",))["masks"].shape[1] - 1
        segments = (self.read(i, ("segment",)) for i in range(len(self.scenes)))
        return max(int(arrays["segment"].max()) for arrays in segments)

    def read(self, scene: int, keys: Sequence[str]) -> Arrays:
        """Arrays of the views of one scene that are looked at."""
        views = range(self.num_views)
        return self.scenes.decode(self.scenes[scene], views, keys)

    def predictions(
        self, model: Ocloc, params: PyTree, seed: int
    ) -> Iterator[inference.Prediction]:
        """What a model makes of the scenes, as `ocloc_jax.metrics` takes it."""
        found = inference.predictions(
            model,
            params,
            self.scenes,
            num_views=self.num_views,
            num_slots=self.num_slots,
            seed=seed,
            batch_size=min(self.batch_size, len(self.scenes)),
        )
        known = {"num_objects": self.num_objects} if self.is_labelled else {}
        for prediction in found:
            yield prediction._replace(arrays=prediction.arrays | known)


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over a split.

    Attributes:
      seed: Of the initial slots.
      averages: Scores by kind of average and name.
      constancy: Identity switches and recall of hidden objects, where labelled.
      latents: The fields of `Latents`, scenes first.
    """

    seed: int
    averages: dict[str, dict[str, float]]
    constancy: dict[str, dict[str, float]]
    latents: Arrays


def run(
    model: Ocloc, params: PyTree, split: Split, seed: int, watch: Sequence[Watch] = ()
) -> Pass:
    """Scores all scenes once; `watch` gets to see the arrays of each."""
    latents: list[Arrays] = []

    def scenes() -> Iterator[Arrays]:
        for prediction in split.predictions(model, params, seed):
            latents.append(prediction.latents)
            for look in watch:
                look(prediction.arrays)
            yield prediction.arrays

    scores = metrics.score_scenes(scenes())
    summary = metrics.summarize(scores)
    return Pass(
        seed=seed,
        averages={kind: summary[kind] for kind in KINDS},
        constancy=_constancy(scores),
        latents={k: np.stack([x[k] for x in latents]) for k in latents[0]},
    )


def _constancy(scores: Sequence[metrics.SceneScores]) -> dict[str, dict[str, float]]:
    found = {}
    if scores[0].partition is not None:
        found["identity_switches"] = metrics.constancy.identity_switch_rate(scores)
    if scores[0].intersection is not None:
        found["hidden"] = metrics.constancy.hidden_recall(scores)
        mostly = metrics.constancy.hidden_recall(scores, max_visible=0.2)
        found["mostly_hidden"] = mostly
    return found


class Fingerprint:
    """SHA-256 of everything true that a pass was given, scene by scene."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._sha256 = hashlib.sha256()

    def __call__(self, arrays: Mapping[str, Any]) -> None:
        for key in ("image", *inference.LABELS):
            if key in arrays:
                array = np.ascontiguousarray(arrays[key])
                self._sha256.update(f"{key} {array.dtype} {array.shape}".encode())
                self._sha256.update(array.data)

    def __str__(self) -> str:
        return self._sha256.hexdigest()


def progress(name: str, total: int) -> tqdm.tqdm:
    """A live line with rate and time left."""
    return tqdm.tqdm(
        total=total,
        desc=name,
        unit="scene",
        dynamic_ncols=True,
        # In a log file a line now and then is enough.
        mininterval=0.5 if sys.stderr.isatty() else 20,
    )
