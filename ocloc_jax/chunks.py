"""Programs on many rows, so many at once that each is compiled only once."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

Tree = TypeVar("Tree")
Rows = Int[np.ndarray, " n"]


def run(program: Callable[[Rows], Tree], num: int, chunk: int) -> Tree:
    """Joins what a program gives for rows 0 to num - 1.

    Args:
      program: Takes `chunk` rows; the first axis of all it returns is theirs. The last
        rows may be repeated.
      num: How many rows there are.
      chunk: How many it takes at once.
    """
    outputs = []
    for start in range(0, num, chunk):
        outputs.append(program(np.minimum(np.arange(start, start + chunk), num - 1)))
    return jax.tree.map(lambda *parts: _join(parts, num), *outputs)


def take(tree: Tree, rows: Rows) -> Tree:
    """Some rows of arrays."""
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[rows]), tree)


def _join(parts: Sequence[jax.Array], num: int) -> jax.Array:
    # In NumPy, which needs no program of its own for each shape.
    return jnp.asarray(np.concatenate([np.asarray(x) for x in parts])[:num])
