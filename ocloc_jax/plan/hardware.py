"""Accelerators by their makers' data sheets, to estimate what training costs there."""

import dataclasses
import os
import time

import jax
import jax.numpy as jnp

Number = float | int


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """What one chip or card can do at best.

    Attributes:
      name: Short name.
      kind: Part of what JAX calls its `device_kind`.
      float32: Dense 1e12 operations a second of float32 networks in the precision
        that JAX takes for them by default: bfloat16 passes on TPU, TF32 on GPUs that
        have it.
      bfloat16: The same for bfloat16 networks (float16 where there is none).
      memory: In GiB.
      bandwidth: Of the memory, in 1e9 bytes a second, if known.
    """

    name: str
    kind: str
    float32: Number
    bfloat16: Number
    memory: Number
    bandwidth: Number | None

    def seconds(self, flops: Number, dtype: str, utilisation: float) -> float:
        """Time for operations at a share of the peak."""
        return flops / (utilisation * getattr(self, dtype) * 1e12)


ACCELERATORS = (
    Accelerator("TPU v4", "TPU v4", 275, 275, 32, 1228),
    Accelerator("TPU v5e", "TPU v5 lite", 197, 197, 16, 819),
    Accelerator("TPU v5p", "TPU v5", 459, 459, 95, 2765),
    Accelerator("TPU v6e", "TPU v6 lite", 918, 918, 32, 1640),
    Accelerator("T4", "T4", 8.1, 65, 16, 320),
    Accelerator("V100", "V100", 15.7, 125, 16, 900),
    Accelerator("L4", "L4", 60, 121, 24, 300),
    Accelerator("RTX 3090", "RTX 3090", 35.6, 71, 24, 936),
    Accelerator("RTX 4090", "RTX 4090", 82.6, 165, 24, 1008),
    Accelerator("A100 40 GB", "A100", 156, 312, 40, 1555),
    Accelerator("H100 SXM", "H100", 495, 989, 80, 3350),
)


def find(device_kind: str) -> Accelerator | None:
    """The accelerator of a device, by the longest name that fits."""
    fitting = [a for a in ACCELERATORS if a.kind in device_kind]
    return max(fitting, key=lambda a: len(a.kind), default=None)


def measure(seconds: float = 1.0) -> Accelerator:
    """What a large matrix product reaches on the first device here."""
    size = 2048
    x = jnp.ones((size, size))
    product = jax.jit(jnp.matmul).lower(x, x).compile()
    product(x, x).block_until_ready()
    rounds, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        product(x, x).block_until_ready()
        rounds += 1
    rate = 2 * size**3 * rounds / (time.perf_counter() - start) / 1e12
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = f"{jax.devices()[0].device_kind} here, by a matrix product"
    return Accelerator(name, "", rate, rate, memory, None)
