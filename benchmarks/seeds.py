"""Runs of one config with different seeds, side by side: scores, success, curves.

python -m benchmarks.seeds "seed 0=runs/demo" "seed 10=runs/demo_10" --figure=curves.png

Prints a table for each split with a row for each run, their mean, and how many of them
pass ARI-O 0.8 on Test 1. The figure shows validation during all stages, the first run
dark and the others pale. Read are `eval/results.json` and `metrics.jsonl` of each run.
"""

import argparse
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import matplotlib
import numpy as np

from benchmarks import ablations
from ocloc_jax.evaluation.tables import HEADS, TITLES

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

PASSED = 0.8  # ARI-O on Test 1, from which on a run counts as a success
DRAWN = {"ari_obj_m": "ARI-O", "ari_all_m": "ARI-A", "count": "OCA"}
STAGES = ("single", "multi")


def main() -> None:
    """Prints the tables, and draws the curves if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--figure", help="where to draw the curves")
    args = parser.parse_args()
    pairs = (run.partition("=")[::2] for run in args.runs)
    runs = {name: pathlib.Path(path) for name, path in pairs}
    for split, title in TITLES.items():
        print(
            table(title, {n: ablations.read_scores(p, split) for n, p in runs.items()})
        )
    passed = [ablations.read_scores(path)["ari_o"] > PASSED for path in runs.values()]
    print(f"{sum(passed)} of {len(passed)} pass ARI-O {PASSED} on Test 1")
    if args.figure:
        draw(list(runs.values()), args.figure)


def table(title: str, rows: Mapping[str, ablations.Scores]) -> str:
    """Scores of each run, their mean and their standard deviation."""
    columns = {head: [scores[head] for scores in rows.values()] for head in HEADS}
    mean = {head: float(np.mean(values)) for head, values in columns.items()}
    spread = {head: float(np.std(values)) for head, values in columns.items()}
    rows = {**rows, "**mean**": mean, "standard deviation": spread}
    return ablations.markdown(title, rows) + "\n"


def draw(runs: list[pathlib.Path], path: str) -> None:
    """Validation against steps over both stages."""
    figure, axes = pyplot.subplots(
        1, len(DRAWN), figsize=(11, 2.8), layout="constrained"
    )
    for i, run in reversed(list(enumerate(runs))):  # the first one on top
        style = dict(color="#1f5fa8", lw=1.6) if i == 0 else dict(color="#b5c7e3", lw=1)
        for axis, key in zip(axes, DRAWN, strict=True):
            for steps, values in curves(run, key):
                axis.plot(steps, values, **style)
    for axis, title in zip(axes, DRAWN.values(), strict=True):
        axis.set(title=title, xlabel="step", ylim=(0, 1))
        axis.grid(color="#e5e5e5")
        axis.locator_params(axis="x", nbins=4)
        axis.axvline(_last_step(runs[0] / STAGES[0]), color="#888888", ls=":", lw=1)
    figure.savefig(path, dpi=100)


def curves(run: pathlib.Path, key: str) -> Iterator[tuple[list[int], list[float]]]:
    """Steps and values of every stage, and there of every seed."""
    begin = 0
    for stage in STAGES:
        found: dict[Any, list[tuple[int, float]]] = {}
        rows = [row for row in _rows(run / stage) if f"validation/{key}" in row]
        several = any("seed" in row for row in rows)
        for row in rows:
            if "seed" in row or not several:  # without one it is the mean of them
                point = begin + row["step"], row[f"validation/{key}"]
                found.setdefault(row.get("seed"), []).append(point)
        for points in found.values():
            steps, values = zip(*points, strict=True)
            yield list(steps), list(values)
        begin += _last_step(run / stage)


def _last_step(stage: pathlib.Path) -> int:
    return _rows(stage)[-1]["step"]


def _rows(stage: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (stage / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    main()
