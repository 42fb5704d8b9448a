"""Generative networks: latents to the layers of which images are composed."""

import flax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ocloc_jax.models import layers
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.sizes import ImageNetSizes, ModelSizes

SHAPE_SHIFT = 3.0  # subtracted from shape logits, so that objects start absent


@flax.struct.dataclass
class Layers:
    """Network outputs for every viewpoint and slot, before anything is composed.

    Shape logits are already shifted; the tanh of `position` is where an object is.
    The shadow fields are None in a model without shadows.
    """

    background: Float[Array, "*b m h w 3"]
    appearance: Float[Array, "*b m k h w 3"]
    shape_logit: Float[Array, "*b m k h w"]
    order: Float[Array, "*b m k"]
    position: Float[Array, "*b m k 2"]
    shadow_logit: Float[Array, "*b m k h w"] | None = None
    shadow_shape_logit: Float[Array, "*b m k h w"] | None = None


class ImageNet(nn.Module):
    """A latent vector to an image, through a transformer on a coarse grid."""

    sizes: ImageNetSizes
    out_channels: int
    dtype: layers.Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, latent: Float[Array, "*b e"], height: int, width: int
    ) -> Float[Array, "*b h w c"]:
        sizes, batch = self.sizes, latent.shape[:-1]
        grid_size = height // sizes.upsampling, width // sizes.upsampling
        widths = (*sizes.hidden, sizes.width)
        x = layers.Mlp(widths, activate_last=True, dtype=self.dtype, name="mlp")(latent)
        x = x.reshape(-1, 1, sizes.width) + self._position(*grid_size)[None]
        stack = (sizes.num_layers, sizes.num_heads, sizes.mlp_hidden, self.dtype)
        x, _ = layers.transformer(*stack, name="transformer")(x, None)
        x = self._upsample(x.reshape(-1, *grid_size, sizes.width))
        return x.reshape(*batch, height, width, self.out_channels).astype(jnp.float32)

    def _position(self, height: int, width: int) -> Float[Array, "n d"]:
        grid = layers.position_grid(height, width).reshape(-1, 2)
        # In float32: an angle rounded to bfloat16 loses the position.
        return jnp.sin(nn.Dense(self.sizes.width, name="position")(grid))

    def _upsample(self, x: Float[Array, "b h w d"]) -> Float[Array, "b h2 w2 c"]:
        channels = self.sizes.channels
        following = (*channels[1:], self.out_channels)
        x = nn.silu(self._conv(channels[0], "conv_in")(x))
        for i, (same, after) in enumerate(zip(channels, following, strict=True)):
            x = nn.silu(layers.UpsampleConv(same, self.dtype, name=f"up_{i}")(x))
            x = self._conv(after, f"conv_{i}")(x)
            x = nn.silu(x) if i + 1 < len(channels) else x
        return x

    def _conv(self, features: int, name: str) -> nn.Conv:
        return layers.conv(features, 3, name=name, dtype=self.dtype)


class Decoder(nn.Module):
    """Latents of a scene to backgrounds, object images and depth orders.

    Attributes:
      sizes: Sizes of the networks.
      shadows: Whether objects cast shadows (False is the paper's ablation).
      dtype: Of the computation; outputs are float32.
    """

    sizes: ModelSizes
    shadows: bool = True
    dtype: layers.Dtype = jnp.float32

    def setup(self) -> None:
        sizes, dtype = self.sizes, self.dtype
        self.background_net = ImageNet(sizes.background, 3, dtype)
        self.object_net = ImageNet(sizes.objects, 6 if self.shadows else 4, dtype)
        self.order_net = layers.Mlp((*sizes.order_hidden, 3), dtype=dtype)

    def __call__(self, latents: Latents, height: int, width: int) -> Layers:
        view_bck = _join(latents.view, latents.bck[..., None, :])
        view_obj = _join(latents.view[..., None, :], latents.obj[..., None, :, :])
        maps = self.object_net(view_obj, height, width)
        order = self.order_net(view_obj).astype(jnp.float32)
        shadow = dict(
            shadow_logit=maps[..., 4], shadow_shape_logit=maps[..., 5] - SHAPE_SHIFT
        )
        return Layers(
            background=self.background_net(view_bck, height, width),
            appearance=maps[..., :3],
            shape_logit=maps[..., 3] - SHAPE_SHIFT,
            order=order[..., 0],
            position=order[..., 1:],
            **(shadow if self.shadows else {}),
        )


def _join(view: Float[Array, "*b d"], other: Float[Array, "*c e"]) -> Array:
    """Concatenates channels after broadcasting the other axes."""
    shape = jnp.broadcast_shapes(view.shape[:-1], other.shape[:-1])
    parts = [jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (view, other)]
    return jnp.concatenate(parts, axis=-1)
