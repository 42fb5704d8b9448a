"""One compared key, and how far a value may be from the golden one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Arrays = Mapping[str, np.ndarray]


class Row(NamedTuple):
    """Error of one key beside what is allowed."""

    key: str
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        """False also where the error is not a number."""
        return bool(self.error <= self.allowed)


def compare_value(key: str, ours: Any, arrays: Arrays) -> Row:
    """Compares one stored key by the largest absolute error.

    Allowed is 8 times the error of the released program's own float32 against
    float64, or 2e-5 of the largest value, whichever is more.
    """
    expected = np.asarray(arrays[key], np.float64)
    rounding, largest = _float32_error(key, arrays, expected)
    allowed = max(8 * rounding, 2e-5 * max(1.0, largest))
    if ours is None:
        return Row(f"{key} (not computed)", float("inf"), allowed)
    ours = _subsample(key, np.asarray(ours, np.float64))
    if ours.size != expected.size:
        return Row(f"{key} (shape {ours.shape})", float("inf"), allowed)
    error = np.abs(ours.reshape(expected.shape) - expected)
    return Row(key, float(error.max(initial=0.0)), allowed)


def _float32_error(
    key: str, arrays: Arrays, expected: np.ndarray
) -> tuple[float, float]:
    row = arrays.get(f"f32err/{key}")
    if row is None:
        return 0.0, float(np.abs(expected).max(initial=0.0))
    return float(row[0]), float(row[1])


def _subsample(key: str, value: np.ndarray) -> np.ndarray:
    """Applies the spatial stride of keys that end in `@s<stride>`."""
    _, _, stride = key.partition("@s")
    if not stride:
        return value
    step = slice(None, None, int(stride))
    # Features are [images, h, w, c]; maps are [b, m, k, h, w] with or without c.
    start = 1 if key.startswith("enc/") else 3
    index = (slice(None),) * start + (step, step)
    return value[index]
