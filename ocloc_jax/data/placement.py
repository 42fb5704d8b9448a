"""Batches on devices: where their rows go, and what range their pixels have."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding
from jaxtyping import Array, Float, Int, UInt8

Batch = dict[str, jax.Array]


def data_sharding(devices: list[jax.Device] | None = None) -> NamedSharding:
    """Splits the first axis of a batch over devices (all by default), axis `data`."""
    devices = jax.devices() if devices is None else devices
    mesh = jax.make_mesh(
        (len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices
    )
    return NamedSharding(mesh, PartitionSpec("data"))


def to_model_range(image: UInt8[Array, "*b"]) -> Float[Array, "*b"]:
    """Maps 0..255 to [-1, 1]; call it on the device, inside `jit`."""
    return image.astype(jnp.float32) / 127.5 - 1.0


def check(
    sharding: Sharding | None, rows: Int[np.ndarray, " b"], batch_size: int
) -> None:
    """Raises unless the sharding wants exactly these rows of a batch on this host."""
    if sharding is None:
        return
    try:
        slices = sharding.addressable_devices_indices_map((batch_size,)).values()
    except ValueError as error:
        raise ValueError(
            f"batch_size {batch_size} cannot be split over the {sharding.num_devices} "
            f"devices of {sharding}; choose a multiple."
        ) from error
    wanted = sorted({i for (s,) in slices for i in range(*s.indices(batch_size))})
    if wanted != rows.tolist():
        raise ValueError(
            f"The sharding puts rows {wanted} of a batch on this process, which reads "
            f"rows {rows.tolist()}: order the mesh's devices by process, and see that "
            "process_index and process_count are those of JAX."
        )


def place(
    batch: dict[str, np.ndarray],
    sharding: Sharding | None,
    global_shape: tuple[int, ...],
) -> Batch:
    """Sends this host's rows to its devices; types stay as they are.

    Args:
      batch: This host's rows.
      sharding: How the whole batch lies on all devices.
      global_shape: First axes of the whole batch, of all hosts together.
    """
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(batch, sharding)
    return {
        key: jax.make_array_from_process_local_data(
            sharding, rows, (*global_shape, *rows.shape[len(global_shape) :])
        )
        for key, rows in batch.items()
    }
