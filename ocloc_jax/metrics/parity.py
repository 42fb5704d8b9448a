"""Comparison with a file of reference scores (`in/*` arrays, `out/*` scores)."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ocloc_jax.metrics import scoring

ALLOWED = 1e-6
# Names in the files, and ours.
NAMES = {
    "ari_all": "ari_a",
    "ami_all": "ami_a",
    "ari_obj": "ari_o",
    "ami_obj": "ami_o",
    "iou": "iou",
    "f1": "f1",
    "oca": "oca",
    "ooa": "ooa",
}
Row = tuple[str, float, float]


def is_metrics_file(npz: Mapping[str, np.ndarray]) -> bool:
    """Whether the arrays are those of a metrics file."""
    return "in/segment" in npz


def compare_metrics_file(
    npz: str | pathlib.Path | Mapping[str, np.ndarray],
) -> list[Row]:
    """Scores the inputs of a reference file and compares every number in it.

    Args:
      npz: The opened file, a mapping of its arrays, or its path.

    Returns:
      Rows `(key, largest absolute error, allowed error)`; nan must meet nan, else
      the error is inf.
    """
    if isinstance(npz, str | pathlib.Path):
        with np.load(npz, allow_pickle=False) as opened:
            npz = {key: opened[key] for key in opened.files}
    if not is_metrics_file(npz):
        raise ValueError("There is no `in/segment`: this is not a file of metrics.")
    passes = [_score_pass(npz, index) for index in range(len(npz["in/mask"]))]
    summaries = [scoring.summarize(scores) for scores in passes]
    rows = []
    for key, reference in npz.items():
        if not key.startswith("in/"):
            found = np.asarray(_number(key, reference, passes, summaries))
            rows.append((key, _error(found, reference), _allowed(reference)))
    return rows


def _score_pass(npz: Mapping[str, np.ndarray], index: int) -> list[scoring.SceneScores]:
    truth = {key: npz[f"in/{key}"] for key in ("segment", "overlap")}
    # The files keep a trailing channel axis and the background's shape and presence.
    truth["masks"] = npz["in/masks"][..., 0]
    arrays = {
        **truth,
        "mask": npz["in/mask"][index, ..., 0],
        "shape": npz["in/shp"][index, :, :, :-1, ..., 0],
        "presence": npz["in/pres"][index, :, :-1],
        "order": npz["in/log_ord"][index, ..., 0],
    }
    scenes = range(len(truth["segment"]))
    return [
        scoring.score_scene({key: value[scene] for key, value in arrays.items()})
        for scene in scenes
    ]


def _number(
    key: str,
    reference: np.ndarray,
    passes: list[list[scoring.SceneScores]],
    summaries: list[dict[str, Any]],
) -> Any:
    """Our side of one key; scores are arrays over passes (and scenes)."""
    if key == "out/order_all":
        return [[scene.matching for scene in scores] for scores in passes]
    if key == "out/binary_mat_true":
        return [scene.true_order for scene in passes[0]]
    kind, _, name = key.partition("/")
    single = re.fullmatch(r"scene(\d+)", kind)
    if name not in NAMES or not (single or kind in ("out", "per_scene")):
        raise ValueError(f"No known meaning for the key {key!r}.")
    if kind == "out":
        return [summary["pooled"][NAMES[name]] for summary in summaries]
    scenes = np.array([summary["scenes"][NAMES[name]] for summary in summaries])
    return scenes[:, int(single[1])] if single else scenes[:, : reference.shape[1]]


def _error(found: np.ndarray, reference: np.ndarray) -> float:
    if found.shape != reference.shape:
        return float("inf")
    unknown = np.isnan(reference)
    if (np.isnan(found) != unknown).any():
        return float("inf")
    difference = np.where(unknown, 0.0, np.nan_to_num(found - reference))
    return float(np.abs(difference).max(initial=0.0))


def _allowed(reference: np.ndarray) -> float:
    # Matchings and orders are whole numbers: they are right or wrong.
    return 0.0 if reference.ndim > 2 else ALLOWED
