"""Checkpoints of a stage: the last few states, and the best weights apart."""

import json
import os
import pathlib
from typing import Any

import jax
import orbax.checkpoint as ocp

from ocloc_jax import weights
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.train import TrainState


class Checkpoints:
    """Saves and restores states in a directory; use as a context manager."""

    def __init__(self, directory: pathlib.Path, keep: int = 2):
        """Opens the directory, creating it if need be."""
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(directory.absolute(), options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: Any) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, state: TrainState) -> None:
        """Writes a state in the background, unless that step is saved already."""
        step = int(state.step)
        if step != self._manager.latest_step():
            self._manager.save(step, args=ocp.args.StandardSave(state))

    def restore(self, like: TrainState) -> TrainState:
        """The latest state, or the given one if none was saved."""
        step = self._manager.latest_step()
        if step is None:
            return like
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        return self._manager.restore(step, args=ocp.args.StandardRestore(abstract))


class Best:
    """The weights with the lowest validation objective so far."""

    def __init__(self, directory: pathlib.Path, num_slots: int | None = None):
        """Reads what an earlier part of the run left; files will tell `num_slots`."""
        self.weights = directory / weights.BEST
        self._num_slots = num_slots
        self._record = directory / "best.json"
        self.value, self.step = float("inf"), -1
        if self._record.exists():
            record = json.loads(self._record.read_text())
            self.value, self.step = record["loss"], record["step"]

    def update(self, loss: float, step: int, model: Ocloc, params: Any) -> bool:
        """Keeps these weights if they are better; says whether they were."""
        if not loss < self.value:
            return False
        options = dict(num_slots=self._num_slots, overwrite=True)
        weights.save(self.weights, model, params, **options)
        self.value, self.step = loss, step
        partial = self._record.with_suffix(".partial")
        partial.write_text(json.dumps({"loss": loss, "step": step}))
        os.replace(partial, self._record)
        return True


def read_params(directory: pathlib.Path) -> Any:
    """Parameters of the latest state in a directory of `Checkpoints`, or of one step.

    Args:
      directory: `.../checkpoints`, or a step below it, `.../checkpoints/2000`.
    """
    directory, wanted = directory.absolute(), None
    if directory.name.isdigit():
        directory, wanted = directory.parent, int(directory.name)
    steps = [int(path.name) for path in directory.glob("*") if path.name.isdigit()]
    if not steps:
        raise ValueError(f"{directory} holds no checkpoint.")
    step = max(steps) if wanted is None else wanted
    with ocp.CheckpointManager(directory) as manager:
        try:
            state = manager.restore(step, args=ocp.args.StandardRestore())
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{directory / str(step)}: unreadable: {error}") from error
    return jax.tree.map(jax.numpy.asarray, state["params"])
