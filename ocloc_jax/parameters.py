"""How many parameters a model has, and where."""

import math
from collections.abc import Mapping

from flax import traverse_util
from jaxtyping import PyTree

from ocloc_jax.models.initial import Path, Shape

_DEPTH = 2  # encoder/feature_net, decoder/object_net, ...

Shapes = Mapping[Path, Shape]


def shapes(params: PyTree) -> Shapes:
    """Those of parameters that exist, which need no model to be traced."""
    flat = traverse_util.flatten_dict(params)
    return {path: flat[path].shape for path in sorted(flat)}


def by_module(shapes: Shapes) -> dict[str, int]:
    """Number of parameters of each part of encoder and decoder."""
    counts: dict[str, int] = {}
    for path, shape in shapes.items():
        name = "/".join(path[:_DEPTH])
        counts[name] = counts.get(name, 0) + math.prod(shape)
    return counts


def table(shapes: Shapes) -> str:
    """Every parameter with its shape and size, and the sums, as aligned text."""
    rows = [
        ("/".join(path), " x ".join(map(str, shape)), f"{math.prod(shape):,}")
        for path, shape in shapes.items()
    ]
    sums = by_module(shapes)
    rows += [("", "", "")] + [(name, "", f"{n:,}") for name, n in sums.items()]
    rows += [("all", "", f"{sum(sums.values()):,}")]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = (
        f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {size:>{widths[2]}}".rstrip()
        for name, shape, size in rows
    )
    return "\n".join(lines) + "\n"


def summary(shapes: Shapes) -> str:
    """One line for the terminal."""
    sums = {"encoder": 0, "decoder": 0}
    for name, size in by_module(shapes).items():
        sums[name.split("/")[0]] += size
    parts = ", ".join(f"{name} {size:,}" for name, size in sums.items())
    return f"{sum(sums.values()):,} parameters ({parts})"
