"""From scenes to batches on the device: what a step reads, decodes and places."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Int

from ocloc_jax.data import placement, prefetch, sources

Rows = Int[np.ndarray, " b"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What some rows of a global batch hold.

    Attributes:
      scenes: Scene of each row.
      views: Views of that scene.
      valid: False for rows that only fill up a last batch.
    """

    scenes: Int[np.ndarray, " b"]
    views: Int[np.ndarray, "b m"]
    valid: Bool[np.ndarray, " b"] | None = None


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """What training and evaluation share: sharding, decoding, prefetching.

    Attributes:
      scenes: Where scenes come from.
      batch_size: Scenes in a global batch, over all hosts.
      keys: Arrays to decode.
      process_index: Which host this is; by default what JAX says.
      process_count: How many hosts share a batch; by default what JAX says.
    """

    scenes: sources.Scenes
    batch_size: int
    keys: Sequence[str] = ("image",)
    process_index: int | None = None
    process_count: int | None = None

    def __post_init__(self) -> None:
        """Fails here rather than after an hour."""
        if self.process_count is None:
            object.__setattr__(self, "process_count", jax.process_count())
        if self.process_index is None:
            object.__setattr__(self, "process_index", jax.process_index())
        if not 0 <= self.process_index < self.process_count:
            raise ValueError(
                f"process_index {self.process_index} is not one of the "
                f"{self.process_count} processes."
            )
        if self.batch_size < 1 or self.batch_size % self.process_count:
            raise ValueError(
                f"batch_size {self.batch_size} cannot be shared equally by "
                f"{self.process_count} processes; choose a multiple."
            )
        if not len(self.scenes):
            raise ValueError("The dataset is empty.")
        self._check_keys(self.keys)

    def _check_keys(self, keys: Sequence[str]) -> None:
        missing = [key for key in keys if key not in self.scenes.keys]
        if missing:
            raise ValueError(
                f"The scenes have no {missing}; they have {list(self.scenes.keys)}."
            )

    def _check_num_views(self, num_views: int, argument: str) -> None:
        scene = int(np.argmin(self.scenes.view_counts))
        available = int(self.scenes.view_counts[scene])
        if not 1 <= num_views <= available:
            raise ValueError(
                f"{argument} is {num_views}, but scene {scene} has {available} views: "
                f"choose 1 to {available}, or leave such scenes out."
            )

    @property
    def num_steps(self) -> int:
        """Number of batches."""
        raise NotImplementedError

    def plan(self, step: int, rows: Rows | None = None) -> Plan:
        """Says what rows of a step's global batch hold (this host's by default)."""
        raise NotImplementedError

    @property
    def local_rows(self) -> Rows:
        """Rows of a global batch that this host reads."""
        size = self.batch_size // self.process_count
        return self.process_index * size + np.arange(size)

    def host_batch(self, step: int) -> dict[str, np.ndarray]:
        """Reads this host's rows of a batch into memory: a pure function of `step`.

        Returns:
          The asked keys `[b, m, ...]`, `index` `[b]` (scenes), `views` `[b, m]`, and
          in evaluation `valid` `[b]`.
        """
        plan = self.plan(step)
        batch: dict[str, np.ndarray] = {}
        for i, (scene, views) in enumerate(zip(plan.scenes, plan.views, strict=True)):
            example = self.scenes[int(scene)]
            row = self.scenes.decode(example, views.tolist(), self.keys)
            # Row by row, not `np.stack`: a row's memory is then used again. The page
            # faults it saves are most of the time where scenes are not encoded.
            for key, array in row.items():
                if i == 0:
                    batch[key] = np.empty((len(plan.scenes), *array.shape), array.dtype)
                batch[key][i] = array
        batch["index"] = plan.scenes.astype(np.int32)
        batch["views"] = plan.views.astype(np.int32)
        return batch if plan.valid is None else {**batch, "valid": plan.valid}

    def batches(
        self,
        start_step: int = 0,
        stop_step: int | None = None,
        *,
        sharding: jax.sharding.Sharding | None = None,
        num_workers: int = 0,
        num_threads: int | None = None,
        device_buffer: int = 2,
    ) -> prefetch.DeviceIterator:
        """Iterates over batches on the device, reading ahead in the background.

        The batches are the same whatever the options, and whatever `start_step` the
        iteration began at. Dropping the iterator stops the background work.

        Args:
          start_step: First step.
          stop_step: Step to stop before; by default the end of the data.
          sharding: How batches lie on the devices, their first axis split; by default
            on the first device. Needed with more than one process.
          num_workers: Processes that read and decode; 0 uses threads of this one.
          num_threads: Threads that read and decode, in every process.
          device_buffer: Batches kept ready on the device.
        """
        if start_step < 0:
            raise ValueError(f"start_step is {start_step}; it cannot be negative.")
        if sharding is None and self.process_count > 1:
            raise ValueError("Pass `sharding`: several processes share each batch.")
        placement.check(sharding, self.local_rows, self.batch_size)
        stop_step = self.num_steps if stop_step is None else stop_step
        place = functools.partial(
            placement.place, sharding=sharding, global_shape=(self.batch_size,)
        )
        return prefetch.stream(
            self.host_batch,
            range(start_step, stop_step),
            place,
            num_workers=num_workers,
            num_threads=num_threads,
            device_buffer=device_buffer,
        )
