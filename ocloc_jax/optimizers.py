"""How gradients become updates: Adam as published, or Muon for short training."""

from typing import Any

import jax
import optax
from jaxtyping import Array, PyTree
from optax import contrib

from ocloc_jax import schedules

KINDS = ("adam", "muon")

# The coefficients that optax has by default, once for each of the five steps: as a
# table they become a loop in the program, which compiles in half of the time.
_NEWTON_SCHULZ = ((3.4445, -4.775, 2.0315),) * 5
_HANDFUL = 8  # outputs
_SIZE_OF_ADAM = 0.2  # a usual root mean square of its updates: rates stay comparable


def make(
    learning_rate: dict[str, Any], clip_norm: float, kind: str = "adam"
) -> optax.GradientTransformation:
    """Clipping by global norm, then the optimizer with the schedule of the recipe.

    Args:
      learning_rate: Of `schedules.learning_rate`.
      clip_norm: Longest gradient.
      kind: "adam" as published. "muon" (ours) makes the update of every weight matrix
        orthogonal, so that all its directions are learnt at the same speed; vectors
        and matrices with a handful of outputs keep Adam.
    """
    rate = schedules.learning_rate(**learning_rate)
    clip = optax.clip_by_global_norm(clip_norm)
    if kind == "adam":
        # All parameters as one vector compile and run faster than one by one.
        return optax.flatten(optax.chain(clip, optax.adam(rate)))
    muon = contrib.muon(
        rate,
        ns_coeffs=_NEWTON_SCHULZ,
        consistent_rms=_SIZE_OF_ADAM,
        muon_weight_dimension_numbers=matrices,
    )
    return optax.chain(clip, muon)


def matrices(params: PyTree[Array]) -> PyTree:
    """Which axes of each kernel are inputs and outputs; None for what Adam keeps.

    A convolution takes all pixels of its kernel as inputs, and stacked layers are
    matrices one by one.
    """

    def axes(path: tuple, x: Array) -> contrib.MuonDimensionNumbers | None:
        if path[-1].key != "kernel" or x.shape[-1] <= _HANDFUL:
            return None
        stacked = x.ndim == 3
        inputs = tuple(range(1 if stacked else 0, x.ndim - 1))
        return contrib.MuonDimensionNumbers(inputs, (x.ndim - 1,))

    return jax.tree_util.tree_map_with_path(axes, params)
