"""A meter of collapse: numbers that need no labels, and one word about them.

The numbers come out of every training step. What dies, dies early, and shows here long
before it shows in the objective.
"""

from collections.abc import Mapping
from typing import Any

import flax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ocloc_jax.models.compose import Scene
from ocloc_jax.models.latents import Latents, Posterior

# From here on nothing is left to learn from, so a seed may be given up.
DEAD = ("empty", "swallowed")


@flax.struct.dataclass
class Usage:
    """How background and slots share the pixels of each image."""

    background: Float[Array, "*b m"]  # mean of the background's mask
    largest: Float[Array, "*b m k"]  # of a slot's mask
    area: Float[Array, "*b m k"]


def usage(scene: Scene) -> Usage:
    """Of every image of a scene."""
    return Usage(
        background=scene.mask_bck.mean(axis=(-2, -1)),
        largest=scene.mask_obj.max(axis=(-2, -1)),
        area=scene.mask_obj.sum(axis=(-2, -1)),
    )


def measure(
    used: Usage, posterior: Posterior, latents: Latents
) -> dict[str, Float[Array, ""]]:
    """Signs of collapse in a batch.

    Returns:
      `background_share`: share of all pixels that the background owns.
      `slots_in_use`: slots that own a pixel somewhere, in a scene.
      `slots_present`: slots whose sampled presence is at least one half.
      `usage_entropy`: of the shares that slots have in the object pixels of a scene,
        in nats; 0 is one slot for everything, log K all slots alike.
      `presence`: mean probability kappa of a slot's presence.
      `presence_saturation`: share of kappas below 0.05 or above 0.95.
    """
    kappa = jax.nn.sigmoid(posterior.presence_logit)
    saturated = (kappa < 0.05) | (kappa > 0.95)
    in_use = used.largest.max(axis=-2) > 0.5  # in any view
    numbers = {
        "background_share": used.background.mean(),
        "slots_in_use": in_use.sum(axis=-1).mean(dtype=jnp.float32),
        "slots_present": latents.count.mean(),
        "usage_entropy": usage_entropy(used.area).mean(),
        "presence": kappa.mean(),
        "presence_saturation": saturated.mean(dtype=jnp.float32),
    }
    return {f"health/{name}": value for name, value in numbers.items()}


def usage_entropy(area: Float[Array, "*b m k"]) -> Float[Array, "*b"]:
    """Entropy of how the slots of a scene share its object pixels, in nats."""
    area = area.sum(axis=-2)
    total = jnp.maximum(area.sum(axis=-1, keepdims=True), 1e-12)
    return jax.scipy.special.entr(area / total).sum(axis=-1)


def verdict(metrics: Mapping[str, Any]) -> str:
    """One word about what `measure` returned.

    empty: no objects, the background explains everything. swallowed: an object slot
    does the background's work. saturated: every slot is surely present, always.
    merged: one slot for all objects. ok: none of these.
    """
    health = {
        name.removeprefix("health/"): float(value)
        for name, value in metrics.items()
        if name.startswith("health/")
    }
    if health["background_share"] > 0.99 or health["slots_in_use"] < 0.5:
        return "empty"
    if health["background_share"] < 0.05:
        return "swallowed"
    if health["presence_saturation"] > 0.95 and health["presence"] > 0.95:
        return "saturated"
    return "merged" if health["usage_entropy"] < 0.1 else "ok"


def is_dead(metrics: Mapping[str, Any]) -> bool:
    """Whether the verdict is one of `DEAD`."""
    return verdict(metrics) in DEAD
