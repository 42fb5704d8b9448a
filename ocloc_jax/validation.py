"""Validation during training: the objective and scores of a split, for each seed."""

from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np

from ocloc_jax import data, distributed, over_seeds, train
from ocloc_jax.data.prefetch import DeviceIterator
from ocloc_jax.seeds import Seeds

Rows = Mapping[int, Mapping[str, Any]]  # numbers of each seed


class Validation:
    """A function of the parameters: means over the scenes of a split, by seed."""

    def __init__(self, step: train.EvalStep, seeds: Seeds, pipeline: data.EvalPipeline):
        """Reads and compiles nothing yet.

        Args:
          step: Numbers of every scene of a batch.
          seeds: Which there are.
          pipeline: Batches of the split.
        """

        def numbers(
            params: Any, batch: data.Batch, seed: Any, index: Any
        ) -> dict[str, Any]:
            key = jax.random.fold_in(jax.random.key(seed), index)
            return step(params, batch, key) | {"valid": batch["valid"]}

        self._seeds, self._pipeline = seeds, pipeline
        self._program = over_seeds.Evaluation(numbers, seeds)

    def __call__(self, params: Any) -> Rows:
        rows = {seed: [] for seed in self._seeds.numbers}
        for i, batch in enumerate(self._batches()):
            parts = distributed.to_host(self._program(params, batch, i))
            for seed, numbers in zip(rows, parts, strict=True):
                valid = numbers.pop("valid")
                rows[seed].append({k: v[valid] for k, v in numbers.items()})
        return {seed: _means(parts) for seed, parts in rows.items()}

    def prepare(self, pool: futures.Executor, params: Any) -> None:
        """Has the program made in the background, for parameters like these."""
        with self._batches(1) as batches:
            self._program.prepare(pool, params, next(batches))

    def _batches(self, stop: int | None = None) -> DeviceIterator:
        return self._pipeline.batches(0, stop, sharding=self._seeds.sharding("data"))


def _means(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
    joined = {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
    return {k: float(v.mean()) for k, v in joined.items()}
