"""Several independent runs at once: seeds as the first axis of states and batches.

A single seed has no such axis: its programs, numbers and files are the same as if
there were no such thing as seeds.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ocloc_jax import data, distributed, train

WAYS = ("auto", "vmap", "loop")


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Which seeds run, and how they lie on the devices; see `make`.

    Attributes:
      numbers: The seeds.
      mesh: Axes `seed` and `data`, or `data` alone if no device holds only some seeds.
      way: "vmap": one program for all seeds, as for a single one. "loop": the program
        of one seed, called for one seed after another.
      patience: A seed whose verdict is dead at so many logs in a row is frozen; 0
        freezes none.
    """

    numbers: range
    mesh: Mesh
    way: str
    patience: int = 0

    @property
    def batch_sharding(self) -> NamedSharding:
        """Of a batch `[row, ...]`, or `[seed, row, ...]` of several seeds."""
        axes = ("data",) if self.alone else ("seed", "data")
        return self.sharding(*axes)

    @property
    def state_sharding(self) -> Any:
        """Of a state, as a prefix of its tree."""
        whole = self.sharding()
        if self.alone:
            return whole
        split = self.sharding("seed")
        return train.TrainState(whole, split, split, split, dead_logs=whole)

    @property
    def is_one_program(self) -> bool:
        """Whether a step of all seeds is one program, which can be compiled ahead."""
        return self.way == "vmap"

    def create_state(
        self, params: Sequence[PyTree], optimizer: optax.GradientTransformation
    ) -> train.TrainState:
        """The state before the first update from parameters of each seed."""
        states = [
            train.create_state(p, optimizer, seed)
            for p, seed in zip(params, self.numbers, strict=True)
        ]
        state = states[0]
        if not self.alone:
            own = [state.replace(step=None) for state in states]
            state = self.stack(*own).replace(step=state.step)
        if self.patience:
            state = state.replace(dead_logs=jnp.zeros(len(self.numbers), jnp.int32))
        if self.alone:  # the one case in which devices may be other processes'
            return distributed.place(state, self.state_sharding)
        return jax.device_put(state, self.state_sharding)

    def frozen(self, state: train.TrainState) -> np.ndarray:
        """Which seeds are given up."""
        if state.dead_logs is None:
            return np.zeros(len(self.numbers), bool)
        return np.asarray(jax.device_get(state.dead_logs)) >= self.patience

    def count_dead(
        self, state: train.TrainState, dead: Sequence[bool]
    ) -> train.TrainState:
        """Counts the logs in a row at which seeds were dead; a frozen one stays so."""
        before = np.asarray(jax.device_get(state.dead_logs))
        counts = np.where(dead, before + 1, 0)
        counts = np.where(self.frozen(state), before, counts).astype(np.int32)
        return state.replace(dead_logs=jax.device_put(counts, self.sharding()))

    def rows(self, metrics: dict[str, Any], frozen: np.ndarray) -> dict[int, Any]:
        """What a step said of each seed that is not frozen, on the host."""
        parts = self.split(jax.device_get(metrics))
        triples = zip(self.numbers, parts, frozen, strict=True)
        return {seed: row for seed, row, is_frozen in triples if not is_frozen}

    def split(self, numbers: dict[str, Any]) -> list[dict[str, Any]]:
        """Numbers of each seed."""
        if self.alone:
            return [numbers]
        return [{k: v[i] for k, v in numbers.items()} for i in range(len(self.numbers))]

    def parts(self, tree: PyTree) -> Iterator[PyTree]:
        """Of a tree of arrays the part of each seed, whole on every device."""
        if self.alone:
            yield tree
        else:
            yield from (self.part(tree, i) for i in range(len(self.numbers)))

    def part(self, tree: PyTree, i: int, *axes: str) -> PyTree:
        """The part of seed number i, its first axes split along axes of the mesh."""
        return self._programs["take", axes](tree, i)

    def put(self, tree: PyTree, part: PyTree, i: int) -> PyTree:
        """Puts the part of seed number i back, where the tree lies in memory."""
        return self._programs["put", ()](tree, part, i)

    def state_of(self, state: train.TrainState, i: int) -> train.TrainState:
        """The state that seed number i would have alone."""
        own = state.replace(dead_logs=None)
        if self.alone:
            return own
        return self.part(own.replace(step=None), i).replace(step=state.step)

    def batch_of(self, batch: data.Batch, i: int) -> data.Batch:
        """The batch that seed number i would have alone."""
        return batch if self.alone else self.part(batch, i, "data")

    def stack(self, *trees: PyTree) -> PyTree:
        """A tree for all seeds from those of each."""
        return self._programs["stack", ()](*trees)

    @functools.cached_property
    def _programs(self) -> dict[Any, Callable[..., PyTree]]:
        return {
            ("take", ()): jax.jit(_index, out_shardings=self.sharding()),
            ("take", ("data",)): jax.jit(_index, out_shardings=self.sharding("data")),
            ("put", ()): jax.jit(
                _put, out_shardings=self.sharding("seed"), donate_argnums=0
            ),
            ("stack", ()): jax.jit(_stack, out_shardings=self.sharding("seed")),
        }

    @property
    def alone(self) -> bool:
        """Whether there is but one seed, and no axis of seeds."""
        return len(self.numbers) == 1

    def sharding(self, *axes: str) -> NamedSharding:
        """Splits first axes of an array along those axes that the mesh has."""
        axes = (axis if axis in self.mesh.axis_names else None for axis in axes)
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def make(
    first: int,
    count: int = 1,
    *,
    way: str = "auto",
    patience: int = 0,
    devices: Sequence[jax.Device] | None = None,
) -> Seeds:
    """Lays seeds out on devices (all by default).

    With "vmap" seeds go to different devices first, and devices that are left split
    the batch; with "loop" all devices split the batch.

    Args:
      first: The first seed; the others follow it.
      count: How many.
      way: See `Seeds`; "auto" chooses by platform.
      patience: See `Seeds`.
      devices: Of the mesh.
    """
    devices = list(jax.devices() if devices is None else devices)
    if way == "auto":
        way = choose_way(devices[0].platform)
    numbers = range(first, first + count)
    if count == 1 or way == "loop":  # the same programs for one seed and for several
        way = "vmap" if count == 1 else way
        return Seeds(numbers, data.data_sharding(devices).mesh, way, patience)
    shape, axis_types = mesh_shape(count, len(devices)), 2 * (AxisType.Auto,)
    mesh = jax.make_mesh(
        shape, ("seed", "data"), axis_types=axis_types, devices=devices
    )
    return Seeds(numbers, mesh, way, patience)


def choose_way(platform: str) -> str:
    """How a platform runs several seeds fastest.

    XLA on CPU is at home with convolutions at the top of a program only. The demo's
    step, 4 seeds of batch 16 on two (busy) cores: 0.6 s for a seed alone; for all four
    67 s by `jax.lax.map`, since gradients of convolutions inside any loop or
    conditional are 10 to 300 times slower, 17 s by `jax.vmap`, which makes them
    grouped ones, and four times one seed by calling its program four times.
    """
    return "loop" if platform == "cpu" else "vmap"


def mesh_shape(num_seeds: int, num_devices: int) -> tuple[int, int]:
    """Over how many devices seeds, and the batch of a seed, are split."""
    split = math.gcd(num_seeds, num_devices)
    return split, num_devices // split


def _index(tree: PyTree, i: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _put(tree: PyTree, part: PyTree, i: Any) -> PyTree:
    return jax.tree.map(lambda whole, own: whole.at[i].set(own), tree, part)


def _stack(*trees: PyTree) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
