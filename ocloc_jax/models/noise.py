"""Every random draw of one forward pass, so that each of them can be injected."""

import math

import flax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

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
    appearance: bool = True,
) -> Noise:
    """Draws all noise from one key.

    The latents have two draws, one normal and one uniform, of which every field is a
    part: more would only take longer to compile. The pixels' are cheap ones. The first
    axes are those of the batch, so that a batch split over devices is drawn where it
    lies, and comes out the same however it is split.

    Args:
      key: Random key.
      sizes: Sizes of the networks.
      batch: Leading axes.
      num_views: M.
      num_slots: K.
      image_size: Height and width, to draw the per-pixel noise of training too.
      shadows: Whether the model has shadows, whose shapes are noisy too.
      appearance: Whether appearances are noisy, if there are shadows.
    """
    normal = {
        "slot_view": (num_views, sizes.slot_view),
        "slot_attr": (num_slots, sizes.slot_attr),
        "view": (num_views, sizes.latent_view),
        "obj": (num_slots, sizes.latent_obj),
        "bck": (sizes.latent_bck,),
    }
    uniform = {"presence": (num_slots,)}
    keys = jax.random.split(key, 3)
    normals = jax.random.normal(keys[0], (*batch, _total(normal)))
    uniforms = jax.random.uniform(keys[1], (*batch, _total(uniform)), minval=2**-24)
    noise = Noise(**_parts(normals, normal), **_parts(uniforms, uniform))
    if image_size is None:
        return noise
    pixels = (*batch, num_views, num_slots, *image_size)
    count = 1 + shadows * (1 + 3 * appearance)
    shape, *others = cheap_uniform(keys[2], count, pixels)
    noise = noise.replace(shape=shape)
    if others:
        noise = noise.replace(shadow_shape=others.pop(0))
    if others:
        normals = [math.sqrt(2) * jax.lax.erf_inv(2 * u - 1) for u in others]
        noise = noise.replace(appearance=jnp.stack(normals, axis=-1))
    return noise


def cheap_uniform(
    key: PRNGKeyArray, count: int, shape: tuple[int, ...]
) -> list[Float[Array, "..."]]:
    """Uniform arrays in (0, 1), each number a hash of its place and of the key.

    Good enough for noise on pixels, and a few operations for each number, where the
    generator of JAX takes a loop of many.
    """
    first, second = jax.random.bits(key, (2,))
    place = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        place = place * size + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    bits = [_mix(_mix(place * count + i + first) ^ second) for i in range(count)]
    return [((b >> 9).astype(jnp.float32) + 0.5) * 2**-23 for b in bits]


def _mix(x: UInt32[Array, "*s"]) -> UInt32[Array, "*s"]:
    """A permutation of 32-bit numbers in which every bit depends on every other."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


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
