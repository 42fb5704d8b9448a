"""What people watch: JSON lines, TensorBoard, wandb, and a live line."""

import collections
import importlib
import json
import math
import pathlib
import secrets
import sys
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import tqdm

from ocloc_jax import distributed, figures, files
from ocloc_jax.figures import Picture


@runtime_checkable
class Writer(Protocol):
    """Where numbers and pictures go; tags are like `train/nll`."""

    def write(
        self, step: int, values: Mapping[str, Any], seed: int | None = None
    ) -> None: ...

    def draw(self, step: int, tag: str, picture: Picture) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Appends rows of numbers to a file, one JSON object per line.

    Of pictures the newest lies beside it, as `validation_decomposition.png`.
    """

    def __init__(self, path: pathlib.Path, *, keep_until: int):
        """Opens the file; rows after step `keep_until` are about to be made again."""
        self._path = path
        if path.exists():
            rows = [row for row in read_json_lines(path) if row["step"] <= keep_until]
            with files.written_whole(path) as partial:
                partial.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(
        self, step: int, values: Mapping[str, Any], seed: int | None = None
    ) -> None:
        """Adds one row; numbers that are not finite become null.

        Args:
          step: After which they hold.
          values: By name.
          seed: Whose they are; by default those of the run, which of several seeds
            are the mean.
        """
        row = {"step": step, "time": round(time.time(), 3)}
        row |= {} if seed is None else {"seed": seed}
        row |= {name: _plain(value) for name, value in values.items()}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def draw(self, step: int, tag: str, picture: Picture) -> None:
        """Replaces the picture of this tag."""
        figures.save(self._path.with_name(tag.replace("/", "_") + ".png"), picture)

    def close(self) -> None:
        """Nothing is held back."""


def read_json_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """All complete rows; a line cut short by a crash is left out."""
    rows = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def _plain(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


class TensorBoard:
    """Event files that TensorBoard opens; TensorFlow is not needed."""

    def __init__(self, directory: pathlib.Path, *, keep_until: int):
        """Hides what an earlier part of the run wrote after step `keep_until`."""
        self._writer = _tensorboard().SummaryWriter(
            str(directory),
            purge_step=keep_until + 1,
            flush_secs=5,
            # Names end in the second by default, and a file of the same is replaced.
            filename_suffix=f".{time.time_ns()}",
        )
        # Also at the end of the program, and when a stop leaves the loop.
        self._close = weakref.finalize(self, self._writer.close)

    def write(
        self, step: int, values: Mapping[str, Any], seed: int | None = None
    ) -> None:
        """Adds one point to the curve of every tag."""
        for tag, value in _tagged(values, seed).items():
            self._writer.add_scalar(tag, value, step)

    def draw(self, step: int, tag: str, picture: Picture) -> None:
        """Adds a picture."""
        self._writer.add_image(tag, picture, step, dataformats="HWC")

    def close(self) -> None:
        """Writes out what is left."""
        self._close()


def _tensorboard() -> Any:
    """The module tensorboardX, without PyTorch.

    It would load that too where it is installed, though nothing here needs it: two
    seconds of every start, and a fifth of a gigabyte.
    """
    sys.modules.setdefault("torch", None)  # as if it were not installed
    try:
        return importlib.import_module("tensorboardX")
    finally:
        if sys.modules["torch"] is None:
            del sys.modules["torch"]


class Wandb:
    """A run of Weights & Biases for each stage, gone on with after a stop."""

    def __init__(self, project: str, directory: pathlib.Path):
        """Starts or continues the run whose id is kept in `directory`."""
        self._wandb = import_wandb()
        record, config = directory / "wandb_id", directory.parent / "config.json"
        if not record.exists():
            record.write_text(secrets.token_hex(8))
        self._run = self._wandb.init(
            project=project,
            id=record.read_text(),
            resume="allow",
            group=directory.parent.name,
            name=f"{directory.parent.name}/{directory.name}",
            dir=str(directory),
            config=json.loads(config.read_text()) if config.exists() else {},
        )

    def write(
        self, step: int, values: Mapping[str, Any], seed: int | None = None
    ) -> None:
        """Logs a row; wandb leaves out steps that it has seen before a stop."""
        self._run.log(_tagged(values, seed), step=step)

    def draw(self, step: int, tag: str, picture: Picture) -> None:
        """Logs a picture."""
        self._run.log({tag: self._wandb.Image(picture)}, step=step)

    def close(self) -> None:
        """Ends the run, so that the next stage can start its own."""
        self._run.finish()


def _tagged(values: Mapping[str, Any], seed: int | None) -> dict[str, float]:
    """Numbers by tag; those of one of several seeds have its name in front."""
    front = "" if seed is None else f"seed_{seed}/"
    return {front + tag: float(value) for tag, value in values.items()}


def import_wandb() -> Any:
    """The module, or an error that says how to get along."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise ValueError(
            "config.wandb names a project, but wandb is not installed: "
            "`pip install wandb`, or leave config.wandb empty."
        ) from error


def make_writers(path: pathlib.Path, start: int, wandb: str) -> list[Writer]:
    """Of the process that writes, the first; the others have nothing to say."""
    if not distributed.is_main():
        return []
    writers = [
        JsonLines(path, keep_until=start),
        TensorBoard(path.parent, keep_until=start),
    ]
    return [*writers, Wandb(wandb, path.parent)] if wandb else writers


class StageLog:
    """Rows of a stage, and a live line with rate, time left, loss and ARI."""

    def __init__(
        self, name: str, path: pathlib.Path, start: int, end: int, wandb: str = ""
    ):
        """Goes on after step `start`.

        Args:
          name: Of the stage.
          path: Of the JSON lines; what others read lies beside them.
          start: Steps that are done already.
          end: Steps in all.
          wandb: Project of Weights & Biases, or nothing.
        """
        self._name, self._shown = name, {}
        self._writers = make_writers(path, start, wandb)
        self._bar = tqdm.tqdm(
            total=end,
            initial=start,
            desc=name,
            unit="step",
            dynamic_ncols=True,
            disable=not distributed.is_main(),
            # In a log file a line now and then is enough.
            mininterval=0.5 if sys.stderr.isatty() else 20,
        )

    def train(
        self, step: int, metrics: Mapping[str, Any], seed: int | None = None
    ) -> None:
        """Logs what a training step returned, for the run or one of several seeds."""
        self._write(step, {f"train/{k}": v for k, v in metrics.items()}, seed)
        if seed is None:
            self._show(loss=f"{float(metrics['loss']):.1f}")

    def verdicts(self, words: Iterable[str]) -> None:
        """Shows what the collapse meter says of each seed."""
        counts = collections.Counter(words).most_common()
        if len(counts) == 1:
            self._show(health=counts[0][0])
        else:  # 3 ok 1 empty
            self._show(health=" ".join(f"{n} {word}" for word, n in counts))

    def validation(
        self, step: int, scores: Mapping[str, float], seed: int | None = None
    ) -> None:
        """Logs a validation, of the run or of one of several seeds."""
        self._write(step, {f"validation/{k}": v for k, v in scores.items()}, seed)
        if seed is not None:
            return
        self._show(validation=f"{scores['loss']:.1f}")
        if "ari_obj_m" in scores:
            self._show(ARI_O=f"{scores['ari_obj_m']:.2f}")
            self._show(ARI_A=f"{scores['ari_all_m']:.2f}")

    def picture(self, step: int, picture: Picture) -> None:
        """Logs how a validation scene is taken apart."""
        for writer in self._writers:
            writer.draw(step, "validation/decomposition", picture)

    def say(self, text: str) -> None:
        """Prints a line above the live one."""
        if distributed.is_main():
            self._bar.write(f"{self._name}: {text}", file=sys.stderr)

    def advance(self) -> None:
        """Counts one step."""
        self._bar.update()

    def close(self) -> None:
        """Leaves the line as it is, and ends the files."""
        self._bar.close()
        for writer in self._writers:
            writer.close()

    def _write(self, step: int, values: Mapping[str, Any], seed: int | None) -> None:
        values = jax.device_get(dict(values))  # once for all writers
        for writer in self._writers:
            writer.write(step, values, seed)

    def _show(self, **values: str) -> None:
        self._shown |= values
        self._bar.set_postfix(self._shown, refresh=False)
