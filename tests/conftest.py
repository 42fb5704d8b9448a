"""Settings that make silent faults loud: strict ranks, several CPU devices."""

import jax
from absl import flags

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
flags.FLAGS.mark_as_parsed()  # grain's workers read absl flags
