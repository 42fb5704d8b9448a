"""Gradients of the objective against those of the released program."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ocloc_jax import released
from ocloc_jax.parity.golden import Case
from ocloc_jax.parity.rows import Row

TOLERANCE = 2e-4  # relative L2 error of each parameter's gradient

_QUERY_BIAS = "enc.net_slot.net_qry.0.bias"
_ORDER = "dec.net_obj_misc.2.0"
_SCALED = ("enc.net_feat.", "dec.")  # what ratio_dec holds back


def compare_gradients(case: Case, gradients: Any) -> Iterator[Row]:
    """Yields rows for every parameter and for the two global norms."""
    ours = released.to_released(jax.tree.map(np.asarray, gradients), case.model.sizes)
    for index, name in enumerate(case.param_names):
        yield from _compare_one(case, name, index, ours[name].astype(np.float64))
    norms = {"grad_norm": 1.0, "grad_norm_after_ratio_dec": _ratio_dec(case)}
    for key, ratio in norms.items():
        expected = float(case.arrays[key])
        error = abs(_global_norm(ours, ratio) - expected)
        yield Row(key, error / expected, TOLERANCE)


def _compare_one(case: Case, name: str, index: int, ours: np.ndarray) -> Iterator[Row]:
    arrays, flat = case.arrays, ours.reshape(-1)
    zero = exactly_zero(case, name, ours.shape).reshape(-1)
    if f"grad/{name}" in arrays:
        key, expected = f"grad/{name}", arrays[f"grad/{name}"].reshape(-1)
    else:
        key, where = f"gsub/{name}", arrays[f"gidx/{name}"]
        expected, flat, zero = arrays[f"gsub/{name}"], flat[where], zero[where]
    expected = expected.astype(np.float64)
    if zero.any():
        yield Row(f"{key} (zero)", np.abs(flat[zero]).max(), _rounding(case, key))
    if not zero.all():
        difference = np.linalg.norm((flat - expected)[~zero])
        size = np.linalg.norm(expected[~zero])
        yield Row(key, difference / size if size else difference, TOLERANCE)
        yield _compare_statistics(case, name, index, ours)


def _compare_statistics(case: Case, name: str, index: int, ours: np.ndarray) -> Row:
    """Norm, sum and a random projection of the whole gradient, in units of its norm."""
    norm, total, projection = case.arrays[f"gstat/{name}"]
    flat = ours.reshape(-1)
    direction = np.random.default_rng([2024, index]).standard_normal(flat.size)
    errors = (
        abs(np.linalg.norm(flat) - norm),
        abs(flat.sum() - total) / np.sqrt(flat.size),
        abs(flat @ direction - projection) / 4,  # as many sigma as an L2 error may give
    )
    return Row(f"gstat/{name}", max(errors) / norm if norm else max(errors), TOLERANCE)


def exactly_zero(case: Case, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Entries whose gradient vanishes, so that float32 shows only its rounding."""
    zero = np.zeros(shape, bool)
    if name == _QUERY_BIAS:
        zero[:] = True  # cancels in the softmax over slots
    if name == f"{_ORDER}.bias":
        zero[0] = True  # all orders move together
    no_noise = case.model.shadows is False or case.coefficients.ratio_mixture == 1
    if name.startswith(_ORDER) and no_noise:
        zero[1:] = True  # positions place the appearance noise and nothing else
    return zero


def _rounding(case: Case, key: str) -> float:
    """What rounding may leave of a gradient that is exactly zero."""
    row = case.arrays.get(f"f32err/{key}")
    own = 8 * float(row[0]) if row is not None else 0.0
    return max(own, 2e-5, 1e-7 * float(case.arrays["grad_norm"]))


def _ratio_dec(case: Case) -> float:
    return float(case.coefficients.ratio_dec)


def _global_norm(gradients: dict[str, np.ndarray], ratio: float) -> float:
    def scale(name: str) -> float:
        return ratio if name.startswith(_SCALED) else 1.0

    squares = (
        np.square(scale(name) * g.astype(np.float64)).sum()
        for name, g in gradients.items()
    )
    return float(np.sqrt(sum(squares)))
