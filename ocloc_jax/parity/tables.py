"""Schedules and initial weights against the released program's."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ocloc_jax import recipes, released, schedules
from ocloc_jax.models.initial import init
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.parity.golden import SIZES, Case
from ocloc_jax.parity.rows import Arrays, Row

_KL_WEIGHTS = {"kld_view": 1.0, "kld_bck": 2.0, "kld_obj": 1.0, "kld_pres": 1.0}
_TOLERANCE = 1e-6  # of the largest value that a coefficient takes


def compare_coefficients(case: Case) -> Iterator[Row]:
    """Compares the coefficients of a model case with our recipe at its step."""
    table = recipes.coefficients(case.meta["kind"], case.meta["mode"])
    ours = _all_coefficients(table, np.array([case.meta["step"]]))
    for name, value in ours.items():
        key = f"coef/{name}"
        if key in case.arrays:
            yield _row(key, value, case.arrays[key][None], _peak(table, name))


def compare_schedules(arrays: Arrays) -> Iterator[Row]:
    """Compares every coefficient and learning rate at the stored steps."""
    for recipe in sorted({key.split("/")[0] for key in arrays}):
        family, stage = recipe.split("_")
        table = recipes.coefficients(family, stage)
        steps = arrays[f"{recipe}/step"]
        for name, value in _all_coefficients(table, steps).items():
            key = f"{recipe}/{name}"
            if key in arrays:
                yield _row(key, value, arrays[key], _peak(table, name))
        options = recipes.learning_rate(family, stage)
        rate = schedules.learning_rate(**options)
        key = f"{recipe}/lr_used_at_step"
        # The first update has made none before it.
        ours = np.array([rate(int(step) - 1) for step in steps])
        yield _row(key, ours, arrays[key], options["base"])


def _all_coefficients(table: recipes.Table, steps: np.ndarray) -> dict[str, Any]:
    def at(step: Any) -> dict[str, Any]:
        return {k: schedules.interpolate(**v, step=step) for k, v in table.items()}

    found = jax.vmap(at)(steps.astype(np.int32))
    values = {name: np.asarray(value) for name, value in found.items()}
    kl = {name: w * values["sched_kld"] for name, w in _KL_WEIGHTS.items()}
    return {"nll": np.ones(len(steps)), **kl, **values}


def _peak(table: recipes.Table, name: str) -> float:
    return max(table[name]["values"]) if name in table else 2.0


def _row(key: str, ours: Any, expected: np.ndarray, peak: float) -> Row:
    return Row(key, float(np.abs(ours - expected).max()), _TOLERANCE * peak)


def compare_initialisation(arrays: Arrays) -> Iterator[Row]:
    """Compares mean, spread and range of initial weights, within sampling error."""
    for kind in sorted({key.split("/")[0] for key in arrays}):
        model = Ocloc(SIZES[kind])
        params = jax.jit(lambda key, model=model: init(model, key))(jax.random.key(0))
        state = released.to_released(jax.tree.map(np.asarray, params), model.sizes)
        names = arrays[f"{kind}/names"]
        stats = arrays[f"{kind}/stats_mean_std_min_max"]
        for name, expected in zip(names, stats, strict=True):
            yield _compare_statistics(f"{kind}/{name}", state[str(name)], expected)


def _compare_statistics(key: str, value: np.ndarray, expected: np.ndarray) -> Row:
    """The worst of the four statistics, in standard errors; six are allowed."""
    mean, std, low, high = expected
    if std == 0:
        return Row(key, float(np.abs(value - mean).max()), 1e-6)
    error = std / np.sqrt(value.size)
    # The extremes of n uniform draws lie within about range / n of the bounds; those
    # of the orthogonal matrix, which look normal, scatter by a fraction of sigma.
    extreme = 0.15 * std if "weight_hh" in key else 8 * std / value.size
    scores = (
        abs(value.mean() - mean) / (np.sqrt(2) * error),
        abs(value.std() - std) / error,
        abs(value.min() - low) / extreme,
        abs(value.max() - high) / extreme,
    )
    return Row(key, float(max(scores)), 6.0)
