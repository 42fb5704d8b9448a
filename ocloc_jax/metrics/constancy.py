"""Whether an object stays the same object across viewpoints.

All functions take what `metrics.score_scene` returns for the scenes of a split, so the
pixels are counted once. None of them needs the views to be in any order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from ocloc_jax.metrics import scoring

# Arrays of a scene without a leading axis of views.
_WITHOUT_VIEWS = ("presence", "num_objects")


def identity_switch_rate(
    scores: Sequence[scoring.SceneScores], min_pixels: int = 1
) -> dict[str, float]:
    """How often an object is drawn by another slot in another view.

    In a view the slot of an object is the one that wins most of the object's visible
    pixels (arg-max over object slots; a tie goes to the first). For every object and
    every pair of views that both show it, a switch is two different slots.

    Args:
      scores: Scenes.
      min_pixels: Visible pixels from which on a view shows an object.

    Returns:
      `rate` (nan if no object is seen twice), `num_switches`, `num_pairs`.
    """
    switches = pairs = 0
    for scene in scores:
        table = scene.partition.objects[:, :-1]
        shown = table.sum(axis=-1) >= max(min_pixels, 1)
        slot = table.argmax(axis=-1)
        switched, both = _pairs_of_views(slot, shown)
        switches, pairs = switches + switched, pairs + both
    rate = switches / pairs if pairs else float("nan")
    return {"rate": rate, "num_switches": float(switches), "num_pairs": float(pairs)}


def _pairs_of_views(
    slot: Int64[np.ndarray, "v n"], shown: Bool[np.ndarray, "v n"]
) -> tuple[int, int]:
    first, second = np.triu_indices(len(slot), k=1)
    both = shown[first] & shown[second]
    switched = both & (slot[first] != slot[second])
    return int(switched.sum()), int(both.sum())


def hidden_recall(
    scores: Sequence[scoring.SceneScores], max_visible: float = 0.0
) -> dict[str, float]:
    """How much of an object's complete shape is known in views where it is hidden.

    A view hides an object if the object is in the picture (its complete shape is not
    empty) but at most the share `max_visible` of that shape can be seen. Only objects
    that some view shows better count: the others nobody can know.

    Args:
      scores: Scenes with complete shapes on both sides.
      max_visible: Largest visible share of a hidden object.

    Returns:
      `recall`, the share of all hidden area that the matched slots cover; `num_views`,
      the number of pairs of object and view behind it. nan and 0 if nothing is hidden.
    """
    covered = area = 0.0
    num_views = 0
    for scene in scores:
        if scene.area is None or scene.intersection is None:
            raise ValueError("Recall needs `masks` and `shape` in every scene.")
        visible = scene.partition.everything[:, :-1].sum(axis=-1)
        hidden = (scene.area > 0) & (visible <= max_visible * scene.area)
        shown_elsewhere = ((scene.area > 0) & ~hidden).any(axis=0)
        hidden &= shown_elsewhere[None]
        covered += float(scene.intersection[hidden].sum())
        area += float(scene.area[hidden].sum())
        num_views += int(hidden.sum())
    recall = covered / area if area else float("nan")
    return {"recall": recall, "num_views": float(num_views)}


def first_views(scene: Mapping[str, Any], num_views: int) -> dict[str, Any]:
    """Keeps the first views of all arrays of one scene."""
    available = len(scene["segment"])
    if not 1 <= num_views <= available:
        raise ValueError(f"Cannot keep {num_views} of {available} views.")
    return {
        key: value if key in _WITHOUT_VIEWS or value is None else value[:num_views]
        for key, value in scene.items()
    }


def accuracy_by_views(
    scenes: Mapping[int, Iterable[Mapping[str, Any]]], kind: str = "pooled"
) -> dict[str, np.ndarray]:
    """Curves of the scores against the number of views.

    Args:
      scenes: For each number of views the scenes predicted from so many, as for
        `metrics.evaluate_scenes`. To judge one prediction on fewer of its views,
        cut it with `first_views`.
      kind: `pooled` or `per_scene`.

    Returns:
      `num_views` in ascending order, and for each score as many values.
    """
    results = {n: scoring.evaluate_scenes(s)[kind] for n, s in scenes.items()}
    return curves(results)


def curves(results: Mapping[int, Mapping[str, float]]) -> dict[str, np.ndarray]:
    """The same from the averages for each number of views."""
    order = sorted(results)
    for count in order:
        if count < 1:
            raise ValueError(f"{count} is no number of views.")
    names = results[order[0]]
    found = {name: np.array([results[n][name] for n in order]) for name in names}
    return {"num_views": np.array(order), **found}
