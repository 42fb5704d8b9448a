"""What training starts from: fresh parameters, or those that something else left."""

import glob
import json
import pathlib
from typing import Any

import jax
from flax import traverse_util

from ocloc_jax import checkpoints, convert, weights
from ocloc_jax.models.initial import init, parameter_shapes
from ocloc_jax.models.ocloc import Ocloc

_KINDS = (
    "weights of ours (.safetensors), weights of the released program (.pth or .npz), "
    "the directory of a stage (runs/clevr/single), or one of its checkpoints "
    "(runs/clevr/single/checkpoints)"
)


def fresh(model: Ocloc, seeds: range, style: str = "released") -> list[Any]:
    """Initial parameters of each seed."""
    make = jax.jit(lambda key: init(model, key, style))
    return [make(jax.random.key(seed)) for seed in seeds]


def read(source: str, model: Ocloc, seeds: range, *, each: bool = False) -> list[Any]:
    """Parameters of each seed from a file or directory, after checking that they fit.

    Args:
      source: Weights, the directory of a stage, or its checkpoints. With `*` the one
        of all that match whose validation objective was lowest.
      model: What they are for.
      seeds: Who starts from them.
      each: From the same seeds trained before, every seed takes its own; otherwise
        all start from the best.
    """
    path = find(source)
    if path.is_dir() and (path / "best.safetensors").exists():
        own = [path / "seeds" / str(seed) / "best.safetensors" for seed in seeds]
        several = each and len(seeds) > 1
        paths = own if several else len(seeds) * [path / "best.safetensors"]
        return [read_weights(one, model) for one in paths]
    if path.is_dir():
        return _read_checkpoint(path, model, seeds, each)
    return len(seeds) * [read_weights(path, model)]


def find(source: str) -> pathlib.Path:
    """The path that is meant; of a pattern with `*`, the best by validation."""
    if "*" not in source:
        path = pathlib.Path(source)
        if not path.exists():
            raise ValueError(f"init_from: {source} does not exist. It may be {_KINDS}.")
        return path
    found = {path: _objective(path) for path in map(pathlib.Path, glob.glob(source))}
    if not found:
        raise ValueError(f"init_from: nothing matches {source}.")
    return min(found, key=found.get)


def _objective(path: pathlib.Path) -> float:
    record = (path if path.is_dir() else path.parent) / "best.json"
    if not record.exists():
        raise ValueError(
            f"init_from: {record} is missing, so {path} cannot be compared with the "
            "others; let its run finish, or name one path without '*'."
        )
    return json.loads(record.read_text())["loss"]


def read_weights(path: pathlib.Path, model: Ocloc) -> Any:
    """Parameters from one file, after checking that they fit the model."""
    if not path.exists():
        raise ValueError(f"init_from: {path} does not exist.")
    if path.suffix in (".pth", ".pt", ".npz"):
        loaded, params = convert.convert(convert.read_state(path))
    else:
        loaded, params = weights.load(path)
    if (loaded.sizes, loaded.shadows) != (model.sizes, model.shadows):
        raise ValueError(
            f"{path} holds a model of other sizes: {loaded} instead of {model}. "
            "Change config.model or choose other weights."
        )
    return params


def _read_checkpoint(
    path: pathlib.Path, model: Ocloc, seeds: range, each: bool
) -> list[Any]:
    params = checkpoints.read_params(path)
    found = {k: v.shape for k, v in traverse_util.flatten_dict(params).items()}
    shapes = parameter_shapes(model)
    if found == shapes:
        return len(seeds) * [params]
    count = next(iter(found.values()))[0] if found else 0
    if found != {k: (count, *shape) for k, shape in shapes.items()}:
        raise ValueError(
            f"{path} holds a model of other sizes. Change config.model or choose "
            "another checkpoint."
        )
    if not each or count != len(seeds):
        raise ValueError(
            f"{path} holds {count} seeds, and {len(seeds)} start from it; give the "
            "best.safetensors of one of them, or with select='each' run as many."
        )
    return [jax.tree.map(lambda x, i=i: x[i], params) for i in range(count)]
