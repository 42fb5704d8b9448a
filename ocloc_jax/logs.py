"""What a run leaves to be read: JSON lines, and one live line on the terminal."""

import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import tqdm


class JsonLines:
    """Appends rows of numbers to a file, one JSON object per line."""

    def __init__(self, path: pathlib.Path, *, keep_until: int):
        """Opens the file; rows after step `keep_until` are about to be made again."""
        self._path = path
        if path.exists():
            rows = [row for row in read_json_lines(path) if row["step"] <= keep_until]
            partial = path.with_suffix(".partial")
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(partial, path)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds one row; numbers that are not finite become null."""
        row = {"step": step, "time": round(time.time(), 3)}
        row |= {name: _plain(value) for name, value in values.items()}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """All complete rows; a line cut short by a crash is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _plain(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


class StageLog:
    """Rows of a stage, and a live line with rate, time left, loss and ARI."""

    def __init__(self, name: str, path: pathlib.Path, start: int, end: int):
        """Goes on after step `start`."""
        self._name, self._shown = name, {}
        self._rows = JsonLines(path, keep_until=start)
        self._bar = tqdm.tqdm(
            total=end,
            initial=start,
            desc=name,
            unit="step",
            dynamic_ncols=True,
            # In a log file a line now and then is enough.
            mininterval=0.5 if sys.stderr.isatty() else 20,
        )

    def train(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Logs what a training step returned."""
        self._rows.write(step, {f"train/{k}": v for k, v in metrics.items()})
        self._show(loss=f"{float(metrics['loss']):.1f}")

    def validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Logs a validation."""
        self._rows.write(step, {f"validation/{k}": v for k, v in scores.items()})
        self._show(validation=f"{scores['loss']:.1f}")
        if "ari_obj_m" in scores:
            self._show(ARI_O=f"{scores['ari_obj_m']:.2f}")
            self._show(ARI_A=f"{scores['ari_all_m']:.2f}")

    def advance(self) -> None:
        """Counts one step."""
        self._bar.update()

    def close(self) -> None:
        """Leaves the line as it is."""
        self._bar.close()

    def _show(self, **values: str) -> None:
        self._shown |= values
        self._bar.set_postfix(self._shown, refresh=False)
