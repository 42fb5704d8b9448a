"""Generative networks: latents to the layers of which images are composed."""

import functools
from collections.abc import Callable

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ocloc_jax.models import layers, upsampling
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
    """A latent vector to an image, through a transformer on a coarse grid.

    Attributes:
      sizes: Sizes of the network.
      out_channels: Channels of the image.
      dtype: Of the computation; images are float32.
      remat: Keeps only what passes between its parts, the transformer and each
        doubling of the resolution, and computes the rest again for the gradient.
    """

    sizes: ImageNetSizes
    out_channels: int
    dtype: layers.Dtype = jnp.float32
    remat: bool = False

    @nn.compact
    def __call__(
        self, latent: Float[Array, "*b e"], height: int, width: int
    ) -> Float[Array, "*b h w c"]:
        sizes, batch = self.sizes, latent.shape[:-1]
        grid_size = height // sizes.upsampling, width // sizes.upsampling
        widths = (*sizes.hidden, sizes.width)
        x = layers.Mlp(widths, activate_last=True, dtype=self.dtype, name="mlp")(latent)
        x = x.reshape(-1, 1, sizes.width) + self._position(*grid_size)[None]
        x = self._part(ImageNet._transform, x)
        x = self._upsample(x.reshape(-1, *grid_size, sizes.width))
        return x.reshape(*batch, height, width, self.out_channels).astype(jnp.float32)

    def _position(self, height: int, width: int) -> Float[Array, "n d"]:
        grid = layers.position_grid(height, width).reshape(-1, 2)
        # In float32: an angle rounded to bfloat16 loses the position.
        return jnp.sin(nn.Dense(self.sizes.width, name="position")(grid))

    def _part(self, part: Callable[..., Array], x: Array, *static: int) -> Array:
        if self.remat:
            part = nn.remat(part, static_argnums=tuple(range(2, 2 + len(static))))
        return part(self, x, *static)

    def _transform(self, x: Float[Array, "b n d"]) -> Float[Array, "b n d"]:
        sizes = self.sizes
        stack = (sizes.num_layers, sizes.num_heads, sizes.mlp_hidden, self.dtype)
        return layers.transformer(*stack, name="transformer")(x, None)[0]

    def _upsample(self, x: Float[Array, "b h w d"]) -> Float[Array, "b h2 w2 c"]:
        x = layers.conv(self.sizes.channels[0], 3, name="conv_in", dtype=self.dtype)(x)
        for i in range(len(self.sizes.channels)):
            x = self._part(ImageNet._double, x, i)
        return x

    def _double(self, x: Float[Array, "b h w d"], i: int) -> Float[Array, "b h2 w2 c"]:
        channels = (*self.sizes.channels, self.out_channels)
        up = layers.Filters(4, (channels[i], channels[i]), name=f"up_{i}")
        conv = layers.Filters(3, channels[i : i + 2], name=f"conv_{i}")
        arrays = nn.dtypes.promote_dtype(x, *up(), *conv(), dtype=self.dtype)
        return upsampling.double(*arrays)


class Decoder(nn.Module):
    """Latents of a scene to backgrounds, object images and depth orders.

    Attributes:
      sizes: Sizes of the networks.
      shadows: Whether objects cast shadows (False is the paper's ablation).
      dtype: Of the computation; outputs are float32.
      remat: Recomputes the inside of the image networks in the backward pass.
      num_parts: See `layers.in_parts`.
    """

    sizes: ModelSizes
    shadows: bool = True
    dtype: layers.Dtype = jnp.float32
    remat: bool = False
    num_parts: int = 1

    def setup(self) -> None:
        sizes, dtype = self.sizes, self.dtype
        channels = 6 if self.shadows else 4
        self.background_net = ImageNet(sizes.background, 3, dtype, self.remat)
        self.object_net = ImageNet(sizes.objects, channels, dtype, self.remat)
        self.order_net = layers.Mlp((*sizes.order_hidden, 3), dtype=dtype)

    def __call__(self, latents: Latents, height: int, width: int) -> Layers:
        view_bck = _join(latents.view, latents.bck[..., None, :])
        view_obj = _join(latents.view[..., None, :], latents.obj[..., None, :, :])
        order = self.order_net(view_obj).astype(jnp.float32)
        maps = self._image(self.object_net, view_obj, height, width)
        background = self._image(self.background_net, view_bck, height, width)
        shadow = dict(shadow_logit=maps[-2], shadow_shape_logit=maps[-1] - SHAPE_SHIFT)
        return Layers(
            background=jnp.stack(background, axis=-1),
            appearance=jnp.stack(maps[:3], axis=-1),
            shape_logit=maps[3] - SHAPE_SHIFT,
            order=order[..., 0],
            position=order[..., 1:],
            **(shadow if self.shadows else {}),
        )

    def _image(
        self, net: ImageNet, latent: Float[Array, "*b e"], height: int, width: int
    ) -> list[Float[Array, "*b h w"]]:
        run = functools.partial(net, height=height, width=width)
        return _planes(layers.in_parts(run, latent, self.num_parts, axes=1))


def _planes(maps: Float[Array, "*s c"]) -> list[Float[Array, "*s"]]:
    """The channels of maps, each laid out by itself: what follows takes them singly."""
    planes = jax.lax.optimization_barrier(jnp.moveaxis(maps, -1, 0))
    planes = jax.lax.split(planes, [1] * len(planes), axis=0)
    # So are their gradients: joined in one loop, they took 5 ms of a demo's step.
    return [plane[0] for plane in jax.lax.optimization_barrier(planes)]


def _join(view: Float[Array, "*b d"], other: Float[Array, "*c e"]) -> Array:
    """Concatenates channels after broadcasting the other axes."""
    shape = jnp.broadcast_shapes(view.shape[:-1], other.shape[:-1])
    parts = [jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (view, other)]
    return jnp.concatenate(parts, axis=-1)
