"""Batches of several runs at once, stacked along a first axis of seeds."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from ocloc_jax.data import placement, prefetch, sources, training


@dataclasses.dataclass(frozen=True)
class SeedsPipeline:
    """The batches that each seed's `TrainPipeline` would give alone, stacked.

    Only the number of views is shared, since arrays of one program have one shape.

    Attributes:
      pipelines: Of the seeds, with the rows, that this host's devices hold.
      global_shape: Seeds and rows of a whole batch, over all hosts.
    """

    pipelines: Sequence[training.TrainPipeline]
    global_shape: tuple[int, int]

    def host_batch(self, step: int) -> dict[str, np.ndarray]:
        """This host's part of a batch, as a pure function of `step`."""
        parts = [pipeline.host_batch(step) for pipeline in self.pipelines]
        return {key: np.stack([part[key] for part in parts]) for key in parts[0]}

    def batches(
        self, start_step: int, stop_step: int, *, sharding: jax.sharding.Sharding
    ) -> prefetch.DeviceIterator:
        """Iterates over batches on the devices, reading ahead in the background."""
        place = functools.partial(
            placement.place, sharding=sharding, global_shape=self.global_shape
        )
        return prefetch.stream(self.host_batch, range(start_step, stop_step), place)


def stack_seeds(
    scenes: sources.Scenes,
    batch_size: int,
    seeds: range,
    sharding: jax.sharding.Sharding,
    **options: object,
) -> SeedsPipeline:
    """Pipelines of some seeds, of which this host reads what its devices need.

    Args:
      scenes: Where scenes come from.
      batch_size: Scenes in a batch of one seed, over all hosts.
      seeds: The seeds.
      sharding: How `[seed, row, ...]` lies on the devices.
      **options: Of `TrainPipeline`; the first seed decides the number of views unless
        `views_seed` is among them.
    """
    shape = len(seeds), batch_size
    own_seeds, own_rows = _local_part(sharding, shape)
    size = len(own_rows)
    # A host that holds some rows of a batch is one of those that share it.
    options |= dict(
        process_index=own_rows.start // size, process_count=batch_size // size
    )
    if options.get("views_seed") is None:
        options["views_seed"] = seeds[0]
    pipelines = [
        training.TrainPipeline(scenes, batch_size, seed=seeds[i], **options)
        for i in own_seeds
    ]
    return SeedsPipeline(pipelines, shape)


def _local_part(
    sharding: jax.sharding.Sharding, shape: tuple[int, int]
) -> tuple[range, range]:
    """The seeds and rows on this host's devices; they must form one block."""
    blocks = {
        tuple(range(n)[s] for n, s in zip(shape, index, strict=True))
        for index in sharding.addressable_devices_indices_map(shape).values()
    }
    spans = []
    for axis in (0, 1):
        parts = sorted({block[axis] for block in blocks}, key=lambda part: part.start)
        spans.append(range(parts[0].start, parts[-1].stop))
    if sum(len(a) * len(b) for a, b in blocks) != len(spans[0]) * len(spans[1]):
        raise ValueError(
            "The devices of this process hold no block of seeds and rows: order the "
            "mesh's devices by process."
        )
    return spans[0], spans[1]
