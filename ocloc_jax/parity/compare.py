"""Compares golden files of every kind with what our code computes."""

import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ocloc_jax.metrics.parity import compare_metrics_file
from ocloc_jax.parity import golden, gradients, tables, values
from ocloc_jax.parity.rows import Arrays, Row, compare_value

_VALUES = ("enc", "sample", "dec", "loss", "metric")


def compare_file(path: str | pathlib.Path) -> dict[str, Any]:
    """The summary of one file, with all rows under `rows`."""
    rows = compare(golden.load_arrays(path))
    worst = max(rows, key=_badness)
    return {
        "file": str(path),
        "ok": all(row.ok for row in rows),
        "worst": worst._asdict(),
        "keys_compared": len(rows),
        "rows": rows,
    }


def compare(arrays: Arrays) -> list[Row]:
    """Compares whatever kind of golden file the arrays come from."""
    for marker, function in _KINDS.items():
        if marker in arrays:
            return list(function(arrays))
    raise golden.GoldenError(
        f"not a golden file: it has none of the keys {', '.join(_KINDS)}."
    )


def compare_case(arrays: Arrays) -> Iterator[Row]:
    """Compares coefficients, encoder, samples, decoder, losses and gradients."""
    case = golden.load_case(arrays)
    yield from tables.compare_coefficients(case)
    with_gradients = any(key.startswith("gstat/") for key in arrays)
    ours = values.run(case)
    for key in sorted(arrays):
        if key.split("/")[0] in _VALUES:
            yield compare_value(key, ours.get(key.partition("@")[0]), arrays)
    if with_gradients:
        yield from gradients.compare_gradients(case, values.gradient(case))


def _compare_metrics(arrays: Arrays) -> Iterator[Row]:
    return (Row(*row) for row in compare_metrics_file(arrays))


_KINDS: dict[str, Callable[[Arrays], Iterable[Row]]] = {
    "meta": compare_case,
    "blender_single/step": tables.compare_schedules,
    "blender/names": tables.compare_initialisation,
    "in/segment": _compare_metrics,
}


def _badness(row: Row) -> float:
    if not row.error <= float("inf"):  # not a number
        return float("inf")
    return row.error / row.allowed if row.allowed else float(not row.ok)
