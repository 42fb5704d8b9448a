"""Makes the shards of all splits on all cores, and keeps what is already there."""

import concurrent.futures
import contextlib
import fcntl
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tqdm

from tfds_builders import shards
from tfds_builders.sources import DataError, Source, digest

_BYTES_PER_SHARD = 1 << 26  # Of decoded views.
_SCENES_PER_SHARD = 64
# Fewer pixels than this are rendered sooner than worker processes can start.
_PIXELS_WORTH_A_POOL = 1 << 24

Notes = dict[str, list[shards.ShardNote]]


def split_into_shards(source: Source, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Returns `(start, stop)` of every shard; depends on nothing but the scale."""
    scene_bytes = source.num_views * size[0] * size[1] * 3
    step = max(1, min(_SCENES_PER_SHARD, _BYTES_PER_SHARD // scene_bytes))
    starts = range(0, source.num_scenes, step)
    return [(start, min(start + step, source.num_scenes)) for start in starts]


def make_shards(plan: Mapping[str, list[shards.Shard]], workers: int = 0) -> Notes:
    """Makes every shard that is not there yet.

    Args:
      plan: Shards of each split.
      workers: Number of processes; 0 chooses.

    Returns:
      The notes of each split in the order of its shards.
    """
    notes = {shard.path: shards.finished(shard) for shard in _flat(plan)}
    missing = [shard for shard in _flat(plan) if notes[shard.path] is None]
    if missing:
        workers = min(workers or _choose_workers(missing), len(missing))
        notes |= _run(missing, workers, _progress(plan, missing))
    return {split: [notes[shard.path] for shard in plan[split]] for split in plan}


def _flat(plan: Mapping[str, Iterable[shards.Shard]]) -> list[shards.Shard]:
    return [shard for split in plan.values() for shard in split]


def _choose_workers(missing: list[shards.Shard]) -> int:
    scenes = sum(
        (shard.stop - shard.start) * shard.source.num_views for shard in missing
    )
    pixels = scenes * missing[0].size[0] * missing[0].size[1]
    return len(os.sched_getaffinity(0)) if pixels > _PIXELS_WORTH_A_POOL else 1


def _progress(plan: Mapping, missing: list[shards.Shard]) -> tqdm.tqdm:
    """A bar with rate and time left; a line every ten seconds if not on a terminal."""
    total = sum(shard.stop - shard.start for shard in _flat(plan))
    left = sum(shard.stop - shard.start for shard in missing)
    interval = 0.5 if sys.stderr.isatty() else 10.0
    return tqdm.tqdm(
        total=total, initial=total - left, unit="scene", mininterval=interval
    )


def _run(
    missing: list[shards.Shard], workers: int, bar: tqdm.tqdm
) -> dict[str, shards.ShardNote]:
    with bar:
        if workers <= 1:
            return {shard.path: shards.write(shard, bar.update) for shard in missing}
        return _run_in_pool(missing, workers, bar)


def _run_in_pool(
    missing: list[shards.Shard], workers: int, bar: tqdm.tqdm
) -> dict[str, shards.ShardNote]:
    context = multiprocessing.get_context("spawn")  # JAX does not survive a fork.
    scenes_done, stop = context.Queue(), context.Event()
    with concurrent.futures.ProcessPoolExecutor(
        workers, context, initializer=_start_worker, initargs=(scenes_done, stop)
    ) as pool:
        futures = {pool.submit(_work, shard): shard.path for shard in missing}
        try:
            _follow(set(futures), scenes_done, bar)
        except BaseException:
            stop.set()  # The others end with the scene they are at.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return {path: future.result() for future, path in futures.items()}


def _follow(pending: set[concurrent.futures.Future], scenes_done, bar) -> None:
    """Moves the bar until all are done; raises the first error at once."""
    while pending:
        done, pending = concurrent.futures.wait(pending, timeout=0.5)
        while not scenes_done.empty():
            bar.update(scenes_done.get())
        try:
            for future in done:
                future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise DataError(
                "a worker process died, perhaps for lack of memory; build again to go "
                "on from here, with fewer --workers"
            ) from error


_scenes_done: Any = None  # Queue and event of the worker process.
_stop: Any = None


def _start_worker(scenes_done: Any, stop: Any) -> None:
    global _scenes_done, _stop
    _scenes_done, _stop = scenes_done, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides.
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """Ends the worker when a killed build can no longer tell it to."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _work(shard: shards.Shard) -> shards.ShardNote:
    return shards.write(shard, _count_scenes)


def _count_scenes(count: int) -> None:
    _scenes_done.put(count)
    if _stop.is_set():
        raise DataError("stopped because another worker failed")


@contextlib.contextmanager
def work_directory(path: pathlib.Path, identity: Any) -> Iterator[pathlib.Path]:
    """Opens the directory of an unfinished build; only one process may have it.

    Shards of another identity (other data, settings or code) are thrown away.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / "lock").open("w")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror}); choose another --data_dir "
            "or make room"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{path}: another build is at work here") from error
        _forget_others(path, digest(identity))
        yield path


def _forget_others(path: pathlib.Path, identity: str) -> None:
    marker = path / "identity"
    if not marker.exists() or marker.read_text() != identity:
        for entry in path.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        marker.write_text(identity)
