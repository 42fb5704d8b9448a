"""Every random draw of one forward pass, so that each of them can be injected."""

import flax
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ocloc_jax.models.sizes import ModelSizes


@flax.struct.dataclass
class Noise:
    """Draws of one forward pass.

    The per-pixel draws are training noise that the schedule anneals away; without
    them (None) shapes are deterministic and there are no auxiliary reconstructions.
    """

    slot_view: Float[Array, "*b m dv"]  # standard normal
    slot_attr: Float[Array, "*b k da"]  # standard normal
    view: Float[Array, "*b m ev"]  # standard normal
    obj: Float[Array, "*b k eo"]  # standard normal
    bck: Float[Array, "*b eb"]  # standard normal
    presence: Float[Array, "*b k"]  # uniform in (0, 1)
    shape: Float[Array, "*b m k h w"] | None = None  # uniform in (0, 1)
    shadow_shape: Float[Array, "*b m k h w"] | None = None  # uniform in (0, 1)
    appearance: Float[Array, "*b m k h w 3"] | None = None  # standard normal


def draw(
    key: PRNGKeyArray,
    sizes: ModelSizes,
    *,
    batch: tuple[int, ...],
    num_views: int,
    num_slots: int,
    image_size: tuple[int, int] | None = None,
    shadows: bool = True,
) -> Noise:
    """Draws all noise from one key; each field has a stream of its own.

    Args:
      key: Random key.
      sizes: Sizes of the networks.
      batch: Leading axes.
      num_views: M.
      num_slots: K.
      image_size: Height and width, to draw the per-pixel noise of training too.
      shadows: Whether the model has shadows; without them only shapes are noisy.
    """
    view, slot = (*batch, num_views), (*batch, num_slots)
    shapes = {
        "slot_view": (*view, sizes.slot_view),
        "slot_attr": (*slot, sizes.slot_attr),
        "view": (*view, sizes.latent_view),
        "obj": (*slot, sizes.latent_obj),
        "bck": (*batch, sizes.latent_bck),
        "presence": slot,
    }
    if image_size is not None:
        pixels = (*view, num_slots, *image_size)
        shapes["shape"] = pixels
        if shadows:
            shapes |= {"shadow_shape": pixels, "appearance": (*pixels, 3)}
    keys = {name: jax.random.fold_in(key, i) for i, name in enumerate(shapes)}
    return Noise(**{name: _draw(name, keys[name], s) for name, s in shapes.items()})


def _draw(name: str, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    if name in ("presence", "shape", "shadow_shape"):
        return jax.random.uniform(key, shape, minval=2**-24)
    return jax.random.normal(key, shape)
