"""Straight-through ordering: who is seen where complete shapes overlap.

The forward pass is the ordered product of Section III.A, whose value depends on the
order of the objects only through comparisons. The backward pass is that of the soft
weights of Section III.C, in which the order appears as a number.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ocloc_jax.models.pixels import max_slots, slots, sum_slots

Masks = tuple[Float[Array, "*b h w"], Float[Array, "*b k h w"]]

# Shapes below this count as this much in the soft weights, which keeps their
# logarithm and the gradient finite; no sigmoid of a trained network comes near it.
_TINY = 1e-20


@jax.custom_vjp
def layer_masks(
    shape: Float[Array, "*b k h w"],
    log_presence: Float[Array, "*b k"],
    order: Float[Array, "*b k"],
    hardness: Float[Array, ""],
) -> Masks:
    """Weights of the background and of the objects at every pixel.

    Args:
      shape: Complete shapes in [0, 1], not yet multiplied by presence.
      log_presence: Logarithm of the presence of each object.
      order: Depth order; the larger one occludes the smaller one.
      hardness: 1 for the ordered product, 0 for the soft weights; blends between.
        A schedule, not a variable: it gets no gradient.

    Returns:
      The background's mask and the objects' masks. They sum to 1 where no two orders
      of overlapping objects are equal; of two equal ones neither occludes the other.
    """
    return _forward(shape, log_presence, order, hardness)


def soft_masks(
    shape: Float[Array, "*b k h w"],
    log_presence: Float[Array, "*b k"],
    order: Float[Array, "*b k"],
) -> Masks:
    """The soft weights alone, whose gradient `layer_masks` has at any hardness."""
    present = _present(shape, log_presence)
    background, visible, _ = _sticks(present)
    return background, visible[..., None, :, :] * _weights(present, order)


def ordered_masks(
    shape: Float[Array, "*b k h w"],
    log_presence: Float[Array, "*b k"],
    order: Float[Array, "*b k"],
) -> Masks:
    """The ordered product alone: each object times what is left by nearer ones."""
    present = shape * jnp.exp(log_presence)[..., None, None]
    objects = present
    for k in range(shape.shape[-3]):
        nearer = order[..., k, None] > order  # [*b, k]: is object k before this one
        left = (1 - present[..., k, :, :])[..., None, :, :]
        objects = objects * jnp.where(nearer[..., None, None], left, 1.0)
    return functools.reduce(jnp.multiply, slots(1 - present)), objects


def _forward(shape: Array, log_presence: Array, order: Array, hardness: Array) -> Masks:
    dtype = shape.dtype
    args = _float32(shape, log_presence, order)
    background, soft = soft_masks(*args)
    _, hard = ordered_masks(*args)
    hardness = jnp.asarray(hardness, jnp.float32)
    objects = hardness * hard + (1 - hardness) * soft
    return background.astype(dtype), objects.astype(dtype)


def _forward_and_inputs(*args: Array) -> tuple[Masks, tuple[Array, ...]]:
    return _forward(*args), args


def _backward(inputs: tuple[Any, ...], cotangents: Masks) -> tuple[Array, ...]:
    """The gradient of `soft_masks`, in a form without division by 1 - shape."""
    shape, log_presence, order = _float32(*inputs[:3])
    d_background, d_objects = _float32(*cotangents)
    present = _present(shape, log_presence)
    _, visible, others = _sticks(present)
    weights = _weights(present, order)
    mean = sum_slots(d_objects * weights)
    # Through 1 - background and background, and through the normalised weights.
    through_sticks = (mean - d_background)[..., None, :, :] * others
    centred = d_objects - mean[..., None, :, :]
    through_weights = visible[..., None, :, :] * weights * centred
    presence = jnp.exp(log_presence)[..., None, None]
    d_shape = presence * through_sticks + through_weights / jnp.maximum(shape, _TINY)
    d_log_presence = (present * through_sticks + through_weights).sum(axis=(-2, -1))
    gradients = d_shape, d_log_presence, through_weights.sum(axis=(-2, -1))
    dtypes = (x.dtype for x in inputs)
    return tuple(
        g.astype(d) for g, d in zip((*gradients, jnp.zeros(())), dtypes, strict=True)
    )


layer_masks.defvjp(_forward_and_inputs, _backward)


def _float32(*arrays: Array) -> tuple[Array, ...]:
    return tuple(x.astype(jnp.float32) for x in arrays)


def _present(shape: Array, log_presence: Array) -> Float[Array, "*b k h w"]:
    return jnp.maximum(shape * jnp.exp(log_presence)[..., None, None], _TINY)


def _weights(present: Array, order: Array) -> Float[Array, "*b k h w"]:
    logits = jnp.log(present) + order[..., None, None]
    weights = jnp.exp(logits - max_slots(logits)[..., None, :, :])
    return weights / sum_slots(weights)[..., None, :, :]


def _sticks(
    present: Float[Array, "*b k h w"],
) -> tuple[Float[Array, "*b h w"], Float[Array, "*b h w"], Float[Array, "*b k h w"]]:
    """Products of 1 - shape: of all, one minus that of all, of all but each one.

    The second is summed stick by stick, so it keeps its precision for small shapes,
    and no product is divided out again, so shapes of exactly 1 are no special case.
    """
    shapes = slots(present)
    before = [jnp.ones_like(shapes[0])]
    for shape in shapes:
        before.append(before[-1] * (1 - shape))
    after = [jnp.ones_like(shapes[0])]
    for shape in reversed(shapes[1:]):
        after.append(after[-1] * (1 - shape))
    visible = functools.reduce(
        jnp.add, [s * b for s, b in zip(shapes, before, strict=False)]
    )
    others = [b * a for b, a in zip(before, reversed(after), strict=False)]
    return before[-1], visible, jnp.stack(others, axis=-3)
