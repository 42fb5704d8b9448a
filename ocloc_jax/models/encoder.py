"""Inference networks: images of a scene to the parameters of q (Algorithm 1)."""

from typing import Any

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from ocloc_jax.models import layers
from ocloc_jax.models.latents import Posterior
from ocloc_jax.models.sizes import ModelSizes


@flax.struct.dataclass
class Slots:
    """The intermediate variables r_view and r_attr, refined T times."""

    view: Float[Array, "*b m dv"]
    attr: Float[Array, "*b k da"]


class FeatureNet(nn.Module):
    """Convolutions, position embedding and a small network at every position."""

    features: int
    num_convs: int
    dtype: layers.Dtype = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "*b h w 3"]) -> Float[Array, "*b h2 w2 d"]:
        x = self._conv(4, stride=2, name="conv_0")(images)
        for i in range(1, self.num_convs):
            x = self._conv(5, name=f"conv_{i}", activate=True)(x)
        x = layers.silu(x)
        grid = layers.position_grid(*x.shape[-3:-1])
        position = nn.Dense(self.features, dtype=self.dtype, name="position")(grid)
        x = x + position.reshape((1,) * (x.ndim - 3) + position.shape)
        x = layers.layer_norm("norm", self.dtype)(x)
        return layers.Mlp((self.features,) * 2, dtype=self.dtype, name="mlp")(x)

    def _conv(self, size: int, **options: Any) -> nn.Conv:
        return layers.conv(self.features, size, dtype=self.dtype, **options)


class SlotRefinement(nn.Module):
    """One iteration of Algorithm 1, written as a scan body.

    Follows the order of slots and of viewpoints, for any number of either.
    """

    sizes: ModelSizes
    dtype: layers.Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        slots: Slots,
        keys: Float[Array, "*b m n dk"],
        values: Float[Array, "*b m n dvl"],
    ) -> tuple[Slots, None]:
        full = _pair(slots)
        query = layers.layer_norm("norm_query", self.dtype)(full)
        query = self._linear(self.sizes.key, "query")(query)
        logits = jnp.einsum("...mkd,...mnd->...mkn", query, keys)
        attention = _attention(logits.astype(jnp.float32)).astype(self.dtype)
        update = jnp.einsum("...mkn,...mnd->...mkd", attention, values)
        full = layers.Gru(name="gru")(full, update)
        hidden = layers.layer_norm("norm_update", self.dtype)(full)
        widths = (self.sizes.update_hidden, self.sizes.slot)
        full = full + layers.Mlp(widths, dtype=self.dtype, name="mlp")(hidden)
        view, attr = jnp.split(full, [self.sizes.slot_view], axis=-1)
        return Slots(view.mean(axis=-2), attr.mean(axis=-3)), None

    def _linear(self, features: int, name: str) -> nn.Dense:
        return nn.Dense(features, use_bias=False, dtype=self.dtype, name=name)


def _pair(slots: Slots) -> Float[Array, "*b m k d"]:
    """Concatenates every viewpoint part with every attribute part."""
    view, attr = slots.view[..., :, None, :], slots.attr[..., None, :, :]
    shape = (*view.shape[:-2], attr.shape[-2])
    return jnp.concatenate(
        [jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (view, attr)], axis=-1
    )


def _attention(logits: Float[Array, "*b m k n"]) -> Float[Array, "*b m k n"]:
    """Competition between slots first, then weights over positions."""
    return jax.nn.softmax(jax.nn.log_softmax(logits, axis=-2), axis=-1)


class Encoder(nn.Module):
    """Images to posterior parameters, with the initial slots as an input.

    Attributes:
      sizes: Sizes of the networks.
      num_iterations: T.
      remat: Recomputes features and refinements in the backward pass to save memory.
      dtype: Of the computation; softmax over slots and GRU stay in float32.
      num_parts: See `layers.in_parts`.
    """

    sizes: ModelSizes
    num_iterations: int = 3
    remat: bool = False
    dtype: layers.Dtype = jnp.float32
    num_parts: int = 1

    def setup(self) -> None:
        sizes, dtype = self.sizes, self.dtype
        hidden = (sizes.head_hidden,) * 2
        features = nn.remat(FeatureNet) if self.remat else FeatureNet
        self.feature_net = features(sizes.features, sizes.num_convs, dtype)
        self.norm_features = layers.layer_norm(dtype=dtype)
        self.key_value = nn.Dense(sizes.key + sizes.slot, use_bias=False, dtype=dtype)
        body = nn.remat(SlotRefinement) if self.remat else SlotRefinement
        self.refinement = nn.scan(
            body,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=nn.broadcast,
            length=self.num_iterations,
        )(sizes, dtype)
        for part, width in (("view", sizes.slot_view), ("attr", sizes.slot_attr)):
            loc = self.param(f"{part}_loc", nn.initializers.zeros, (width,))
            log_scale = self.param(f"{part}_log_scale", nn.initializers.zeros, (width,))
            setattr(self, f"{part}_init", (loc, log_scale))
        self.view_head = layers.Mlp((*hidden, 2 * sizes.latent_view), dtype=dtype)
        self.obj_head = layers.Mlp((*hidden, 2 * sizes.latent_obj + 3), dtype=dtype)
        self.bck_slots = layers.Mlp((hidden[0], hidden[1] + 1), dtype=dtype)
        self.bck_head = layers.Mlp((*hidden, 2 * sizes.latent_bck), dtype=dtype)

    def __call__(self, images: Float[Array, "*b m h w 3"], slots: Slots) -> Posterior:
        return self.posterior(self.refine(self.features(images), slots))

    def features(
        self, images: Float[Array, "*b m h w 3"]
    ) -> Float[Array, "*b m h2 w2 d"]:
        """Feature maps r_feat of every image."""
        return layers.in_parts(self.feature_net, images, self.num_parts, axes=3)

    def initial_slots(
        self, view: Float[Array, "*b m dv"], attr: Float[Array, "*b k da"]
    ) -> Slots:
        """Scales and shifts standard normal draws into initial slots."""
        return Slots(_affine(view, *self.view_init), _affine(attr, *self.attr_init))

    def refine(self, features: Float[Array, "*b m h2 w2 d"], slots: Slots) -> Slots:
        """Updates the slots T times from the features of all viewpoints."""
        x = features.reshape(*features.shape[:-3], -1, features.shape[-1])
        x = self.key_value(self.norm_features(x))
        keys, values = jnp.split(x, [self.sizes.key], axis=-1)
        keys = keys * self.sizes.key**-0.5
        return self.refinement(slots, keys, values)[0]

    def posterior(self, slots: Slots) -> Posterior:
        """Converts refined slots to the parameters of q."""
        view = self.view_head(slots.view).astype(jnp.float32)
        obj = self.obj_head(slots.attr).astype(jnp.float32)
        bck = self._background(slots.attr).astype(jnp.float32)
        view_mean, view_log_var = jnp.split(view, 2, axis=-1)
        obj_mean, obj_log_var = jnp.split(obj[..., :-3], 2, axis=-1)
        bck_mean, bck_log_var = jnp.split(bck, 2, axis=-1)
        return Posterior(
            view_mean=view_mean,
            view_log_var=view_log_var,
            obj_mean=obj_mean,
            obj_log_var=obj_log_var,
            bck_mean=bck_mean,
            bck_log_var=bck_log_var,
            tau=nn.softplus(obj[..., -3:-1]),
            presence_logit=obj[..., -1],
        )

    def _background(self, attr: Float[Array, "*b k da"]) -> Float[Array, "*b e"]:
        x = self.bck_slots(attr)
        values, logit = x[..., :-1], x[..., -1:]
        weights = jax.nn.softmax(logit.astype(jnp.float32), axis=-2)
        return self.bck_head((weights.astype(values.dtype) * values).sum(axis=-2))


def _affine(
    noise: Float[Array, "*b i d"],
    loc: Float[Array, " d"],
    log_scale: Float[Array, " d"],
) -> Float[Array, "*b i d"]:
    shape = (1,) * (noise.ndim - 1) + loc.shape
    return loc.reshape(shape) + jnp.exp(log_scale).reshape(shape) * noise
