"""One compiled program for each number of views, most of them made in the background.

The program that is needed first is compiled first, and training starts with it; a
thread compiles the others in the order in which training will come to them. Programs
are kept on disk between runs where JAX has a cache directory.
"""

import ctypes
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from ocloc_jax import data

Compiled = Callable[..., Any]
Shapes = dict[str, jax.ShapeDtypeStruct]
_LOOK_AHEAD = 1000  # steps; each costs microseconds
_SELDOM = 100_000, 20, 10  # see `gc.set_threshold`


class Programs:
    """A jitted step as ready programs, called like the step itself.

    A batch of any other shape is an error instead of another long compilation.
    """

    def __init__(
        self,
        step: Any,
        state: Any,
        batches: Mapping[int, Shapes],
        pool: futures.Executor,
        say: Callable[[str], None] = print,
    ):
        """Starts to compile in the background, in the order of `batches`.

        Args:
          step: A jitted function of a state and a batch.
          state: Its arrays, or their shapes.
          batches: Shapes of the batch for each number of views, soonest first.
          pool: Where they are compiled.
          say: Told of every program that is ready.
        """
        self._step, self._state, self._batches = step, abstract(state), dict(batches)
        self._say, self._count, self._lock = say, 0, threading.Lock()
        self._ready: dict[int, Compiled] = {}
        self._begun = {m: pool.submit(self._compile, m) for m in self._batches}

    def __call__(self, state: Any, batch: data.Batch) -> Any:
        """Runs the program for this batch, after waiting for it if need be."""
        num_views = batch["image"].shape[-4]
        self._check(num_views, batch["image"].shape)
        if num_views not in self._ready:
            make = functools.partial(self._compile, num_views)
            self._ready[num_views] = _obtain(self._begun[num_views], make)
        return self._ready[num_views](state, batch)

    def _compile(self, num_views: int) -> Compiled:
        start = time.monotonic()
        compiled = self._step.lower(self._state, self._batches[num_views]).compile()
        seconds = time.monotonic() - start
        _tidy_up()
        with self._lock:
            self._count += 1
            self._say(
                f"compiled {self._count} of {len(self._batches)} programs "
                f"({num_views} views, {seconds:.1f} s)"
            )
        return compiled

    def _check(self, num_views: int, shape: tuple[int, ...]) -> None:
        planned = self._batches.get(num_views)
        if planned is None or planned["image"].shape != shape:
            shapes = [batch["image"].shape for batch in self._batches.values()]
            raise ValueError(
                f"A batch of images {shape} came, but the programs of this stage are "
                f"for {sorted(shapes)}: give all images one size, and as many views "
                "as the config says."
            )


class Ahead:
    """A jitted function whose program can be made before training waits for it."""

    def __init__(self, function: Any):
        """Compiles nothing yet."""
        self._function = self._program = function
        self._begun: tuple[futures.Future, Callable[[], Compiled]] | None = None

    def prepare(self, pool: futures.Executor, *args: Any) -> None:
        """Has a program made in the background, for arguments like these."""
        make = functools.partial(self._compile, *jax.tree.map(_placed_shape, args))
        self._begun = pool.submit(make), make

    def __call__(self, *args: Any) -> Any:
        """Runs the program, after waiting for it if need be."""
        if self._begun is not None:
            self._program, self._begun = _obtain(*self._begun), None
        return self._program(*args)

    def _compile(self, *args: Any) -> Compiled:
        compiled = self._function.lower(*args).compile()
        _tidy_up()
        return compiled


@contextmanager
def background() -> Iterator[futures.Executor]:
    """A thread that makes one program after another, in the order of asking.

    At the end it forgets programs that nobody needed; one half made is finished.
    Meanwhile Python looks for garbage less often: it took a quarter of the time of
    tracing, which makes many objects and hardly any garbage.
    """
    pool = futures.ThreadPoolExecutor(1, "compile")
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        gc.set_threshold(*before)
        gc.unfreeze()


def _obtain(begun: futures.Future, make: Callable[[], Compiled]) -> Compiled:
    """A program; if it still waits behind another one, it is made beside that."""
    return make() if begun.cancel() else begun.result()


def _placed_shape(x: Any) -> Any:
    """What a compiler has to know of an array, which may be gone when it asks."""
    if not isinstance(x, jax.Array):
        return x
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _tidy_up() -> None:
    """After compiling: memory is given back, and what stays is not looked at again.

    Python's garbage collector would otherwise go through all that was ever traced, time
    and again.
    """
    give_back_memory()
    gc.collect()
    gc.freeze()


def give_back_memory() -> None:
    """Returns what the compiler has freed to the system, where the C library can.

    A gigabyte for a program of the published sizes, which glibc would keep until the
    process ends.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not glibc
        return


def abstract(tree: Any) -> Any:
    """Shapes and types of arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def batch_shapes(
    batch: tuple[int, ...], num_views: int, image_size: tuple[int, int]
) -> Shapes:
    """What the input pipeline hands to a training step; `batch` is its first axes."""
    image = (*batch, num_views, *image_size, 3)
    return {
        "image": jax.ShapeDtypeStruct(image, jnp.uint8),
        "index": jax.ShapeDtypeStruct(batch, jnp.int32),
        "views": jax.ShapeDtypeStruct((*batch, num_views), jnp.int32),
    }


def upcoming(
    pipeline: data.TrainPipeline | data.SeedsPipeline, start: int, stop: int
) -> dict[int, Shapes]:
    """Shapes of the batches from step `start` on, those that come first in front."""
    if start >= stop:
        return {}
    batch: tuple[int, ...]
    if isinstance(pipeline, data.SeedsPipeline):
        batch, pipeline = pipeline.global_shape, pipeline.pipelines[0]
    else:
        batch = (pipeline.batch_size,)
    image_size = _image_size(pipeline.scenes)
    met = map(pipeline.num_views_at, range(start, min(stop, start + _LOOK_AHEAD)))
    order = dict.fromkeys(met)
    if stop > start + _LOOK_AHEAD:
        order |= dict.fromkeys(pipeline.view_counts)
    return {m: batch_shapes(batch, m, image_size) for m in order}


def _image_size(scenes: data.Scenes) -> tuple[int, int]:
    known = scenes.metadata.get("image_size")
    return known or scenes.decode(scenes[0], [0], ("image",))["image"].shape[1:3]
