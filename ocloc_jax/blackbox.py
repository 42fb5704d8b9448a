"""What is left when numbers stop being finite: the step, its batch, the state before.

The state before a step is gone once the step has run, because its memory is used again.
It is made anew from the last checkpoint: everything is a function of seed and step.
"""

import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ocloc_jax import data, distributed, files, fingerprints, train
from ocloc_jax.checkpoints import Checkpoints
from ocloc_jax.seeds import Seeds

WATCHED = ("loss", "grad_norm")


class NotFinite(FloatingPointError):
    """The loss, a gradient or the state is no number any more."""


class Guard:
    """Looks at every step's numbers, one step later so that no step waits for it."""

    def __init__(
        self,
        stage: str,
        record: Callable[[int, dict[str, Any]], Any],
        num_seeds: int = 1,
    ):
        """Takes what to call with a step and its numbers before the run stops."""
        self._stage, self._record, self._num_seeds = stage, record, num_seeds
        self._unseen: tuple[int, dict[str, Any], Any] | None = None

    def watch(
        self, step: int, metrics: Mapping[str, Any], frozen: np.ndarray | bool = False
    ) -> None:
        """Looks at the step before, and remembers this one.

        Args:
          step: That was made.
          metrics: What it said, of several seeds as arrays.
          frozen: Seeds that nobody looks at any more.
        """
        before = self._unseen
        self._unseen = step, {name: metrics[name] for name in WATCHED}, frozen
        if before:
            self._look(*before)

    def settle(self, step: int, state: Any = None) -> None:
        """Looks at the present step, and at its state before this is saved."""
        if self._unseen:
            unseen, self._unseen = self._unseen, None
            self._look(*unseen)
        bad = not_finite(state, self._num_seeds)
        if bad:
            self._stop(step, bad)

    def _look(self, step: int, metrics: dict[str, Any], frozen: Any) -> None:
        host = distributed.to_host(metrics)
        values = {name: np.where(frozen, 0, value) for name, value in host.items()}
        if not all(np.isfinite(value).all() for value in values.values()):
            self._stop(step, values)

    def _stop(self, step: int, values: dict[str, Any]) -> None:
        bad = [name for name, value in values.items() if not np.isfinite(value).all()]
        message = f"Step {step} of stage {self._stage} gave no number for {bad}."
        try:
            box = self._record(step, values)
        except Exception as error:  # the first fault must be told in any case
            raise NotFinite(f"{message} No black box: {error!r}") from error
        raise NotFinite(
            f"{message} The black box is {box}: look inside with --mode=replay and "
            "the same --config and --workdir."
        )


def not_finite(tree: Any, num_seeds: int = 1) -> dict[str, np.ndarray]:
    """The arrays of a tree that hold a NaN or infinity, by path; nan for such seeds."""
    floats = {
        name: leaf
        for name, leaf in fingerprints.named(tree).items()
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    bad = {}
    for name, leaf in distributed.to_host(floats).items():
        finite = np.isfinite(leaf).reshape(num_seeds, -1).all(axis=1)
        if not finite.all():
            bad[name] = np.where(finite, 0, math.nan)
    return bad


@dataclasses.dataclass(frozen=True)
class Recorder:
    """Writes black boxes of a stage.

    Attributes:
      stage: Its name.
      seeds: Of the run; the black box is that of the first one that went wrong.
      directory: Of the stage.
      checkpoints: Of the stage.
      fresh: Makes the state at the beginning of the stage.
      step: The compiled step of the loop, which uses up its state.
      observed: The step that keeps gradients (see `observed`), not compiled.
      batches: Batches between two steps.
    """

    stage: str
    seeds: Seeds
    directory: pathlib.Path
    checkpoints: Checkpoints
    fresh: Callable[[], Any]
    step: train.TrainStep
    observed: train.TrainStep
    batches: Callable[[int, int], Iterable[data.Batch]]

    def __call__(self, step: int, values: Mapping[str, Any]) -> pathlib.Path:
        """Writes the black box of a step, unless an earlier run has."""
        box = self.directory / "blackbox" / f"step_{step}"
        if distributed.any_process(box.exists()):
            return box
        (batch,) = self.batches(step - 1, step)
        which = _first_bad(values)
        state = self.seeds.state_of(self._state_before(step), which)
        batch = self.seeds.batch_of(batch, which)
        work = box.with_name(f"{box.name}.partial")
        with Checkpoints(work / "state", keep=1) as checkpoints:
            checkpoints.save(step - 1, state)
        after, metrics = jax.jit(self.observed)(observable(state), batch)
        record = {
            "stage": self.stage,
            "step": step,
            "seed": self.seeds.numbers[which],
            "found": {name: np.atleast_1d(v)[which] for name, v in values.items()},
            "replayed": distributed.to_host(metrics),
            "modules": norms(state.params, after.opt_state[1]),
        }
        self._write(work, record, distributed.to_host(batch))
        distributed.wait(f"black box {box}")
        if distributed.is_main():
            work.rename(box)
        return box

    def _state_before(self, step: int) -> Any:
        start, state = self.checkpoints.restore(self.fresh())
        if distributed.is_main():
            text = f"Step {step} is not finite; going from step {start} to it again."
            print(text, file=sys.stderr, flush=True)
        for batch in self.batches(start, step - 1):
            state, _ = self.step(state, batch)
        return state

    @staticmethod
    def _write(
        work: pathlib.Path, record: dict[str, Any], batch: dict[str, np.ndarray]
    ) -> None:
        if distributed.is_main():
            record |= {key: batch[key] for key in ("index", "views")}
            np.savez(work / "batch.npz", **batch)
            with files.written_whole(work / "box.json") as path:
                path.write_text(json.dumps(plain(record), indent=1) + "\n")


def _first_bad(values: Mapping[str, Any]) -> int:
    """Which of several seeds has a number that is not finite."""
    bad = np.any([~np.isfinite(np.atleast_1d(v)) for v in values.values()], axis=0)
    return int(np.argmax(bad))


def observed(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """The optimiser with the last gradients, before clipping, kept in its state."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, inner = optimizer.update(grads, state[0], params)
        return updates, (inner, grads)

    return optax.GradientTransformation(lambda p: (optimizer.init(p), None), update)


def observable(state: Any) -> Any:
    """A state of the loop as a step with an `observed` optimiser takes it."""
    return state.replace(opt_state=(state.opt_state, None))


def norms(params: Any, gradients: Any) -> dict[str, dict[str, float]]:
    """L2 norms of parameters and gradients of every module, two levels deep."""
    squares: dict[str, dict[str, float]] = {}
    for kind, tree in (("parameters", params), ("gradients", gradients)):
        for name, leaf in fingerprints.named(distributed.to_host(tree)).items():
            module = squares.setdefault("/".join(name.split("/")[:2]), {})
            square = float(np.square(leaf.astype(np.float64)).sum())
            module[kind] = module.get(kind, 0.0) + square
    return {
        name: {kind: math.sqrt(value) for kind, value in module.items()}
        for name, module in squares.items()
    }


def plain(value: Any) -> Any:
    """JSON values; numbers that are not finite become text, which JSON can hold."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = np.asarray(value).tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
