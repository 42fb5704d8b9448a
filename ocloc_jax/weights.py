"""Weights as one safetensors file that any program can open on any machine."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from ocloc_jax.models import sizes as sizes_lib
from ocloc_jax.models.ocloc import Ocloc

FORMAT = "ocloc_jax-1"
BEST = "best.safetensors"
STAGES = ("multi", "single")  # the later one first


def save(
    path: str | pathlib.Path,
    model: Ocloc,
    params: Any,
    *,
    num_slots: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes parameters and what is needed to rebuild the model.

    Args:
      path: File to write.
      model: Whose parameters they are.
      params: Parameters.
      num_slots: K of its training, which whoever loads the file gets as the default.
      overwrite: Whether a file of this name may be replaced.
    """
    path = pathlib.Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another name or remove it first.")
    settings = {
        "sizes": dataclasses.asdict(model.sizes),
        "shadows": model.shadows,
        "mode": model.mode,
        "num_iterations": model.num_iterations,
    }
    flat = traverse_util.flatten_dict(params, sep="/")
    tensors = {k: np.ascontiguousarray(v, np.float32) for k, v in flat.items()}
    metadata = {"format": FORMAT, "model": json.dumps(settings)}
    if num_slots is not None:
        metadata["num_slots"] = str(num_slots)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a file of this name is always whole.
    partial = path.with_name(path.name + ".partial")
    safetensors.numpy.save_file(tensors, partial, metadata)
    partial.replace(path)


def load(path: str | pathlib.Path) -> tuple[Ocloc, Any]:
    """Reads a model and its parameters."""
    with _opened(path) as file:
        flat = {key: jnp.asarray(file.get_tensor(key)) for key in file.keys()}
        settings = json.loads(file.metadata()["model"])
    settings["sizes"] = sizes_lib.from_dict(settings["sizes"])
    return Ocloc(**settings), traverse_util.unflatten_dict(flat, sep="/")


def num_slots(path: str | pathlib.Path) -> int | None:
    """K of the training, if the file tells."""
    with _opened(path) as file:
        stored = file.metadata().get("num_slots")
    return stored and int(stored)


def find(path: str | pathlib.Path) -> pathlib.Path:
    """A file itself, or the best weights of the last stage of a run's directory."""
    path = pathlib.Path(path)
    if path.is_file() or path.suffix == ".safetensors":
        return path
    for stage in STAGES:
        if (path / stage / BEST).is_file():
            return path / stage / BEST
    raise FileNotFoundError(
        f"{path} holds no weights of a run ({' or '.join(STAGES)}/{BEST}); train there "
        "first, or name a .safetensors file."
    )


@contextlib.contextmanager
def _opened(path: str | pathlib.Path) -> Iterator[Any]:
    """A file of ours; whatever else it is gets a sentence."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = (file.metadata() or {}).get("format")
            if found != FORMAT:
                raise ValueError(
                    f"{path}: format {found!r}, expected {FORMAT!r}. Make such a file "
                    "with `python -m ocloc_jax.convert` or from a training run."
                )
            yield file
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a readable safetensors file: {error}") from error
