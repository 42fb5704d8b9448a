"""Layers shared by encoder and decoder; `initial.py` says how they start."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from ocloc_jax.models import convolutions
from ocloc_jax.models.activation import after, silu

Dtype = Any
EPSILON = 1e-5  # of every LayerNorm; flax's own default is 1e-6


class LayerNorm(nn.Module):
    """LayerNorm over channels, its statistics in float32."""

    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return normalise(x.astype(jnp.float32), scale, bias).astype(self.dtype)


def layer_norm(name: str | None = None, dtype: Dtype = jnp.float32) -> LayerNorm:
    """LayerNorm over channels."""
    return LayerNorm(dtype, name=name)


@jax.custom_vjp
def normalise(
    x: Float[Array, "*b d"], scale: Float[Array, " d"], bias: Float[Array, " d"]
) -> Float[Array, "*b d"]:
    """Scales and shifts x after giving it mean 0 and variance 1 over channels."""
    return _normalise_forward(x, scale, bias)[0]


def _normalise_forward(x: Array, scale: Array, bias: Array) -> tuple[Array, tuple]:
    mean = x.mean(axis=-1, keepdims=True)
    factor = jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    rows = (x - mean).reshape(-1, x.shape[-1]) * factor.reshape(-1, 1)
    y = rows * scale[None] + bias[None]
    return y.reshape(x.shape), (x, mean, factor, scale)


def _normalise_backward(kept: tuple, dy: Array) -> tuple[Array, Array, Array]:
    # Over rows: sums over several axes at once were 50 times slower on a CPU.
    x, mean, factor, scale = kept
    width = x.shape[-1]
    factor, dy = factor.reshape(-1, 1), dy.reshape(-1, width)
    normal = (x - mean).reshape(-1, width) * factor
    d_normal = dy * scale[None]
    along = (d_normal * normal).mean(axis=-1, keepdims=True)
    dx = factor * (d_normal - d_normal.mean(axis=-1, keepdims=True) - normal * along)
    return dx.reshape(x.shape), (dy * normal).sum(axis=0), dy.sum(axis=0)


normalise.defvjp(_normalise_forward, _normalise_backward)


def conv(
    features: int,
    size: int,
    stride: int = 1,
    name: str | None = None,
    activate: bool = False,
    **options: Any,
) -> nn.Conv:
    """A convolution padded so that only its stride changes the resolution.

    With `activate` its input passes through a SiLU first.
    """
    pad = (size - stride) // 2
    return nn.Conv(
        features,
        (size, size),
        strides=stride,
        padding=pad,
        name=name,
        conv_general_dilated=lambda x, kernel, *_, **__: convolutions.conv(
            x, kernel, stride, pad, activate
        ),
        **options,
    )


class Mlp(nn.Module):
    """Linear layers with SiLU between them, and after the last if asked."""

    features: Sequence[int]
    activate_last: bool = False
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        for i, features in enumerate(self.features):
            x = nn.Dense(features, name=f"layer_{i}", dtype=self.dtype)(x)
            if self.activate_last or i + 1 < len(self.features):
                x = silu(x)
        return x


def position_grid(height: int, width: int) -> Float[np.ndarray, "h w 2"]:
    """Coordinates (x, y) in [-1, 1], end points included."""
    x, y = np.linspace(-1, 1, width), np.linspace(-1, 1, height)
    return np.stack(np.meshgrid(x, y), axis=-1).astype(np.float32)


class Filters(nn.Module):
    """Kernel and bias of a convolution, for functions that take several at once."""

    size: int
    features: tuple[int, int]

    @nn.compact
    def __call__(self) -> tuple[Float[Array, "s s i o"], Float[Array, " o"]]:
        shape = (self.size, self.size, *self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        return kernel, self.param("bias", nn.initializers.zeros, shape[-1:])


class Gru(nn.Module):
    """A gated recurrent unit with separate biases for input and state.

    Always computed in float32: the slots pass through it T times.
    """

    @nn.compact
    def __call__(
        self, state: Float[Array, "*b d"], inputs: Float[Array, "*b i"]
    ) -> Float[Array, "*b d"]:
        width = 3 * state.shape[-1]
        state = state.astype(jnp.float32)
        from_input = nn.Dense(width, dtype=jnp.float32, name="input")(inputs)
        from_state = nn.Dense(width, dtype=jnp.float32, name="state")(state)
        input_r, input_z, input_n = jnp.split(from_input, 3, axis=-1)
        state_r, state_z, state_n = jnp.split(from_state, 3, axis=-1)
        reset = nn.sigmoid(input_r + state_r)
        update = nn.sigmoid(input_z + state_z)
        candidate = jnp.tanh(input_n + reset * state_n)
        return (1 - update) * candidate + update * state


@jax.custom_vjp
def attention(
    query: Float[Array, "b n k d"],
    key: Float[Array, "b n k d"],
    value: Float[Array, "b n k d"],
) -> Float[Array, "b n k d"]:
    """Softmax attention of k heads.

    Heads come before positions in every product: in any other order XLA's CPU back
    end was 12 times slower. Weights stay without their normalisation, which is applied
    to the small results, and the one sum in the gradient of a softmax is taken over
    channels instead of positions. Weights are computed again for the gradient: kept,
    they were a fifth of a step's memory.
    """
    return _attention_forward(query, key, value)[0]


def _attention_forward(query: Array, key: Array, value: Array) -> tuple[Array, tuple]:
    query, key, value = map(_swap_heads, (query * query.shape[-1] ** -0.5, key, value))
    weights = _attention_weights(query, key)
    scale = (1 / weights.sum(axis=-1, keepdims=True)).astype(value.dtype)
    # Kept apart, products are the CPU's fast ones; fused with the sum they were not.
    weights = jax.lax.optimization_barrier(weights.astype(value.dtype))
    out = jnp.einsum("bknm,bkmd->bknd", weights, value) * scale
    return out.transpose(0, 2, 1, 3), (query, key, value, scale, out)


def _attention_weights(query: Array, key: Array) -> Float[Array, "b k n m"]:
    logits = jnp.einsum("bknd,bkmd->bknm", query, key).astype(jnp.float32)
    return jnp.exp(logits - logits.max(axis=-1, keepdims=True))


def _attention_backward(kept: tuple, dy: Array) -> tuple[Array, Array, Array]:
    query, key, value, scale, out = kept
    weights = _attention_weights(after(query, dy), key).astype(value.dtype)
    weights = jax.lax.optimization_barrier(weights)
    dy = _swap_heads(dy) * scale
    d_weights = jnp.einsum("bknd,bkmd->bknm", dy, value)
    d_logits = weights * (d_weights - (dy * out).sum(axis=-1, keepdims=True))
    d_logits = jax.lax.optimization_barrier(d_logits)
    d_query = jnp.einsum("bknm,bkmd->bknd", d_logits, key) * query.shape[-1] ** -0.5
    # Swapped in a step of its own, or the product would be the slow one.
    d_query = jax.lax.optimization_barrier(d_query).transpose(0, 2, 1, 3)
    # Channels first: sums over positions of the left factor would be the slow ones.
    d_key, d_value = (
        jnp.einsum("bkdn,bknm->bkdm", x.transpose(0, 1, 3, 2), y).transpose(0, 3, 1, 2)
        for x, y in ((query, d_logits), (dy, weights))
    )
    return d_query, d_key, d_value


def _swap_heads(x: Float[Array, "b n k d"]) -> Float[Array, "b k n d"]:
    return jax.lax.optimization_barrier(x.transpose(0, 2, 1, 3))


attention.defvjp(_attention_forward, _attention_backward)


class TransformerLayer(nn.Module):
    """Pre-norm self-attention and feed-forward layer, written as a scan body."""

    num_heads: int
    mlp_hidden: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "b n d"], _: None
    ) -> tuple[Float[Array, "b n d"], None]:
        x = x + self._attention(layer_norm("norm_attention", self.dtype)(x))
        y = layer_norm("norm_mlp", self.dtype)(x)
        y = self._dense(self.mlp_hidden, "mlp_in")(y)
        y = self._dense(x.shape[-1], "mlp_out")(silu(y))
        return x + y, None

    def _attention(self, x: Float[Array, "b n d"]) -> Float[Array, "b n d"]:
        heads = (*x.shape[:-1], self.num_heads, -1)
        qkv = self._dense(3 * x.shape[-1], "attention_in")(x)
        query, key, value = (p.reshape(heads) for p in jnp.split(qkv, 3, axis=-1))
        y = attention(query, key, value).reshape(x.shape)
        return self._dense(x.shape[-1], "attention_out")(y)

    def _dense(self, features: int, name: str) -> nn.Dense:
        return nn.Dense(features, dtype=self.dtype, name=name)


def transformer(
    num_layers: int, num_heads: int, mlp_hidden: int, dtype: Dtype, name: str
) -> nn.Module:
    """A stack of layers, whose parameters are stacked on a leading axis."""
    stack = nn.scan(
        TransformerLayer,
        variable_axes={"params": 0},
        split_rngs={"params": False},
        length=num_layers,
        unroll=num_layers,
    )
    return stack(num_heads, mlp_hidden, dtype, name=name)


def in_parts(
    net: Callable[[Array], Array], x: Float[Array, "..."], num_parts: int, axes: int
) -> Float[Array, "..."]:
    """Applies a network to parts of a batch, independently of one another.

    A CPU works on the parts at the same time, where it would run a convolution of the
    whole batch on one thread. The result is that of the whole batch but for rounding.

    Args:
      net: Maps the last axes of its input, whatever comes before them.
      x: Any number of batch axes, then those of one example.
      num_parts: How many parts, as far as there are examples; 1 leaves all together.
      axes: Number of axes of one example.
    """
    batch = x.shape[: x.ndim - axes]
    num_parts = min(num_parts, math.prod(batch))
    if num_parts < 2:
        return net(x)
    examples = x.reshape(-1, *x.shape[len(batch) :])
    y = jnp.concatenate([net(part) for part in jnp.array_split(examples, num_parts)])
    return y.reshape(*batch, *y.shape[1:])
