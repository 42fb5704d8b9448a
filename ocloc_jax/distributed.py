"""Several processes as one run: how they find each other, and how they agree."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec, Sharding

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")

_LONGEST_WAIT = 7 * 24 * 3600  # seconds; process 0 may be drawing figures


def initialize() -> None:
    """Joins the other processes of a run, if the environment speaks of any.

    `VARIABLES` say it outright; on Slurm, TPU pods and under Open MPI JAX finds out
    by itself. Call it before anything else of JAX.
    """
    if jax.distributed.is_initialized():
        return
    # It would take SIGTERM for itself; the training loop agrees on when to stop.
    jax.config.update("jax_enable_preemption_service", False)
    if any(os.environ.get(name) for name in VARIABLES):
        jax.distributed.initialize(*_explicit())
    elif os.environ.get("SLURM_STEP_NUM_TASKS") != "1":
        try:
            jax.distributed.initialize()
        except ValueError as error:
            if "coordinator_address" not in str(error):
                raise  # otherwise there is no cluster here: a single process


def split_cpu(num_devices: int) -> None:
    """Makes a CPU count as several devices, which keeps its cores busier than one.

    Each computes its share of a batch. What the user has asked JAX or XLA for stays;
    other platforms do not care. Call it before anything else of JAX.
    """
    asked = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if num_devices < 1:
        raise ValueError(f"cpu_devices must be 1 or more, not {num_devices}.")
    if jax.config.jax_num_cpu_devices < 0 and not asked:
        jax.config.update("jax_num_cpu_devices", num_devices)


def _explicit() -> tuple[str, int, int]:
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"Of {', '.join(VARIABLES)} {missing} are not set; set all three on every "
            "process, or none."
        )
    address, count, index = (os.environ[name] for name in VARIABLES)
    if ":" not in address or not count.isdigit() or not index.isdigit():
        raise ValueError(
            f"{VARIABLES[0]} must be HOST:PORT and the other two whole numbers, not "
            f"{address!r}, {count!r} and {index!r}."
        )
    return address, int(count), int(index)


def is_main() -> bool:
    """Whether this process is the one that writes what people read."""
    # In this order: a process that is alone need not wake its devices to know it.
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def wait(name: str) -> None:
    """Waits until all processes are here; `name` is used once in a run."""
    barrier = ocp.multihost.get_barrier_sync_fn()  # does nothing in a single process
    barrier(key=f"ocloc_jax {name}", timeout_ms=1000 * _LONGEST_WAIT)


def any_process(wish: bool) -> bool:
    """Whether any process says yes; all must ask."""
    return bool(np.any(multihost_utils.process_allgather(np.array(wish))))


def to_host(tree: Any) -> Any:
    """NumPy arrays of a tree, complete on every process; all must ask."""

    def fetch(leaf: Any) -> np.ndarray:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            return np.asarray(leaf)
        if leaf.is_fully_replicated:
            return np.asarray(leaf.addressable_data(0))
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(fetch, tree)


def place(tree: Any, sharding: Sharding) -> Any:
    """Puts a tree that every process has whole where a sharding says.

    Unlike `jax.device_put` also onto devices of other processes.
    """

    def put(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            numbers = put(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf))
        array = np.asarray(leaf)
        return jax.make_array_from_callback(
            array.shape, sharding, lambda index: array[index]
        )

    return jax.tree.map(put, tree)


class Vote:
    """Lets all processes stop at the same step when any of them is asked to.

    A tiny sum travels with each step and is read one step later, so that nobody waits
    for it. A single process needs no vote.
    """

    def __init__(self, split: NamedSharding):
        """Takes a sharding over all devices."""
        self._split = split
        whole = NamedSharding(split.mesh, PartitionSpec())
        self._sum = jax.jit(jnp.sum, out_shardings=whole)
        self._open: jax.Array | None = None

    def __call__(self, wish: bool) -> bool:
        """Whether to stop now, as all processes see it; to be asked every step."""
        before = self.result(wish)
        if jax.process_count() == 1:
            return before
        votes = np.full(jax.local_device_count(), wish, np.int32)
        shape = (jax.device_count(),)
        ballot = jax.make_array_from_process_local_data(self._split, votes, shape)
        self._open = self._sum(ballot)
        return before

    def result(self, wish: bool) -> bool:
        """What the last vote gave; a process that is alone has its wish."""
        if jax.process_count() == 1:
            return wish
        return self._open is not None and bool(self._open)
