"""How gradients become updates: Adam as published, or Muon for short training."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree
from optax import contrib

from ocloc_jax import schedules

KINDS = ("adam", "muon")

Shape = tuple[int, int]
_Group = tuple[set[Shape], Shape, int]  # shapes, their room, number of matrices

_HANDFUL = 8  # inputs or outputs
_REST = "rest"
_WORTH_A_ROOM = 10_000_000  # operations, a tenth of a millisecond on a core
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
    """Matrices stacked in a few rooms, and all the rest as one vector.

    Each kind of room costs half a second to compile. Zeros around a matrix do not
    change what Muon makes of it, nor does turning it over.
    """
    parts: dict[str, list[Array]] = {}
    for x, place in _places(tree):
        if place is None:
            parts.setdefault(_REST, []).append(x.reshape(-1))
        else:
            parts.setdefault(place.name, []).append(place.put(x))
    return {name: jnp.concatenate(values) for name, values in parts.items()}


def _take_apart(arranged: dict[str, Array], like: PyTree) -> PyTree:
    used = dict.fromkeys(arranged, 0)

    def next_of(name: str, count: int) -> Array:
        used[name] += count
        return arranged[name][used[name] - count : used[name]]

    leaves = [
        next_of(_REST, x.size).reshape(x.shape)
        if place is None
        else place.take(next_of(place.name, place.count), x.shape)
        for x, place in _places(like)
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where the matrices of a parameter are, lying on their longer side."""

    count: int
    rows: int
    columns: int
    room: Shape

    @property
    def name(self) -> str:
        return "{}x{}".format(*self.room)

    def put(self, x: ArrayLike) -> Float[Array, "n r c"]:
        x = jnp.reshape(x, (self.count, self.rows, self.columns))
        x = x.swapaxes(1, 2) if self.rows > self.columns else x
        free = np.subtract(self.room, x.shape[1:])
        return jnp.pad(x, ((0, 0), (0, free[0]), (0, free[1])))

    def take(self, x: Float[Array, "n r c"], shape: tuple[int, ...]) -> Array:
        short, long = sorted((self.rows, self.columns))
        # Muon took the room for the matrix when it made updates as large as Adam's.
        x = x[:, :short, :long] * math.sqrt(long / self.room[1])
        return (x.swapaxes(1, 2) if self.rows > self.columns else x).reshape(shape)


def _places(tree: PyTree) -> Iterator[tuple[Array, _Place | None]]:
    """Each leaf with its place; None is with the rest.

    All pixels of a convolution's kernel are inputs; stacked layers are matrices one by
    one.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    matrices = [_matrices(path[-1].key, x.shape) for path, x in leaves]
    rooms = _rooms([tuple(sorted(m[1:])) for m in matrices if m for _ in range(m[0])])
    for (_, x), found in zip(leaves, matrices, strict=True):
        yield x, found and _Place(*found, rooms[tuple(sorted(found[1:]))])


def _matrices(name: str, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """How many matrices a parameter is, their rows and their columns."""
    *inputs, columns = shape[1:] if len(shape) == 3 else shape
    rows = math.prod(inputs)
    if name != "kernel" or min(rows, columns) <= _HANDFUL:
        return None
    return math.prod(shape) // (rows * columns), rows, columns


def _rooms(shapes: Sequence[Shape]) -> dict[Shape, Shape]:
    """The room for each shape: shapes share one as long as that adds little work."""
    groups = [({shape}, shape, n) for shape, n in sorted(Counter(shapes).items())]

    def joined(one: _Group, other: _Group) -> _Group:
        room = tuple(map(max, one[1], other[1]))
        return one[0] | other[0], room, one[2] + other[2]

    def extra(pair: tuple[_Group, _Group]) -> int:
        return _work(joined(*pair)) - _work(pair[0]) - _work(pair[1])

    while len(groups) > 1:
        pair = min(itertools.combinations(groups, 2), key=extra)
        if extra(pair) > _WORTH_A_ROOM:
            break
        groups = [g for g in groups if g not in pair] + [joined(*pair)]
    return {shape: room for shapes, room, _ in groups for shape in shapes}


def _work(group: _Group) -> int:
    """Multiplications and additions of one step of Newton and Schulz."""
    (short, long), count = group[1:]
    return count * (4 * short**2 * long + 2 * short**3)


def _axes(arranged: dict[str, Any]) -> dict[str, Any]:
    """Inputs and outputs of stacked matrices; None is what Adam keeps."""
    matrix = contrib.MuonDimensionNumbers(1, 2)
    return {name: None if name == _REST else matrix for name in arranged}
