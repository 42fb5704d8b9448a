"""The published tables: single values, completeness, the averages of the paper."""

import numpy as np
import pytest

from ocloc_jax import metrics
from ocloc_jax.metrics import published


@pytest.mark.parametrize(
    ("dataset", "split", "method", "name", "score"),
    [
        ("CLEVR", "test", "OCLOC", "ari_a", (0.791, 2e-6)),
        ("CLEVR", "test", "Ablation", "ooa", (0.970, 1e-16)),
        ("SHOP", "test", "MulMON", "oca", (0.054, 3e-2)),
        ("GSO", "test", "OCLOC", "iou", (0.746, 4e-7)),
        ("ShapeNet", "test", "SAVi (video)", "ari_o", (0.112, 3e-3)),
        ("CLEVR", "test_general", "OCLOC", "f1", (0.602, 4e-8)),
        ("SHOP", "test_general", "Ablation", "ooa", (0.889, 4e-4)),
        ("GSO", "test_general", "SIMONe", "ami_o", (0.340, 3e-5)),
        ("ShapeNet", "test_general", "OCLOC", "ami_a", (0.611, 3e-6)),
        ("ShapeNet", "test_general", "SAVi", "iou", None),
    ],
)
def test_values(dataset: str, split: str, method: str, name: str, score: tuple | None):
    assert published.table(dataset.lower(), split)[method][name] == score


def test_tables_are_complete():
    for dataset in published.DATASETS:
        for split in published.SPLITS:
            rows = published.table(dataset, split)
            assert tuple(rows) == published.METHODS
            for method, scores in rows.items():
                assert tuple(scores) == metrics.METRICS
                missing = {name for name, score in scores.items() if score is None}
                amodal = method in ("Ablation", "OCLOC")
                assert missing == (set() if amodal else {"iou", "f1", "ooa"})
                known = [score for score in scores.values() if score]
                assert all(0 <= s.mean <= 1 and 0 <= s.sd < 0.1 for s in known)


@pytest.mark.parametrize(
    ("pair", "split", "means"),
    [
        # The paper's main text: averages over two datasets each, rows of OCLOC.
        (
            ("CLEVR", "SHOP"),
            "test",
            [0.734, 0.650, 0.859, 0.881, 0.606, 0.722, 0.205, 0.890],
        ),
        (
            ("GSO", "ShapeNet"),
            "test",
            [0.831, 0.738, 0.934, 0.911, 0.707, 0.817, 0.715, 0.965],
        ),
        (
            ("CLEVR", "SHOP"),
            "test_general",
            [0.545, 0.548, 0.817, 0.844, 0.449, 0.572, 0.175, 0.794],
        ),
        (
            ("GSO", "ShapeNet"),
            "test_general",
            [0.708, 0.641, 0.816, 0.810, 0.562, 0.686, 0.260, 0.918],
        ),
    ],
)
def test_averages(pair: tuple[str, str], split: str, means: list[float]):
    rows = [published.table(dataset, split)["OCLOC"] for dataset in pair]
    found = [np.mean([row[name].mean for row in rows]) for name in metrics.METRICS]
    np.testing.assert_allclose(found, means, atol=0.00101)  # both were rounded


def test_unknown_tables_are_refused():
    with pytest.raises(ValueError, match="Nothing was published for dataset 'clevr2'"):
        published.table("clevr2", "test")
