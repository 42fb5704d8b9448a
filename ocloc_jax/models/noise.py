"""Every random draw of one forward pass, so that each of them can be injected."""

import math

import flax
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ocloc_jax.models.sizes import ModelSizes

Shapes = dict[str, tuple[int, ...]]


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
    """Draws all noise from one key.

    There are two draws, one normal and one uniform, of which every field is a part:
    more would only take longer to compile. Their first axes are those of the batch, so
    that a batch split over devices is drawn where it lies.

    Args:
      key: Random key.
      sizes: Sizes of the networks.
      batch: Leading axes.
      num_views: M.
      num_slots: K.
      image_size: Height and width, to draw the per-pixel noise of training too.
      shadows: Whether the model has shadows; without them only shapes are noisy.
    """
    normal = {
        "slot_view": (num_views, sizes.slot_view),
        "slot_attr": (num_slots, sizes.slot_attr),
        "view": (num_views, sizes.latent_view),
        "obj": (num_slots, sizes.latent_obj),
        "bck": (sizes.latent_bck,),
    }
    uniform = {"presence": (num_slots,)}
    if image_size is not None:
        pixels = (num_views, num_slots, *image_size)
        uniform["shape"] = pixels
        if shadows:
            uniform["shadow_shape"], normal["appearance"] = pixels, (*pixels, 3)
    keys = jax.random.split(key)
    normals = jax.random.normal(keys[0], (*batch, _total(normal)))
    uniforms = jax.random.uniform(keys[1], (*batch, _total(uniform)), minval=2**-24)
    return Noise(**_parts(normals, normal), **_parts(uniforms, uniform))


def _total(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _parts(draws: Float[Array, "*b n"], shapes: Shapes) -> dict[str, Array]:
    """Cuts draws into fields, in order."""
    parts, start = {}, 0
    for name, shape in shapes.items():
        part = draws[..., start : start + math.prod(shape)]
        parts[name] = part.reshape(*draws.shape[:-1], *shape)
        start += math.prod(shape)
    return parts
