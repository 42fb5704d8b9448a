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

from ocloc_jax import data, train

WAYS = ("auto", "vmap", "loop")


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Which seeds run, and how they lie on the devices; see `make`.

    Attributes:
      numbers: The seeds.
      mesh: Axes `seed` and `data`, or `data` alone for one seed.
      way: "vmap": one program for all seeds. "loop": the program of one seed, called
        for one seed after another.
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
        axes = ("data",) if self._alone else ("seed", "data")
        return self._sharding(*axes)

    @property
    def state_sharding(self) -> Any:
        """Of a state, as a prefix of its tree."""
        whole = self._sharding()
        if self._alone:
            return whole
        return train.TrainState(whole, *4 * (self._sharding("seed"),))

    @property
    def is_one_program(self) -> bool:
        """Whether a step of all seeds is one program, which can be compiled ahead."""
        return self._alone or self.way == "vmap"

    def create_state(
        self, params: Sequence[PyTree], optimizer: optax.GradientTransformation
    ) -> train.TrainState:
        """The state before the first update from parameters of each seed."""
        states = [
            train.create_state(p, optimizer, seed)
            for p, seed in zip(params, self.numbers, strict=True)
        ]
        state = states[0]
        if not self._alone:
            own = [state.replace(step=None) for state in states]
            state = self._stack(*own).replace(step=state.step)
        if self.patience:
            state = state.replace(dead_logs=jnp.zeros(len(self.numbers), jnp.int32))
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
        sharding = self._sharding() if self._alone else self._sharding("seed")
        return state.replace(dead_logs=jax.device_put(counts, sharding))

    def jit_step(self, step: train.TrainStep) -> train.TrainStep:
        """Compiles the step of one seed for the state and batch of all."""
        if self._alone:
            return train.jit_data_parallel(step, self.batch_sharding)
        if self.way == "vmap":
            return jax.jit(
                self._step_by_vmap(step),
                in_shardings=(self.state_sharding, self.batch_sharding),
                out_shardings=(self.state_sharding, self._sharding()),
                donate_argnums=0,
            )
        return self._step_by_loop(step)

    def _step_by_vmap(self, step: train.TrainStep) -> train.TrainStep:
        def one(count: Any, own: Any) -> Any:
            state, batch = own
            new, metrics = step(state.replace(step=count), batch)
            if self.patience:
                new = _unless(state.dead_logs >= self.patience, state, new)
            return new.replace(step=None), metrics

        def step_all(state: train.TrainState, batch: data.Batch) -> Any:
            own = state.replace(step=None), batch
            new, metrics = self._over_seeds(one)(state.step, own)
            return new.replace(step=state.step + 1), metrics

        return step_all

    def _over_seeds(self, fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Maps `fn(shared, own)` over the first axis of `own`.

        Each device sees its own seeds only, so no compiler can make them meet; the
        axis `data` is left to it.
        """
        return jax.shard_map(
            jax.vmap(fn, in_axes=(None, 0)),
            mesh=self.mesh,
            in_specs=(PartitionSpec(), PartitionSpec("seed")),
            out_specs=PartitionSpec("seed"),
            axis_names={"seed"},
            check_vma=False,  # loops inside start from constants, equal on all devices
        )

    def _step_by_loop(self, step: train.TrainStep) -> train.TrainStep:
        whole, rows = self._sharding(), self._sharding("data")
        one = jax.jit(step, in_shardings=(whole, rows), out_shardings=whole)

        def step_all(state: train.TrainState, batch: data.Batch) -> Any:
            frozen, dead_logs = self.frozen(state), state.dead_logs
            own = state.replace(step=None, dead_logs=None)
            states, metrics = [], []
            for i in range(len(self.numbers)):
                before, numbers = self._take(own, i).replace(step=state.step), None
                if not frozen[i]:
                    before, numbers = one(before, self._take_rows(batch, i))
                states.append(before.replace(step=None))
                metrics.append(numbers)
            new = self._stack(*states)
            new = new.replace(step=state.step + 1, dead_logs=dead_logs)
            return new, self._stack(*_fill(metrics))

        return step_all

    def jit_eval(self, step: train.EvalStep) -> Callable[..., list[dict[str, Any]]]:
        """Compiles an evaluation of one seed for all: their numbers, seed by seed."""
        if self._alone:
            alone = jax.jit(step)
            return lambda params, batch, keys: [alone(params, batch, keys[0])]
        if self.way == "vmap":
            over = self._over_seeds(lambda batch, own: step(own[0], batch, own[1]))
            together = jax.jit(over, out_shardings=self._sharding())

            def evaluate(params: PyTree, batch: data.Batch, keys: Sequence) -> list:
                return self._split(together(batch, (params, jnp.stack(keys))))

            return evaluate
        one = jax.jit(step)
        return lambda params, batch, keys: [
            one(part, batch, key)
            for part, key in zip(self.parts(params), keys, strict=True)
        ]

    def rows(self, metrics: dict[str, Any], frozen: np.ndarray) -> dict[int, Any]:
        """What a step said of each seed that is not frozen, on the host."""
        parts = self._split(jax.device_get(metrics))
        pairs = zip(self.numbers, parts, strict=True)
        return {
            seed: row for (seed, row), f in zip(pairs, frozen, strict=True) if not f
        }

    def parts(self, tree: PyTree) -> Iterator[PyTree]:
        """The part of each seed, whole on every device."""
        if self._alone:
            yield tree
        else:
            yield from (self._take(tree, i) for i in range(len(self.numbers)))

    def _split(self, numbers: dict[str, Any]) -> list[dict[str, Any]]:
        if self._alone:
            return [numbers]
        return [{k: v[i] for k, v in numbers.items()} for i in range(len(self.numbers))]

    @functools.cached_property
    def _take(self) -> Callable[[PyTree, int], PyTree]:
        return jax.jit(_index, out_shardings=self._sharding())

    @functools.cached_property
    def _take_rows(self) -> Callable[[PyTree, int], PyTree]:
        return jax.jit(_index, out_shardings=self._sharding("data"))

    @functools.cached_property
    def _stack(self) -> Callable[..., PyTree]:
        def stack(*trees: PyTree) -> PyTree:
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

        return jax.jit(stack, out_shardings=self._sharding("seed"))

    @property
    def _alone(self) -> bool:
        return len(self.numbers) == 1

    def _sharding(self, *axes: str) -> NamedSharding:
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
    if count == 1:
        mesh = data.data_sharding(devices).mesh
        return Seeds(range(first, first + 1), mesh, "vmap", patience)
    way = choose_way(devices[0].platform) if way == "auto" else way
    shape = mesh_shape(count, len(devices), way)
    axis_types = (AxisType.Auto, AxisType.Auto)
    mesh = jax.make_mesh(
        shape, ("seed", "data"), axis_types=axis_types, devices=devices
    )
    return Seeds(range(first, first + count), mesh, way, patience)


def choose_way(platform: str) -> str:
    """How a platform runs several seeds fastest.

    XLA on CPU is at home with convolutions at the top of a program only. The demo's
    step, 4 seeds of batch 16 on two (busy) cores: 0.6 s for a seed alone; for all four
    67 s by `jax.lax.map`, since gradients of convolutions inside any loop or
    conditional are 10 to 300 times slower, 17 s by `jax.vmap`, which makes them
    grouped ones, and four times one seed by calling its program four times.
    """
    return "loop" if platform == "cpu" else "vmap"


def mesh_shape(num_seeds: int, num_devices: int, way: str) -> tuple[int, int]:
    """Over how many devices seeds, and the batch of a seed, are split."""
    split = math.gcd(num_seeds, num_devices) if way == "vmap" else 1
    return split, num_devices // split


def _index(tree: PyTree, i: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def _unless(
    frozen: Any, old: train.TrainState, new: train.TrainState
) -> train.TrainState:
    """The new state, with parameters and optimiser of the old one if it is frozen."""

    def keep(a: PyTree, b: PyTree) -> PyTree:
        return jax.tree.map(lambda x, y: jnp.where(frozen, x, y), a, b)

    return new.replace(
        params=keep(old.params, new.params),
        opt_state=keep(old.opt_state, new.opt_state),
    )


def _fill(metrics: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Numbers of every seed; those of frozen ones are not known."""
    known = next(m for m in metrics if m is not None)
    nothing = {name: np.float32(np.nan) for name in known}
    return [nothing if m is None else m for m in metrics]
