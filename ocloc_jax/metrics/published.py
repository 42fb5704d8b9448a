"""The paper's published tables as data: 4 datasets, 2 splits, 6 methods, 8 scores."""

import csv
import functools
from importlib import resources
from typing import NamedTuple

from ocloc_jax.metrics import scoring

DATASETS = ("CLEVR", "SHOP", "GSO", "ShapeNet")
SPLITS = ("test", "test_general")  # Test 1 and Test 2
METHODS = ("SAVi (video)", "SAVi", "SIMONe", "MulMON", "Ablation", "OCLOC")


class Score(NamedTuple):
    """Mean and deviation over the inference passes of one model."""

    mean: float
    sd: float


def table(dataset: str, split: str) -> dict[str, dict[str, Score | None]]:
    """The published rows of one dataset and split.

    Args:
      dataset: One of `DATASETS`, in any case.
      split: `test` (the paper's Test 1) or `test_general` (Test 2).

    Returns:
      Scores by method (in the paper's order) and by the names of `METRICS`; None
      where the paper says N/A.
    """
    known = {name.lower(): name for name in DATASETS}
    if dataset.lower() not in known or split not in SPLITS:
        raise ValueError(
            f"Nothing was published for dataset {dataset!r} and split {split!r}; "
            f"there are {DATASETS} and {SPLITS}."
        )
    rows = _rows()
    return {method: rows[known[dataset.lower()], split, method] for method in METHODS}


@functools.cache
def _rows() -> dict[tuple[str, str, str], dict[str, Score | None]]:
    path = resources.files("ocloc_jax.metrics") / "published.csv"
    with path.open(encoding="utf-8") as file:
        return {
            (row["dataset"], row["split"], row["method"]): {
                name: _score(row[name], row[f"{name}_sd"]) for name in scoring.METRICS
            }
            for row in csv.DictReader(file)
        }


def _score(mean: str, sd: str) -> Score | None:
    return Score(float(mean), float(sd)) if mean else None
