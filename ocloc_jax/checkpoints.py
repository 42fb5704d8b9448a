"""Checkpoints of a stage: the last few states, and the best weights apart.

A state and its checksums become visible together, by one rename, so a process that is
killed leaves both or neither. What cannot be read back as it was written is renamed,
never deleted, and the checkpoint before it is used.
"""

import errno
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from ocloc_jax import distributed, files, fingerprints, weights
from ocloc_jax.models.ocloc import Ocloc

_FULL = re.compile(r"No space left on device|Disk quota exceeded|os error 28")


class DiskFull(OSError):
    """There was no room for something; what was written before is intact."""


class Damaged(ValueError):
    """A checkpoint does not hold what was written into it."""


class Checkpoints:
    """Saves and restores states in a directory; use as a context manager.

    A state is any tree of arrays. With several processes all of them make the same
    calls.
    """

    def __init__(self, directory: pathlib.Path, keep: int = 2):
        """Opens the directory, creating it if need be."""
        self._directory = directory.absolute()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            cleanup_tmp_directories=True,  # what a killed process had not finished
            lightweight_initialize=True,  # reads nothing that may be damaged
        )
        handler = ocp.StandardCheckpointHandler()
        self._manager = ocp.CheckpointManager(
            self._directory, options=options, item_handlers=handler
        )
        self._saving = False

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        with self._explain_full_disk():
            try:
                self._manager.wait_until_finished()
            finally:
                self._manager.close()
            if error is not None and _is_full_disk(error):
                raise error

    def save(self, step: int, state: Any) -> None:
        """Writes a state in the background, unless that step is saved already."""
        if step == self._manager.latest_step():
            return
        plain = _without_keys(state)
        record = {
            "kinds": fingerprints.kinds(plain),
            "sha256": fingerprints.digests(plain),
        }
        with self._explain_full_disk():
            self._manager.save(
                step,
                args=ocp.args.StandardSave(_one_copy(plain)),
                custom_metadata=fingerprints.seal(record),
            )
        self._saving = True

    def check(self) -> None:
        """Raises what went wrong in the background, without waiting for it."""
        if self._saving and not self._manager.is_saving_in_progress():
            self._saving = False
            with self._explain_full_disk():
                self._manager.wait_until_finished()

    def restore(self, like: Any) -> tuple[int, Any]:
        """The latest good step and its state, or 0 and the given one if none is left.

        Raises:
          ValueError: A sound checkpoint holds arrays of another type or shape.
        """
        self._manager.wait_until_finished()
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            state, problem = like, ""
            try:
                state = self.load(step, like)
            except Damaged as error:
                problem = str(error)
            if not distributed.any_process(bool(problem)):
                return step, state
            self._set_aside(step, problem or "another process could not read it")
        if steps:
            _warn(f"no checkpoint is left in {self._directory}; starting anew")
        return 0, like

    def load(self, step: int, like: Any) -> Any:
        """The state of a step, put where the arrays of the given one are.

        Raises:
          Damaged: It is not what was saved.
          ValueError: It is, but holds arrays of another type or shape.
        """
        plain = _without_keys(like)
        empty = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), plain)
        with _damage():
            metadata = self._manager.metadata(step).custom_metadata
            record = fingerprints.unseal(metadata)
        _check_kinds(record["kinds"], plain, self._directory / str(step))
        with _damage():
            state = self._manager.restore(step, args=ocp.args.StandardRestore(empty))
        found = fingerprints.digests(state)
        wrong = [
            name for name, value in record["sha256"].items() if found[name] != value
        ]
        if wrong:
            raise Damaged(f"wrong checksum of {_some(wrong)}")
        return _placed(state, like)

    def _set_aside(self, step: int, problem: str) -> None:
        source = self._directory / str(step)
        target = files.free_name(self._directory / f"corrupt-{step}")
        _warn(f"checkpoint {source} is damaged: {problem}; it is kept as {target.name}")
        distributed.wait(f"found {target}")
        if distributed.is_main():
            source.rename(target)
        distributed.wait(f"set aside {target}")
        self._manager.reload()

    @contextmanager
    def _explain_full_disk(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(error, DiskFull) or not _is_full_disk(error):
                raise
            self._manager.reload()  # a step that failed may still count as saved
            last = self._manager.latest_step()
            kept = "No checkpoint was made" if last is None else f"Step {last} is safe"
            raise DiskFull(
                f"The disk that holds {self._directory} is full. {kept}. Make room and "
                "give the same command again."
            ) from error


class Best:
    """The weights with the lowest validation objective so far.

    Loss and step are kept inside the file of weights, so that they cannot differ from
    them; `best.json` repeats them for people.
    """

    def __init__(self, directory: pathlib.Path, num_slots: int | None = None):
        """Reads what an earlier part of the run left; files will tell `num_slots`."""
        self.weights = directory / weights.BEST
        self._num_slots = num_slots
        self.value, self.step = float("inf"), -1
        if not self.weights.exists():
            return
        try:
            record = weights.note(self.weights)
            self.value, self.step = record["loss"], record["step"]
        except (ValueError, KeyError) as error:
            self._set_aside(error)

    def update(self, loss: float, step: int, model: Ocloc, params: Any) -> bool:
        """Keeps these weights if they are better; says whether they were."""
        if not loss < self.value:
            return False
        self.value, self.step = loss, step
        if distributed.is_main():
            record = {"loss": loss, "step": step}
            told = dict(num_slots=self._num_slots, note=record)
            weights.save(self.weights, model, params, overwrite=True, **told)
            with files.written_whole(self.weights.with_name("best.json")) as path:
                path.write_text(json.dumps(record) + "\n")
        return True

    def _set_aside(self, error: Exception) -> None:
        target = files.free_name(self.weights.with_name("corrupt-best"))
        _warn(f"{error} It is kept as {target.name}; validation begins anew.")
        if distributed.is_main():
            self.weights.rename(target)


@contextmanager
def _damage() -> Iterator[None]:
    """What cannot be read is damaged, unless nobody may read it."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:  # any kind: JSON, Unicode, a missing key, C++
        first = (str(error).splitlines() or [""])[0]
        problem = f"{type(error).__name__}: {first[:200]}"
        raise Damaged(f"it cannot be read ({problem})") from error


def _check_kinds(found: dict[str, list], like: Any, path: pathlib.Path) -> None:
    """Another program's checkpoint is not damaged: setting it aside would lose it."""
    wanted = fingerprints.kinds(like)
    differing = [
        f"{name} is {found.get(name)} instead of {wanted.get(name)}"
        for name in sorted({**found, **wanted})
        if found.get(name) != wanted.get(name)
    ]
    if differing:
        raise ValueError(
            f"{path} was saved by another version of this program: {_some(differing)}. "
            "Go on with that version, or choose another --workdir."
        )


def _without_keys(state: Any) -> Any:
    """The state with random keys as plain numbers."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state)


def _one_copy(state: Any) -> Any:
    """Of arrays that all devices of this process have alike, that of one device.

    Orbax would cut them into a slice for each device, array by array: that took a
    second of every save of the demo, which has two devices.
    """
    if jax.process_count() > 1:
        return state
    return jax.tree.map(
        lambda x: x.addressable_data(0) if x.is_fully_replicated else x, state
    )


def _placed(state: Any, like: Any) -> Any:
    """Arrays of the host put where those of another state are."""

    def place(value: np.ndarray, like: jax.Array) -> jax.Array:
        if not _is_key(like):
            return distributed.place(value, like.sharding)
        numbers = distributed.place(value, jax.random.key_data(like).sharding)
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(like))

    return jax.tree.map(place, state, like)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_full_disk(error: BaseException | None) -> bool:
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if _FULL.search(str(error)):  # the C++ libraries have exceptions of their own
            return True
        error = error.__cause__ or error.__context__
    return False


def _warn(message: str) -> None:
    if distributed.is_main():
        print(f"warning: {message}", file=sys.stderr, flush=True)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


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
