"""What seeds reached, from rows whose answer is known."""

import json

import numpy as np
import pytest

from ocloc_jax import outcomes


def validation(seed, step, loss, ari):
    scores = {"validation/loss": loss, "validation/ari_obj_m": ari}
    return {"step": step, "time": 1.0, "seed": seed, **scores}


ROWS = [
    {"step": 1, "time": 0.0, "seed": 7, "train/loss": 9.0},
    {"step": 1, "time": 0.0, "seed": 8, "train/loss": 9.0},
    {"step": 2, "time": 0.0, "seed": 8, "train/loss": 8.0},
    validation(7, 2, 5.0, 0.9),
    validation(7, 4, 3.0, 0.7),  # the objective decides, not the score
    validation(8, 2, 2.0, 0.85),
    validation(8, 4, None, 0.95),  # not a number
    {"step": 4, "time": 1.0, "validation/loss": 1.0, "validation/ari_obj_m": 1.0},
]


def test_comparison_of_two_seeds():
    result = outcomes.compare(ROWS, threshold=0.8)
    expected = {"step": 4, "last_step": 1, "loss": 3.0, "ari_obj_m": 0.7}
    assert result["seeds"][7] == expected
    assert result["seeds"][8]["step"] == result["seeds"][8]["last_step"] == 2
    assert result["best_seed"] == 8
    assert result["mean"] == pytest.approx({"loss": 2.5, "ari_obj_m": 0.775})
    deviation = {"loss": np.sqrt(0.5), "ari_obj_m": 0.15 / np.sqrt(2)}
    assert result["sd"] == pytest.approx(deviation)
    assert result["success"] == {"ari_o": 0.8, "seeds": [8], "rate": 0.5}


def test_table_and_file(tmp_path, capsys):
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "metrics.jsonl").write_text(text)
    outcomes.write(tmp_path, 0.8)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| seed | best step | objective | ARI-O |"
    assert lines[2] == "| 7 | 4 | 3.0 | 0.700 |"
    assert lines[4] == "| mean ± sd |  | 2.5 ± 0.7 | 0.775 ± 0.106 |"
    assert lines[5] == "1 of 2 seeds (50%) reach ARI-O 0.80 in validation."
    written = json.loads((tmp_path / "seeds.json").read_text())
    assert written["success"]["rate"] == 0.5 and written["seeds"]["8"]["loss"] == 2.0


def test_no_labels_no_success():
    rows = [
        {k: v for k, v in row.items() if k != "validation/ari_obj_m"} for row in ROWS
    ]
    result = outcomes.compare(rows, threshold=0.8)
    assert result["success"] is None
    assert "reach" not in outcomes.table(result)
