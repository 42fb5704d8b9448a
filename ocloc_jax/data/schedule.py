"""Which scenes and views a training step sees, as functions of (seed, step) alone.

Nothing here holds state, reads a clock or asks how many hosts or workers there are,
so a run can be resumed at any step and every host agrees on the global batch. The
draws use only uniform numbers of PCG64, whose stream is fixed between versions.
"""

import enum
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

Window = float | int | Mapping[str, Sequence[float | int]] | None


class Stream(enum.IntEnum):
    """Names of the independent random streams below one seed."""

    ORDER = 0
    NUM_VIEWS = 1
    VIEWS = 2


def _generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, int(stream), *counters]))


@functools.lru_cache(maxsize=32)  # A batch touches at most two epochs of each seed.
def _epoch_order(seed: int, size: int, epoch: int) -> Int[np.ndarray, " n"]:
    draws = _generator(seed, Stream.ORDER, epoch).random(size)
    order = np.argsort(draws, kind="stable")
    order.setflags(write=False)
    return order


def examples_at(
    seed: int, size: int, positions: Int[np.ndarray, " b"]
) -> Int[np.ndarray, " b"]:
    """Returns the examples at positions of an endless stream of shuffled epochs.

    Positions `epoch * size` up to `(epoch + 1) * size` hold every example once, in an
    order of that epoch's own.
    """
    epochs, offsets = np.divmod(positions, size)
    pairs = zip(epochs.tolist(), offsets.tolist(), strict=True)
    return np.array([_epoch_order(seed, size, e)[o] for e, o in pairs], np.int64)


def num_views_at(seed: int, step: int, min_views: int, max_views: int) -> int:
    """Draws the number of views of a batch uniformly, both bounds included."""
    draw = _generator(seed, Stream.NUM_VIEWS, step).random()
    return min_views + int(draw * (max_views - min_views + 1))


def window_at(window: Window, step: int) -> float | int | None:
    """How far apart views may lie at a step; outside its knots a curriculum is flat."""
    if not isinstance(window, Mapping):
        return window
    steps, values = window.get("steps", ()), window.get("values", ())
    if not steps or len(steps) != len(values) or sorted(steps) != list(steps):
        raise ValueError(
            f"view_window is {dict(window)}; give increasing `steps` and as many "
            "`values`."
        )
    return float(np.interp(step, steps, values))


def choose_views(
    key: tuple[int, int, int],
    num_views: int,
    available: int,
    window: float | int | None = None,
    azimuth: Float[np.ndarray, " v"] | None = None,
) -> Int[np.ndarray, " m"]:
    """Draws views without replacement, all of them near one another if asked.

    Args:
      key: Seed, step, and row of the scene in the global batch.
      num_views: How many views to draw.
      available: How many views the scene has.
      window: Draw only from views at most this far from a random anchor: in indices,
        or in radians where `azimuth` is given. Where too few views lie so near, the
        `num_views` nearest are taken.
      azimuth: Direction of each camera around the scene, in radians.
    """
    seed, step, row = key
    draws = _generator(seed, Stream.VIEWS, step, row).random(available + 1)
    order = np.argsort(draws[1:], kind="stable")
    if window is None:
        return order[:num_views]
    anchor = int(draws[0] * available)
    if azimuth is None:
        distance = np.abs(np.arange(available) - anchor).astype(np.float64)
    else:
        turn = np.abs(azimuth.astype(np.float64) - azimuth[anchor]) % (2 * np.pi)
        distance = np.minimum(turn, 2 * np.pi - turn)
    reach = max(window, np.sort(distance)[num_views - 1])
    return order[distance[order] <= reach][:num_views]
