"""Whether objects stay the same objects, and viewpoints mean something.

What cannot be measured on a dataset is not left out: `not_measured` says why.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ocloc_jax import metrics
from ocloc_jax.evaluation import interpolation, passes
from ocloc_jax.metrics import probe
from ocloc_jax.models.ocloc import Ocloc

Found = dict[str, Any]
_NO_LABELS = "the dataset has no `segment`"


def measure(
    model: Ocloc, params: PyTree, split: passes.Split, done: Sequence[passes.Pass]
) -> Found:
    """Everything about constancy that the labels of a split allow.

    Args:
      model: What was evaluated.
      params: Its parameters.
      split: On which scenes.
      done: The passes that were made.
    """
    return {
        "split": split.name,
        "identity_switches": over_passes(
            [p.constancy.get("identity_switches") for p in done],
            _NO_LABELS,
            "no object is seen in two views",
        ),
        "hidden": over_passes(
            [p.constancy.get("hidden") for p in done],
            "the dataset has no `masks`",
            "no object is wholly hidden in one view and seen in another",
        ),
        "mostly_hidden": over_passes(
            [p.constancy.get("mostly_hidden") for p in done],
            "the dataset has no `masks`",
            "no object is seen by at most a fifth in one view and better in another",
        ),
        "camera_probe": camera_probe(split, done),
        "interpolation": interpolation.measure(model, params, split, done[0]),
        "views": accuracy_by_views(model, params, split),
    }


def over_passes(
    rows: Sequence[Mapping[str, float] | None], no_labels: str, nothing: str
) -> Found:
    """Mean and deviation of each number; the reason where there is none."""
    if any(row is None for row in rows):
        return {"not_measured": no_labels}
    found = metrics.mean_and_deviation(rows)
    if any(math.isnan(value["mean"]) for value in found.values()):
        return {"not_measured": nothing}
    return found


def camera_probe(split: passes.Split, done: Sequence[passes.Pass]) -> Found:
    """R^2 of the true camera from the viewpoint latents of each pass."""
    if "camera" not in split.scenes.keys:
        return {"not_measured": "the dataset has no `camera`"}
    indices = range(len(split.scenes))
    camera = np.stack([split.read(i, ("camera",))["camera"] for i in indices])
    try:
        rows = [probe.camera_probe(p.latents["view"], camera) for p in done]
    except ValueError as error:  # too few scenes
        return {"not_measured": str(error)}
    found = metrics.mean_and_deviation(rows)
    constant = [name for name, x in found.items() if math.isnan(x["mean"])]
    if constant:
        found = {name: x for name, x in found.items() if name not in constant}
        found["not_measured"] = f"{constant}: the true value does not vary"
    return found


def accuracy_by_views(model: Ocloc, params: PyTree, split: passes.Split) -> Found:
    """Scores after inference from 1, 2, ... views, with the slots of seed 0.

    `all_views` judges all views that were given as one partition, which is harder
    the more there are. `first_view` judges the first view alone, which is equally hard
    for any number; it has no OCA, since the count is that of the whole scene.
    """
    if not split.is_labelled:
        return {"not_measured": _NO_LABELS}
    joint, first = {}, {}
    total = split.num_views * len(split.scenes)
    with passes.progress(f"{split.name}, 1 to {split.num_views} views", total) as bar:
        for count in range(1, split.num_views + 1):
            fewer = dataclasses.replace(split, num_views=count)
            scores = metrics.score_scenes(_whole_and_first(model, params, fewer, bar))
            joint[count] = metrics.summarize(scores[::2])["pooled"]
            first[count] = metrics.summarize(scores[1::2])["pooled"]
    curves = {"all_views": joint, "first_view": first}
    found = {name: metrics.constancy.curves(x) for name, x in curves.items()}
    found = {name: {k: v.tolist() for k, v in x.items()} for name, x in found.items()}
    del found["first_view"]["oca"]
    counts = [x.pop("num_views") for x in found.values()]
    return {"num_views": counts[0], **found}


def _whole_and_first(
    model: Ocloc, params: PyTree, split: passes.Split, bar: Any
) -> Iterator[dict[str, Any]]:
    """Each scene twice: as it was seen, and its first view only."""
    for prediction in split.predictions(model, params, seed=0):
        yield prediction.arrays
        yield metrics.constancy.first_views(prediction.arrays, 1)
        bar.update()
