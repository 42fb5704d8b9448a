"""Curves: of a training run from its `metrics.jsonl`, and lines of any numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ocloc_jax.figures.grid import Picture

_COLUMNS = 3
_INCHES = (3.4, 2.4)
_LINE, _MEAN, _WARNING = "#1f5fa8", "#000000", "#c62828"
_COLOURS = (_LINE, "#d9822b", "#3b7d3b", "#7b4fa3")


def curves(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], step: str = "step"
) -> Picture:
    """Draws each of `keys` against the step, in panels of their own.

    Args:
      rows: Logged values in any order. A row need not hold every key, and rows
        without a step (a header, say) are left out. Rows with a `seed` are drawn as
        a thin line for each seed, those without as the mean.
      keys: What to draw, of which `seed` is left out. One that no row holds gets a
        panel that says so.
      step: Key of the step.
    """
    keys = [key for key in dict.fromkeys(keys) if key != "seed"]
    by_seed = _by_seed(rows)
    whole = by_seed.pop(None)
    drawn = {key: series(whole, key, step) for key in keys}
    figure, axes = _panels(len(keys))
    limits = _limits(np.concatenate([steps for steps, _ in drawn.values()]))
    for axis, (key, (steps, values)) in zip(axes, drawn.items(), strict=True):
        for i, (seed, own) in enumerate(by_seed.items()):
            style = dict(color=f"C{i % 10}", linewidth=0.8, label=f"seed {seed}")
            axis.plot(*series(own, key, step), **style)
        _draw(axis, key, steps, values, _MEAN if by_seed else _LINE)
        axis.set_xlim(*limits)
    if by_seed:
        handles = axes[0].get_lines()[: len(by_seed) + 1]
        columns = 3 * min(_COLUMNS, len(keys))
        place = dict(loc="outside upper center", ncols=columns, fontsize=8)
        figure.legend(handles=handles, **place)
    return _pixels(figure)


def lines(
    positions: Sequence[float | int],
    panels: Mapping[str, Mapping[str, Sequence[float | None]]],
    name: str,
    shares: Sequence[str] = (),
) -> Picture:
    """Draws named lines over the same positions, in panels of their own.

    Args:
      positions: Of the points, such as numbers of views.
      panels: For each panel its lines; null leaves a gap.
      name: Of the positions.
      shares: Panels that are drawn from 0 to 1.
    """
    figure, axes = _panels(len(panels))
    for axis, (title, drawn) in zip(axes, panels.items(), strict=True):
        for (label, values), colour in zip(drawn.items(), _COLOURS, strict=False):
            numbers = [math.nan if value is None else value for value in values]
            axis.plot(positions, numbers, "o-", c=colour, markersize=4, label=label)
        if title in shares:
            axis.set_ylim(-0.03, 1.03)
        _label(axis, title, name, num_missing=0)
    axes[0].legend(fontsize=8, frameon=False)
    return _pixels(figure)


def _panels(num: int) -> tuple[Any, list[Any]]:
    """A figure with so many empty panels."""
    from matplotlib.figure import Figure

    if not num:
        raise ValueError("There are no keys to draw.")
    num_columns = min(_COLUMNS, num)
    num_rows = math.ceil(num / num_columns)
    size = (_INCHES[0] * num_columns, _INCHES[1] * num_rows)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flatten())
    for axis in axes[num:]:
        axis.set_axis_off()
    return figure, axes[:num]


def _pixels(figure: Any) -> Picture:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)  # pyplot would want a display, and keep state
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()


def _by_seed(
    rows: Sequence[Mapping[str, Any]],
) -> dict[int | None, list[Mapping[str, Any]]]:
    """The rows of the whole run, under None, and of each seed, in order."""
    numbers = sorted({row["seed"] for row in rows if row.get("seed") is not None})
    keys = [None, *numbers]
    return {key: [row for row in rows if row.get("seed") == key] for key in keys}


def series(
    rows: Sequence[Mapping[str, Any]], key: str, step: str = "step"
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Steps and values of one key, by step; null counts as nan."""
    points = [
        (_number(row, step), _number(row, key))
        for row in rows
        if key in row and row.get(step) is not None
    ]
    points.sort(key=lambda point: point[0])
    array = np.array(points, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _number(row: Mapping[str, Any], key: str) -> float:
    value = row[key]
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key!r} is {value!r}, not a number, in {row}.") from error


def _limits(steps: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """One range of steps for all panels, with some room at its ends."""
    if len(steps) == 0:
        return 0.0, 1.0
    first, last = float(steps.min()), float(steps.max())
    room = 0.04 * (last - first) or 1.0
    return first - room, last + room


def _draw(
    axis: Any,
    name: str,
    steps: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " n"],
    colour: str,
) -> None:
    finite = np.isfinite(values)
    shown = np.where(finite, values, np.nan)
    axis.plot(steps, shown, color=colour, linewidth=1.3, label="mean")
    alone = _alone(finite)  # a line through one point is invisible
    axis.plot(steps[alone], shown[alone], "o", color=colour, markersize=4)
    if not finite.any():
        text = "not logged" if len(values) == 0 else "no finite value"
        axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)
        axis.set_yticks([])
    if not finite.all():  # at the lower edge, whatever the range of the values
        place = dict(transform=axis.get_xaxis_transform(), clip_on=False, zorder=3)
        axis.plot(steps[~finite], np.zeros((~finite).sum()), "x", c=_WARNING, **place)
    _label(axis, name, "step", int((~finite).sum()))


def _alone(finite: np.ndarray) -> np.ndarray:
    padded = np.pad(finite, 1)
    return finite & ~padded[:-2] & ~padded[2:]


def _label(axis: Any, name: str, below: str, num_missing: int) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    title = f"{name} ({num_missing} not finite)" if num_missing else name
    axis.set_title(title, fontsize=10, color=_WARNING if num_missing else "black")
    axis.set_xlabel(below, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 25k
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
