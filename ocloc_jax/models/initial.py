"""Initial parameters, distributed as those of the released program.

Everything is cut from one uniform draw: XLA takes half a second to compile each
separate one, which for a model of this size would be most of a minute.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models import scaled
from ocloc_jax.models.ocloc import Ocloc

STYLES = ("released", "scaled")

Path = tuple[str, ...]
Shape = tuple[int, ...]

# What PyTorch's transformer leaves at the default of a linear layer.
_FAN_IN = {(layer, "kernel") for layer in ("attention_out", "mlp_in", "mlp_out")}
_FAN_IN |= {("mlp_in", "bias"), ("mlp_out", "bias")}


def init(
    model: Ocloc, key: PRNGKeyArray, style: str = "released"
) -> PyTree[Float[Array, "..."]]:
    """Parameters of a model; they depend on neither image size, M nor K.

    Args:
      model: What they are for.
      key: Of the draws.
      style: "released", or "scaled" for short training; see `models.scaled`.
    """
    shapes = parameter_shapes(model)
    sizes = [math.prod(shape) for shape in shapes.values()]
    draw = jax.random.uniform(key, (sum(sizes),), minval=-1.0)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    params = {
        path: _initial(path, shapes, draw[start : start + size], key)
        for path, start, size in zip(shapes, starts, sizes, strict=True)
    }
    params = traverse_util.unflatten_dict(params)
    return scaled.scale(params, model.sizes) if style == "scaled" else params


def parameter_shapes(model: Ocloc) -> dict[Path, Shape]:
    """Path and shape of every parameter, without computing anything."""
    size = max(model.sizes.background.upsampling, model.sizes.objects.upsampling, 2)

    def trace(key: PRNGKeyArray) -> PyTree:
        noise = noise_lib.draw(key, model.sizes, batch=(), num_views=1, num_slots=1)
        return model.init(key, jnp.zeros((1, size, size, 3)), noise)["params"]

    tree = jax.eval_shape(trace, jax.random.key(0))
    return {k: v.shape for k, v in traverse_util.flatten_dict(tree).items()}


def _initial(
    path: Path, shapes: dict[Path, Shape], draw: Float[Array, " n"], key: PRNGKeyArray
) -> Array:
    if path[-1] == "scale":
        return jnp.ones(shapes[path])
    if path[-3:] == ("gru", "state", "kernel"):
        return nn.initializers.orthogonal()(jax.random.fold_in(key, 1), shapes[path])
    value = _bound(path, shapes) * draw.reshape(shapes[path])
    if "transformer" in path:  # all layers of a stack start as equal copies
        return jnp.broadcast_to(value[:1], value.shape)
    return value


def _bound(path: Path, shapes: dict[Path, Shape]) -> float:
    """Largest absolute value of a parameter that starts uniform around 0."""
    *parents, layer, kind = path
    if layer == "position" and "decoder" in parents:  # inside a sine
        return math.sqrt(6 / 2) if kind == "kernel" else math.sqrt(1 / 2)
    if (layer, kind) in _FAN_IN:
        return 1 / math.sqrt(shapes[*parents, layer, "kernel"][-2])
    if kind == "kernel":  # Glorot
        *receptive, fan_in, fan_out = shapes[path]
        if "transformer" in parents:
            receptive = receptive[1:]  # the axis of stacked layers
        return math.sqrt(6 / (math.prod(receptive) * (fan_in + fan_out)))
    return 0.0
