"""Coefficients that change during training, as piecewise functions of the step.

A schedule is plain data: `dict(steps=(1, 50_000), values=(0.0, 1.0), scale="linear")`.
Outside its knots it keeps the nearest value. Steps are counted from 1, so the first
update of a run is made with the coefficients of step 1.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Step = Int[Array, ""] | Float[Array, ""] | int
Table = Mapping[str, Mapping[str, Any]]

SCALES = ("linear", "log")


@flax.struct.dataclass
class Coefficients:
    """Everything that is annealed; the defaults are the values at the end.

    With the defaults the released objective is the ELBO (and the paper's model),
    without regularisers.
    """

    temp_pres: Float[Array, ""] | float = 1.0
    temp_shp: Float[Array, ""] | float = 1.0
    noise_scale: Float[Array, ""] | float = 0.0
    noise_min: Float[Array, ""] | float = 0.0
    noise_max: Float[Array, ""] | float = 0.0
    ratio_imp_sdw: Float[Array, ""] | float = 0.0
    ratio_mixture: Float[Array, ""] | float = 1.0
    ratio_stick_breaking: Float[Array, ""] | float = 1.0
    reg_bck: Float[Array, ""] | float = 0.0
    reg_pres: Float[Array, ""] | float = 0.0
    reg_shp: Float[Array, ""] | float = 0.0
    reg_sdw: Float[Array, ""] | float = 0.0
    reg_sdw_ratio: Float[Array, ""] | float = 0.0
    sched_kld: Float[Array, ""] | float = 1.0
    ratio_dec: Float[Array, ""] | float = 1.0


NAMES = tuple(field.name for field in dataclasses.fields(Coefficients))


def coefficients(table: Table, step: Step) -> Coefficients:
    """Evaluates a table at a step, inside or outside jit."""
    return Coefficients(**{k: interpolate(step=step, **v) for k, v in table.items()})


def is_never(weight: Float[Array, ""] | float) -> bool:
    """Whether a weight is 0 at every step: a number of no schedule."""
    return isinstance(weight, (int, float)) and weight == 0


def interpolate(
    steps: tuple[int, ...],
    values: tuple[float, ...],
    scale: str = "linear",
    *,
    step: Step,
) -> Float[Array, ""]:
    """Piecewise linear between knots, or linear in the logarithm of the value.

    Written as choices between numbers, not as a look-up (`jnp.interp`): XLA copies it
    into every loop over pixels that uses the coefficient, and a loop with a look-up in
    it took ten times as long on CPU.
    """
    step = jnp.asarray(step, jnp.float32)
    ends = np.log(values) if scale == "log" else np.asarray(values, np.float64)
    slopes = np.diff(ends) / np.diff(steps)
    value = jnp.float32(ends[-1])
    for i in reversed(range(len(slopes))):
        between = ends[i] + slopes[i] * (step - steps[i])
        value = jnp.where(step < steps[i + 1], between, value)
    value = jnp.where(step < steps[0], ends[0], value)
    return jnp.exp(value) if scale == "log" else value


def learning_rate(
    base: float,
    *,
    num_steps: int,
    decay: float,
    warmup_steps: int,
    scale: str = "log",
) -> Any:
    """An optax schedule of the number of updates made so far.

    Falls to `base * decay` after `num_steps`, exponentially as published ("log") or in
    a straight line ("linear"), after a linear warm-up whose first update has learning
    rate 0.
    """

    def schedule(count: Step) -> Float[Array, ""]:
        count = jnp.asarray(count, jnp.float32)
        warmup = jnp.minimum(count / warmup_steps, 1.0) if warmup_steps else 1.0
        share = count / num_steps
        if scale == "linear":
            return base * (1 - (1 - decay) * share) * warmup
        return base * jnp.float32(decay) ** share * warmup

    return schedule


def check_table(table: Table) -> None:
    """Stops with a sentence about the first schedule that cannot be evaluated."""
    for name, schedule in table.items():
        if name not in NAMES:
            raise ValueError(
                f"Unknown coefficient {name!r}; known ones: {', '.join(NAMES)}."
            )
        _check_schedule(name, **schedule)


def _check_schedule(
    name: str,
    steps: tuple[int, ...],
    values: tuple[float, ...],
    scale: str = "linear",
) -> None:
    if len(steps) != len(values) or not steps:
        raise ValueError(
            f"Coefficient {name!r} has {len(steps)} steps and {len(values)} values; "
            "give one value for each step."
        )
    if any(b <= a for a, b in zip(steps, steps[1:], strict=False)):
        raise ValueError(f"Steps of coefficient {name!r} must increase: {steps}.")
    if scale not in SCALES:
        raise ValueError(f"Scale of {name!r} is {scale!r}; use 'linear' or 'log'.")
    if scale == "log" and min(values) <= 0:
        raise ValueError(
            f"Coefficient {name!r} is interpolated in its logarithm, so its values "
            f"must be positive: {values}."
        )
