"""Converts weights of the released PyTorch program to ours.

python -m ocloc_jax.convert STATE.pth|STATE.npz OUT.safetensors

Reads a state dict, also under `model_state_dict` and with the prefix `module.`.
PyTorch is needed for .pth files only; nothing in them is executed.
"""

import argparse
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from ocloc_jax import released, weights
from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import CLEVR, GSO

_OBJECT_OUTPUT = "dec.net_obj_img.9.5.0.bias"


class ConversionError(ValueError):
    """Weights that do not fit the model; the message lists every misfit."""


def convert(state: Mapping[str, np.ndarray]) -> tuple[Ocloc, Any]:
    """Finds the model that a state dict belongs to and its parameters."""
    state = {name.removeprefix("module."): value for name, value in state.items()}
    shadows = _has_shadows(state)
    candidates = [Ocloc(sizes, shadows=shadows) for sizes in (CLEVR, GSO)]
    misfits = {model: _misfits(state, model) for model in candidates}
    model = min(candidates, key=lambda m: len(misfits[m]))
    if misfits[model]:
        name = {CLEVR: "CLEVR/SHOP", GSO: "GSO/ShapeNet"}[model.sizes]
        raise ConversionError(
            f"{len(misfits[model])} tensors do not fit the {name} networks "
            f"{'with' if shadows else 'without'} shadows:\n  "
            + "\n  ".join(misfits[model])
        )
    return model, released.from_released(state, model.sizes)


def _expected(model: Ocloc) -> dict[str, tuple[int, ...]]:
    shapes = parameter_shapes(model)
    empty = {path: np.empty(shape, np.float32) for path, shape in shapes.items()}
    state = released.to_released(traverse_util.unflatten_dict(empty), model.sizes)
    return {name: value.shape for name, value in state.items()}


def _has_shadows(state: Mapping[str, np.ndarray]) -> bool:
    bias = state.get(_OBJECT_OUTPUT)
    return bias is None or np.size(bias) != 4


def _misfits(state: Mapping[str, np.ndarray], model: Ocloc) -> list[str]:
    expected = _expected(model)
    missing = [
        f"missing    {n} {list(expected[n])}" for n in expected if n not in state
    ]
    unknown = [
        f"unknown    {n} {list(state[n].shape)}" for n in state if n not in expected
    ]
    misshapen = [
        f"misshapen  {name} {list(state[name].shape)}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in state and state[name].shape != shape
    ]
    return [*missing, *unknown, *misshapen]


def read_state(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads a state dict from .npz, or from .pth with PyTorch."""
    if not path.is_file():
        raise ConversionError(f"{path}: no such file.")
    if path.suffix == ".npz":
        return _read_npz(path)
    return _read_torch(path)


def _read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise ConversionError(f"{path}: cannot be read as .npz: {error}") from error


def _read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError as error:
        raise ConversionError(
            f"{path}: reading it needs PyTorch; install `ocloc-jax[torch]`, or save "
            "the state dict as .npz where PyTorch is installed."
        ) from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a bad file
        raise ConversionError(
            f"{path}: PyTorch cannot read it as plain weights: {error}"
        ) from error
    state = loaded.get("model_state_dict", loaded) if isinstance(loaded, dict) else None
    if not state or not all(torch.is_tensor(v) for v in state.values()):
        raise ConversionError(
            f"{path}: holds no state dict, neither by itself nor as 'model_state_dict'."
        )
    return {name: value.float().numpy() for name, value in state.items()}


def main(argv: list[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m ocloc_jax.convert", description=__doc__.splitlines()[0]
    )
    parser.add_argument("state", type=pathlib.Path, help="STATE.pth or STATE.npz")
    parser.add_argument("out", type=pathlib.Path, help="OUT.safetensors")
    args = parser.parse_args(argv)
    try:
        model, params = convert(read_state(args.state))
        weights.save(args.out, model, params)
    except (ConversionError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"{args.out}: {count:,} parameters, shadows {model.shadows}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
