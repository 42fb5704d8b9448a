"""Settings that make silent faults loud: strict ranks, several CPU devices.

Most of the time goes into compiling small programs, so XLA is told not to optimise
them and to write its loops the old way, which takes half as long; what it compiled is
kept for the next run.
"""

import os
import pathlib

_FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip()

import jax  # noqa: E402
from absl import flags  # noqa: E402

_CACHE = pathlib.Path(__file__).parents[1] / ".jax_cache"

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
flags.FLAGS.mark_as_parsed()  # grain's workers read absl flags
