"""Hardware that a program is compiled for, whether it is here or not."""

import dataclasses
import importlib.util
import os
import pathlib
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from ocloc_jax import data
from ocloc_jax.plan import hardware

FORMS = "'here', 'tpu:v5e:2x2' (a type and its chips) or 'cuda:4' (a number of cards)"
# Beside the package, where `make libtpu` puts it and JAX does not look by itself.
_LIBTPU = pathlib.Path(__file__).parents[2] / ".libtpu"


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices to plan for.

    Attributes:
      name: As in the config.
      platform: `cpu`, `gpu`, `tpu` or `cuda`; the last is only lowered for.
      split: How a batch is laid on them.
      accelerator: What they can do, if that is known.
    """

    name: str
    platform: str
    split: NamedSharding
    accelerator: hardware.Accelerator | None

    @property
    def num_devices(self) -> int:
        """Chips, cards or hosts' CPUs."""
        return self.split.mesh.size

    @property
    def compiles(self) -> bool:
        """Whether there is a compiler for it here."""
        return self.platform != "cuda"


def find(name: str) -> Target:
    """The devices of a name, or an error that says which names there are."""
    kind, *rest = name.split(":")
    if kind == "here" and not rest:
        return _here(name)
    if kind == "tpu" and len(rest) in (1, 2):
        return _tpu(name, *rest)
    if kind == "cuda" and len(rest) <= 1 and "".join(rest or ["1"]).isdigit():
        return _cuda(name, int(rest[0]) if rest else 1)
    raise ValueError(f"config.plan.target is {name!r}; use {FORMS}.")


def _here(name: str) -> Target:
    device = jax.devices()[0]
    accelerator = hardware.find(device.device_kind) or hardware.measure()
    return Target(name, device.platform, data.data_sharding(), accelerator)


def _cuda(name: str, num_devices: int) -> Target:
    axis_types = (AxisType.Auto,)
    mesh = AbstractMesh((num_devices,), ("data",), axis_types=axis_types)
    return Target(name, "cuda", NamedSharding(mesh, PartitionSpec("data")), None)


def _tpu(name: str, version: str, shape: str = "1x1") -> Target:
    devices = _tpu_devices(name, version, shape)
    accelerator = hardware.find(devices[0].device_kind)
    return Target(name, "tpu", data.data_sharding(devices), accelerator)


def _tpu_devices(name: str, version: str, shape: str) -> list[Any]:
    os.environ["TPU_LIBRARY_PATH"] = str(_library())
    # Nothing is run, so no chip has to be looked for and none can be in use.
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    chips = [int(n) for n in shape.split("x") if n.isdigit()]
    # Smaller slices than the smallest host are given by the bounds of the host.
    bounds = {"chips_per_host_bounds": [1, 1, 1]} if set(chips) == {1} else {}
    try:
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=f"{version}:{shape}", **bounds
        )
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"config.plan.target is {name!r}: {error}") from error
    return list(topology.devices)


def _library() -> pathlib.Path:
    """The compiler for TPUs, which a wheel of that name holds."""
    found = importlib.util.find_spec("libtpu")
    places = [
        pathlib.Path(os.environ.get("TPU_LIBRARY_PATH", "")),
        pathlib.Path(found.origin).parent / "libtpu.so" if found else pathlib.Path(),
        _LIBTPU / "libtpu" / "libtpu.so",
    ]
    for place in places:
        if place.is_file():
            return place
    raise ValueError(
        "To plan for a TPU its compiler is needed, the wheel libtpu: `make libtpu` "
        "puts it aside in .libtpu, or `pip install 'ocloc-jax[plan]'`."
    )
