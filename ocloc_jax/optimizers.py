"""How gradients become updates: Adam as published, or Muon for short training."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree
from optax import contrib

from ocloc_jax import schedules

KINDS = ("adam", "muon")

_HANDFUL = 8  # inputs or outputs
_REST = "rest"
_SIZE_OF_ADAM = 0.2  # a usual root mean square of its updates: rates stay comparable


def make(
    learning_rate: dict[str, Any], clip_norm: float, kind: str = "adam"
) -> optax.GradientTransformation:
    """Clipping by global norm, then the optimizer with the schedule of the recipe.

    Args:
      learning_rate: Of `schedules.learning_rate`.
      clip_norm: Longest gradient.
      kind: "adam" as published. "muon" (ours) makes the update of every weight matrix
        orthogonal, so that all its directions are learnt at the same speed; vectors
        and matrices with a handful of inputs or outputs keep Adam.
    """
    rate = schedules.learning_rate(**learning_rate)
    clip = optax.clip_by_global_norm(clip_norm)
    if kind == "adam":
        # All parameters as one vector compile and run faster than one by one.
        return optax.flatten(optax.chain(clip, optax.adam(rate)))
    muon = contrib.muon(
        rate, consistent_rms=_SIZE_OF_ADAM, muon_weight_dimension_numbers=_axes
    )
    return _arranged(optax.chain(clip, muon))


def _arranged(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies a transformation to parameters as `arrange` makes them, for speed."""

    def update(updates: PyTree, state: Any, params: PyTree) -> tuple[PyTree, Any]:
        new, state = inner.update(arrange(updates), state, arrange(params))
        return _take_apart(new, updates), state

    return optax.GradientTransformation(lambda p: inner.init(arrange(p)), update)


def arrange(tree: PyTree) -> dict[str, Array]:
    """Matrices of the same shape stacked, and all the rest as one vector."""
    parts: dict[str, list[Array]] = {}
    for x, name, shape in _places(tree):
        parts.setdefault(name, []).append(x.reshape(shape))
    return {name: jnp.concatenate(values) for name, values in parts.items()}


def _take_apart(arranged: dict[str, Array], like: PyTree) -> PyTree:
    used = dict.fromkeys(arranged, 0)
    leaves = []
    for x, name, shape in _places(like):
        count = x.size // math.prod(shape[1:])
        part = arranged[name][used[name] : used[name] + count]
        used[name] += count
        leaves.append(part.reshape(x.shape))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _places(tree: PyTree) -> Iterator[tuple[Array, str, tuple[int, ...]]]:
    """Each leaf with the name of what it becomes part of, and its shape in there.

    All pixels of a convolution's kernel are inputs; stacked layers are matrices one by
    one.
    """
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        *inputs, columns = x.shape[1:] if x.ndim == 3 else x.shape
        rows = math.prod(inputs)
        if path[-1].key == "kernel" and min(rows, columns) > _HANDFUL:
            yield x, f"{rows}x{columns}", (-1, rows, columns)
        else:
            yield x, _REST, (-1,)


def _axes(arranged: dict[str, Any]) -> dict[str, Any]:
    """Inputs and outputs of stacked matrices; None is what Adam keeps."""
    matrix = contrib.MuonDimensionNumbers(1, 2)
    return {name: None if name == _REST else matrix for name in arranged}
