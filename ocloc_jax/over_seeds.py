"""Programs of one seed, made to serve several: vectorised, or one after another."""

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import PyTree

from ocloc_jax import data, programs, train
from ocloc_jax.seeds import Seeds


def jit_step(step: train.TrainStep, seeds: Seeds) -> train.TrainStep:
    """Compiles the training step of one seed for the state and batch of all."""
    if seeds.alone:
        return train.jit_data_parallel(step, seeds.batch_sharding)
    if seeds.way == "loop":
        return _step_by_loop(step, seeds)
    return jax.jit(
        _step_by_vmap(step, seeds),
        in_shardings=(seeds.state_sharding, seeds.batch_sharding),
        out_shardings=(seeds.state_sharding, seeds.sharding()),
        donate_argnums=0,
    )


class Evaluation:
    """An evaluation of one seed, compiled for all.

    Called with the parameters of all seeds, a batch and its number; returns what the
    step gives, seed by seed, complete on every process.
    """

    def __init__(self, step: Callable[..., dict[str, Any]], seeds: Seeds):
        """Compiles nothing yet.

        Args:
          step: A function of parameters, a batch, a seed, and the number of the batch.
          seeds: Which there are.
        """
        self._seeds, self._one_by_one = seeds, seeds.alone or seeds.way == "loop"

        def own_last(shared: Any, own: Any) -> dict[str, Any]:
            (batch, index), (params, seed) = shared, own
            return step(params, batch, seed, index)

        program = step if self._one_by_one else vectorise(own_last, seeds)
        jitted = jax.jit(program, out_shardings=seeds.sharding())
        self._program = programs.Ahead(jitted)

    def __call__(
        self, params: PyTree, batch: data.Batch, index: int
    ) -> list[dict[str, Any]]:
        seeds = self._seeds
        if self._one_by_one:
            pairs = zip(seeds.parts(params), seeds.numbers, strict=True)
            return [self._program(part, batch, seed, index) for part, seed in pairs]
        return seeds.split(self._program(*self._for_all(params, batch, index)))

    def prepare(
        self, pool: futures.Executor, params: PyTree, batch: data.Batch
    ) -> None:
        """Has the program made in the background, for arrays like these."""
        if self._one_by_one:
            part = next(self._seeds.parts(params))
            self._program.prepare(pool, part, batch, self._seeds.numbers[0], 0)
        else:
            self._program.prepare(pool, *self._for_all(params, batch, 0))

    def _for_all(self, params: PyTree, batch: data.Batch, index: int) -> tuple:
        return (batch, index), (params, np.array(self._seeds.numbers, np.int32))


def vectorise(fn: Callable[[Any, Any], Any], seeds: Seeds) -> Callable[[Any, Any], Any]:
    """Maps `fn(shared, own)` over the first axis of `own`.

    Each device sees its own seeds only, so no compiler can make them meet; the axis
    `data` is left to it.
    """
    return jax.shard_map(
        jax.vmap(fn, in_axes=(None, 0)),
        mesh=seeds.mesh,
        in_specs=(PartitionSpec(), PartitionSpec("seed")),
        out_specs=PartitionSpec("seed"),
        axis_names={"seed"},
        check_vma=False,  # loops inside start from constants, equal on all devices
    )


def _step_by_vmap(step: train.TrainStep, seeds: Seeds) -> train.TrainStep:
    def one(count: Any, own: Any) -> Any:
        state, batch = own
        new, metrics = step(state.replace(step=count), batch)
        if seeds.patience:
            new = _unless(state.dead_logs >= seeds.patience, state, new)
        return new.replace(step=None, dead_logs=None), metrics

    def step_all(state: train.TrainState, batch: data.Batch) -> Any:
        own = state.replace(step=None), batch
        new, metrics = vectorise(one, seeds)(state.step, own)
        new = new.replace(step=state.step + 1, dead_logs=state.dead_logs)
        return new, metrics

    return step_all


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


def _step_by_loop(step: train.TrainStep, seeds: Seeds) -> train.TrainStep:
    # The very program of a seed that is alone, so that not a bit differs.
    one = train.jit_data_parallel(step, seeds.sharding("data"))

    def step_all(state: train.TrainState, batch: data.Batch) -> Any:
        # Whoever counts dead logs put these numbers here: nothing waits for them.
        frozen, dead_logs, count = seeds.frozen(state), state.dead_logs, state.step
        states, metrics = state.replace(step=None, dead_logs=None), []
        for i in range(len(seeds.numbers)):
            numbers = None
            if not frozen[i]:
                # A copy, since the program takes the memory of what it is given.
                own = seeds.part(states, i).replace(step=jnp.copy(count))
                own, numbers = one(own, seeds.batch_of(batch, i))
                states = seeds.put(states, own.replace(step=None), i)
            metrics.append(numbers)
        states = states.replace(step=count + 1, dead_logs=dead_logs)
        return states, seeds.stack(*_fill(metrics))

    return step_all


def _fill(metrics: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Numbers of every seed; those of frozen ones are not known."""
    known = next(m for m in metrics if m is not None)
    nothing = {name: np.float32(np.nan) for name in known}
    return [nothing if m is None else m for m in metrics]
