"""Weights as one safetensors file that any program can open on any machine."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from ocloc_jax import files
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
    note: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Writes parameters and what is needed to rebuild the model.

    Args:
      path: File to write.
      model: Whose parameters they are.
      params: Parameters.
      num_slots: K of its training, which whoever loads the file gets as the default.
      note: Anything else, as JSON.
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
    metadata = {
        "format": FORMAT,
        "model": json.dumps(settings),
        "note": json.dumps(dict(note or {})),
        "sha256": _digest(tensors),
    }
    if num_slots is not None:
        metadata["num_slots"] = str(num_slots)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.written_whole(path) as partial:
        safetensors.numpy.save_file(tensors, partial, metadata)


def load(path: str | pathlib.Path) -> tuple[Ocloc, Any]:
    """Reads a model and its parameters."""
    metadata, tensors = _read(path)
    settings = json.loads(metadata["model"])
    settings["sizes"] = sizes_lib.from_dict(settings["sizes"])
    # All at once: array by array it takes a second.
    flat = jax.device_put(tensors)
    return Ocloc(**settings), traverse_util.unflatten_dict(flat, sep="/")


def note(path: str | pathlib.Path) -> dict[str, Any]:
    """The note saved with weights."""
    metadata, _ = _read(path)
    return json.loads(metadata.get("note", "{}"))


def num_slots(path: str | pathlib.Path) -> int | None:
    """K of the training, if the file tells."""
    metadata, _ = _read(path)
    stored = metadata.get("num_slots")
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


def _read(path: str | pathlib.Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Everything in a file, with its checksum verified."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a readable safetensors file: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {metadata.get('format')!r}, expected {FORMAT!r}. Make "
            "such a file with `python -m ocloc_jax.convert` or from a training run."
        )
    digest = _digest(tensors)
    if metadata.get("sha256", digest) != digest:
        raise ValueError(f"{path}: damaged, its checksum is wrong.")
    return metadata, tensors


def _digest(tensors: Mapping[str, np.ndarray]) -> str:
    whole = hashlib.sha256()
    for name in sorted(tensors):
        whole.update(f"{name} {tensors[name].shape}".encode())
        whole.update(np.ascontiguousarray(tensors[name]))
    return whole.hexdigest()
