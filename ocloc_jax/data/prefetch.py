"""Work done ahead of time: reading on the host, copies on the device."""

import collections
import os
import weakref
from collections.abc import Callable, Iterator

import grain
import numpy as np
from absl import flags

from ocloc_jax.data import placement


def stream(
    host_batch: Callable[[int], dict[str, np.ndarray]],
    steps: range,
    place: Callable[[dict[str, np.ndarray]], placement.Batch],
    *,
    num_workers: int = 0,
    num_threads: int | None = None,
    device_buffer: int = 2,
) -> "DeviceIterator":
    """Batches of steps on the device, read and placed ahead of their use."""
    dataset = grain.MapDataset.range(steps.start, max(steps.start, steps.stop))
    num_threads = num_threads or min(8, os.cpu_count() or 1)
    on_host = read_ahead(dataset.map(host_batch), num_workers, num_threads)
    return DeviceIterator(on_host, place, device_buffer)


def read_ahead(
    dataset: grain.MapDataset, num_workers: int, num_threads: int
) -> grain.IterDataset:
    """Reads elements in the background with threads, or in processes with threads."""
    options = grain.ReadOptions(num_threads, prefetch_buffer_size=2 * num_threads)
    elements = dataset.to_iter_dataset(options)
    if not num_workers:
        return elements
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()  # Worker processes are handed the absl flags.
    return elements.mp_prefetch(
        grain.MultiprocessingOptions(num_workers, per_worker_buffer_size=2)
    )


class DeviceIterator(Iterator[placement.Batch]):
    """Keeps a few batches on the device ahead of the one in use.

    Copies to the device do not wait for each other or for the computation, so no
    thread is needed. Reading stops when the iterator is closed or dropped, and at the
    end of the program.
    """

    def __init__(
        self,
        dataset: grain.IterDataset,
        place: Callable[[dict[str, np.ndarray]], placement.Batch],
        ahead: int,
    ):
        """Starts nothing: the first `next` does."""
        self._dataset, self._place, self._ahead = dataset, place, ahead
        self._ready: collections.deque[placement.Batch] = collections.deque()
        self._source: list[Iterator[dict[str, np.ndarray]]] = []
        self._started = False
        # Also runs at exit, while the modules that grain needs are still alive.
        self.close = weakref.finalize(self, _close, self._source, self._ready)

    def __next__(self) -> placement.Batch:
        if not self._started and self.close.alive:
            self._started = True
            self._source.append(iter(self._dataset))
        while self._source and len(self._ready) <= self._ahead:
            try:
                self._ready.append(self._place(next(self._source[0])))
            except StopIteration:
                self._source.clear()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def __enter__(self) -> "DeviceIterator":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _close(source: list, ready: collections.deque) -> None:
    ready.clear()
    while source:
        source.pop().close()
