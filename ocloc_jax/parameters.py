"""How many parameters a model has, and where."""

import math

from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.models.ocloc import Ocloc

_DEPTH = 2  # encoder/feature_net, decoder/object_net, ...


def by_module(model: Ocloc) -> dict[str, int]:
    """Number of parameters of each part of encoder and decoder."""
    counts: dict[str, int] = {}
    for path, shape in parameter_shapes(model).items():
        name = "/".join(path[:_DEPTH])
        counts[name] = counts.get(name, 0) + math.prod(shape)
    return counts


def table(model: Ocloc) -> str:
    """Every parameter with its shape and size, and the sums, as aligned text."""
    rows = [
        ("/".join(path), " x ".join(map(str, shape)), f"{math.prod(shape):,}")
        for path, shape in parameter_shapes(model).items()
    ]
    sums = by_module(model)
    rows += [("", "", "")] + [(name, "", f"{n:,}") for name, n in sums.items()]
    rows += [("all", "", f"{sum(sums.values()):,}")]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = (
        f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {size:>{widths[2]}}".rstrip()
        for name, shape, size in rows
    )
    return "\n".join(lines) + "\n"


def summary(model: Ocloc) -> str:
    """One line for the terminal."""
    sums = {"encoder": 0, "decoder": 0}
    for name, size in by_module(model).items():
        sums[name.split("/")[0]] += size
    parts = ", ".join(f"{name} {size:,}" for name, size in sums.items())
    return f"{sum(sums.values()):,} parameters ({parts})"
