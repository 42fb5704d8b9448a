"""Weights as one safetensors file that any program can open on any machine."""

import dataclasses
import json
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from ocloc_jax.models import sizes as sizes_lib
from ocloc_jax.models.ocloc import Ocloc

FORMAT = "ocloc_jax-1"


def save(
    path: str | pathlib.Path, model: Ocloc, params: Any, *, overwrite: bool = False
) -> None:
    """Writes parameters and what is needed to rebuild the model."""
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
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a file of this name is always whole.
    partial = path.with_name(path.name + ".partial")
    safetensors.numpy.save_file(tensors, partial, metadata)
    partial.replace(path)


def load(path: str | pathlib.Path) -> tuple[Ocloc, Any]:
    """Reads a model and its parameters."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            flat = {key: jnp.asarray(file.get_tensor(key)) for key in file.keys()}
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: not a readable safetensors file: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {metadata.get('format')!r}, expected {FORMAT!r}. Make "
            "such a file with `python -m ocloc_jax.convert` or from a training run."
        )
    settings = json.loads(metadata["model"])
    settings["sizes"] = sizes_lib.from_dict(settings["sizes"])
    return Ocloc(**settings), traverse_util.unflatten_dict(flat, sep="/")
