"""Scores of multi-view scenes: plain arrays in, a dict of numbers out."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from ocloc_jax.metrics import amodal, clustering, counting, validation

METRICS = ("ari_a", "ami_a", "ari_o", "ami_o", "iou", "f1", "oca", "ooa")
# Where the two kinds of average differ: sums over the split, and their weights.
_POOLED_SUMS = {
    "iou": ("iou_sum", "num_objects"),
    "f1": ("f1_sum", "num_objects"),
    "ooa": ("order_right", "order_weight"),
    "mse": ("squared_error", "num_values"),
}


@dataclasses.dataclass(frozen=True)
class SceneScores:
    """Everything about one scene that the averages of a split are made of.

    Attributes:
      values: Numbers of this scene alone, nan where one has no meaning.
      sums: Numerators and denominators of the pooled averages.
      matching: Slot of each object; this and what follows only where it is known.
      partition: Tables of the two partitions, view by view.
      object_iou: IoU of each object, nan where it does not exist.
      object_f1: F1 of each object.
      true_order: +1 / -1 / 0 for each view and pair of objects.
      area: Area of each true complete shape in each view.
      intersection: The part of it that the matched slot's shape covers.
    """

    values: dict[str, float]
    sums: dict[str, float]
    matching: np.ndarray | None = None
    partition: counting.PartitionTables | None = None
    object_iou: np.ndarray | None = None
    object_f1: np.ndarray | None = None
    true_order: np.ndarray | None = None
    area: np.ndarray | None = None
    intersection: np.ndarray | None = None


def score_scene(scene: Mapping[str, Any]) -> SceneScores:
    """Scores one scene.

    Args:
      scene: The arrays of `evaluate` without the leading scene axis.

    Returns:
      The scores and what is needed to average them.
    """
    if scene.get("segment") is None and scene.get("reconstruction") is not None:
        return _score_images(scene)
    arrays = validation.checked_scene(scene)
    tables = counting.partition_tables(
        arrays.segment,
        arrays.is_object,
        counting.aligned(arrays.mask),
        arrays.num_objects,
    )
    matching = amodal.match(tables.overlap.sum(axis=0))
    sums, details = _amodal_scores(arrays, matching)
    sums |= _image_sums(arrays.image, arrays.reconstruction)
    values = _partition_scores(tables)
    values["oca"] = _counts_right(arrays.presence, tables)
    for name, (top, bottom) in _POOLED_SUMS.items():
        values[name] = _ratio(sums.get(top, 0.0), sums.get(bottom, 0.0))
    values["psnr"] = _psnr(values["mse"])
    return SceneScores(values, sums, matching, tables, **details)


def _amodal_scores(
    arrays: validation.Scene, matching: np.ndarray
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Sums and details of complete shapes and order, as far as they are given."""
    if arrays.masks is None:
        return {}, {}
    masks = counting.aligned(arrays.masks)
    shapes = counting.shape_tables(arrays.segment, masks)
    true_order = amodal.true_order(shapes.shared, shapes.owned)
    sums, details = {}, {"true_order": true_order, "area": shapes.area}
    if arrays.shape is not None:
        shape = counting.aligned(arrays.shape)
        both, predicted = counting.intersections(masks, shape, matching)
        areas = (both, shapes.area, predicted)
        iou, f1 = amodal.shape_scores(*(area.sum(axis=0) for area in areas))
        details |= {"intersection": both, "object_iou": iou, "object_f1": f1}
        sums |= {"iou_sum": float(np.nansum(iou)), "f1_sum": float(np.nansum(f1))}
        sums["num_objects"] = float((~np.isnan(iou)).sum())
    if arrays.order is not None:
        guess = amodal.predicted_order(arrays.order[:, matching])
        right, weight = amodal.order_weights(shapes.shared, true_order, guess)
        sums |= {"order_right": float(right), "order_weight": float(weight)}
    return sums, details


def _image_sums(
    image: np.ndarray | None, reconstruction: np.ndarray | None
) -> dict[str, float]:
    if image is None or reconstruction is None:
        return {}
    error = np.square(image - reconstruction, dtype=np.float64)
    return {"squared_error": float(error.sum()), "num_values": float(error.size)}


def _score_images(scene: Mapping[str, Any]) -> SceneScores:
    """Without labels a reconstruction is all that can be judged."""
    sums = _image_sums(*validation.checked_images(scene))
    mse = _ratio(sums["squared_error"], sums["num_values"])
    values = dict.fromkeys(METRICS, float("nan")) | {"mse": mse, "psnr": _psnr(mse)}
    return SceneScores(values, sums)


def _partition_scores(tables: counting.PartitionTables) -> dict[str, float]:
    everything, objects = tables.everything.sum(axis=0), tables.objects.sum(axis=0)
    # An empty column changes nothing; with it both tables go through in one call.
    both = np.stack([everything, np.pad(objects, [(0, 0), (0, 1)])])
    ari_a, ari_o = clustering.adjusted_rand_index(both).tolist()
    ami_a, ami_o = clustering.adjusted_mutual_information(both).tolist()
    return {"ari_a": ari_a, "ami_a": ami_a, "ari_o": ari_o, "ami_o": ami_o}


def _counts_right(
    presence: np.ndarray | None, tables: counting.PartitionTables
) -> float:
    if presence is None:
        return float("nan")
    seen = (tables.everything.sum(axis=(0, 2))[:-1] > 0).sum()
    return float((presence >= 0.5).sum() == seen)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else float("nan")


def _psnr(mse: float) -> float:
    """Peak signal-to-noise ratio in dB of values in [0, 1]; inf for no error."""
    with np.errstate(divide="ignore"):
        return float(-10 * np.log10(mse))


def summarize(scores: Sequence[SceneScores]) -> dict[str, Any]:
    """Averages scenes both ways.

    Args:
      scores: Scenes of one split, from `score_scene`.

    Returns:
      `pooled` (how the published tables were made), `per_scene` (the formulas of the
      paper: the mean of the scenes that have the score), `scenes` (one number per
      scene and score), `num_scenes`.
    """
    if not scores:
        raise ValueError("There are no scenes to average: give at least one.")
    names = scores[0].values
    scenes = {name: np.array([s.values[name] for s in scores]) for name in names}
    per_scene = {name: _mean(values) for name, values in scenes.items()}
    pooled = dict(per_scene)
    for name, (top, bottom) in _POOLED_SUMS.items():
        sums = (sum(s.sums.get(key, 0.0) for s in scores) for key in (top, bottom))
        pooled[name] = _ratio(*sums)
    pooled["psnr"] = _psnr(pooled["mse"])
    return {
        "pooled": pooled,
        "per_scene": per_scene,
        "scenes": scenes,
        "num_scenes": len(scores),
    }


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def score_scenes(
    scenes: Iterable[Mapping[str, Any]], num_threads: int = 2
) -> list[SceneScores]:
    """Scores scenes as they come, so that a split needs the memory of a few scenes.

    Args:
      scenes: For each scene the arrays of `evaluate` without the scene axis.
      num_threads: Scenes in work at a time; one counts while another is averaged.
    """
    waiting: collections.deque[futures.Future[SceneScores]] = collections.deque()
    scores = []
    with futures.ThreadPoolExecutor(num_threads) as pool:
        for scene in scenes:
            waiting.append(pool.submit(score_scene, scene))
            if len(waiting) > num_threads:
                scores.append(waiting.popleft().result())
        scores.extend(future.result() for future in waiting)
    return scores


def evaluate_scenes(
    scenes: Iterable[Mapping[str, Any]], num_threads: int = 2
) -> dict[str, Any]:
    """The dict of `summarize` for scenes that come one by one, as `score_scenes`."""
    return summarize(score_scenes(scenes, num_threads))


def evaluate(**arrays: Any) -> dict[str, Any]:
    """Scores scenes that are already stacked along a leading axis `s`.

    8-bit maps are 0..255, float maps in [0, 1]. `n` is the largest number of objects
    of the split, `k` the number of object slots, with `k >= n`. What a method does
    not predict may be left out (or None); its scores are nan. Without `segment` only
    `mse` and `psnr` are numbers.

    Args:
      **arrays: By keyword:
        segment: uint8 `[s, v, h, w]`, the visible object; `n` is the background.
        mask: `[s, v, k+1, h, w]`, predicted partition, background last.
        overlap: `[s, v, h, w]`, number of objects covering the pixel. Without it the
          object pixels are those where `segment < n`.
        masks: `[s, v, n+1, h, w]`, true complete shapes, background last.
        num_objects: `n`, only needed without `masks`.
        shape: `[s, v, k, h, w]`, predicted complete shapes, presence included.
        presence: `[s, k]`, probability or 8 bit.
        order: `[s, v, k]`, larger is nearer to the camera.
        image, reconstruction: `[s, v, h, w, c]`, uint8 or float in [0, 1].

    Returns:
      The dict of `summarize`.
    """
    return evaluate_scenes(validation.split_scenes(arrays))


def mean_and_deviation(passes: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation (of the population) over inference passes."""
    stacked = {name: [scores[name] for scores in passes] for name in passes[0]}
    return {
        name: {"mean": float(np.mean(values)), "sd": float(np.std(values))}
        for name, values in stacked.items()
    }
