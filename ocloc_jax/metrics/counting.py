"""Counts over the pixels of one multi-view scene, as matrix products in JAX.

Everything the scores need is a sum over pixels of a product of two maps: a
contingency table multiplies one-hot labels, the matching cost one-hot labels with
masks, the overlap of two shapes one shape with the other. 8-bit maps are centred
(`value - 128`) so that they fit in int8; products then accumulate in int32, which is
exact on every device and faster than float32. Float maps take the same path in
float32.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import (
    Array,
    Bool,
    Float64,
    Int,
    Int32,
    Int64,
    Integer,
    Real,
    UInt8,
)

# Pixels per accumulator. int32: 128 * 128 * 65536 is half of its range. float32: short
# sums, finished in float64 on the host, keep the rounding near 1e-7.
_BLOCK = {"int8": 65536, "float32": 128}
CENTRE = 128
_ALIGNMENT = 64


class PartitionTables(NamedTuple):
    """What a predicted partition shares with the true one, view by view.

    Attributes:
      everything: Pixels by true label (background last) and predicted layer.
      objects: The same on object pixels, arg-max over object slots only.
      overlap: Sum of the soft mask of each slot over the pixels of each object.
    """

    everything: Int64[np.ndarray, "v labels layers"]
    objects: Int64[np.ndarray, "v labels k"]
    overlap: Float64[np.ndarray, "v n k"]


class ShapeTables(NamedTuple):
    """How the true complete shapes of objects lie upon each other, view by view.

    Attributes:
      area: Sum of each complete shape.
      shared: Sum of the product of two complete shapes.
      owned: The same over the pixels where the first object is the visible one.
    """

    area: Float64[np.ndarray, "v n"]
    shared: Float64[np.ndarray, "v n n"]
    owned: Float64[np.ndarray, "v n n"]


def one_hot_rows(
    labels: Integer[Array, "*b p"], num: int, dtype: DTypeLike
) -> Real[Array, "*b rows p"]:
    """Rows of zeros and ones; labels outside `0..num-1` have no row."""
    ids = jnp.arange(num, dtype=labels.dtype)
    shape = (1,) * (labels.ndim - 1) + (num, 1)
    return (labels[..., None, :] == ids.reshape(shape)).astype(dtype)


def centred(values: Real[Array, "..."]) -> Real[Array, "..."]:
    """8-bit values as int8 around zero, floats as float32."""
    if values.dtype == jnp.uint8:
        flipped = values ^ jnp.uint8(CENTRE)  # the same bits as value - 128
        return jax.lax.bitcast_convert_type(flipped, jnp.int8)
    return values.astype(jnp.float32)


def product_sums(
    left: Real[Array, "*b i p"], right: Real[Array, "*b j p"]
) -> Real[Array, "*b g i j"]:
    """Sums over pixels of every product of rows, in `g` blocks of pixels."""
    num_blocks = max(1, -(-left.shape[-1] // _BLOCK[left.dtype.name]))
    left, right = (_in_blocks(rows, num_blocks) for rows in (left, right))
    exact = left.dtype == jnp.int8
    return jnp.einsum(
        "...gip,...gjp->...gij",
        left,
        right,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.int32 if exact else jnp.float32,
    )


def _in_blocks(rows: Real[Array, "*b i p"], num_blocks: int) -> Real[Array, "..."]:
    if num_blocks == 1:
        return rows[..., None, :, :]
    spare = -rows.shape[-1] % num_blocks
    rows = jnp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, spare)])
    return rows.reshape(*rows.shape[:-1], num_blocks, -1).swapaxes(-3, -2)


def label_table(
    true: Integer[Array, "*b p"],
    predicted: Integer[Array, "*b p"],
    num: tuple[int, int],
) -> Int32[Array, "*b i j"]:
    """Contingency table of two labellings; pixels with other labels do not count.

    A histogram where scattered additions are fast (CPU), else an int8 product.
    """
    by_platform = {"cpu": _histogram, "default": _one_hot_product}
    return jax.lax.platform_dependent(
        true.astype(jnp.int32),
        predicted.astype(jnp.int32),
        **{name: functools.partial(f, num) for name, f in by_platform.items()},
    )


def _one_hot_product(
    num: tuple[int, int], true: Int32[Array, "*b p"], predicted: Int32[Array, "*b p"]
) -> Int32[Array, "*b i j"]:
    left = one_hot_rows(true, num[0], jnp.int8)
    return product_sums(left, one_hot_rows(predicted, num[1], jnp.int8)).sum(axis=-3)


def _histogram(
    num: tuple[int, int], true: Int32[Array, "*b p"], predicted: Int32[Array, "*b p"]
) -> Int32[Array, "*b i j"]:
    batch, size = true.shape[:-1], num[0] * num[1]
    known = (true >= 0) & (true < num[0]) & (predicted >= 0) & (predicted < num[1])
    # One spare bin for the pixels that do not count.
    bins = jnp.where(known, true * num[1] + predicted, size).reshape(-1, true.shape[-1])
    offsets = jnp.arange(bins.shape[0], dtype=jnp.int32)[:, None] * (size + 1)
    counts = jnp.zeros(bins.shape[0] * (size + 1), jnp.int32)
    counts = counts.at[(bins + offsets).ravel()].add(1, mode="promise_in_bounds")
    return counts.reshape(*batch, size + 1)[..., :-1].reshape(*batch, *num)


def _first_largest(
    maps: Real[Array, "v k h w"],
) -> tuple[Integer[Array, "v h w"], Real[Array, "v h w"]]:
    """Arg-max and max over slots in one pass (`argmax` takes four times as long)."""
    if maps.shape[1] >= 64:  # a longer chain would only be slow to compile
        return jnp.argmax(maps, axis=1).astype(jnp.int32), maps.max(axis=1)
    slot, largest = jnp.zeros_like(maps[:, 0], dtype=jnp.uint8), maps[:, 0]
    for index in range(1, maps.shape[1]):
        slot = jnp.where(maps[:, index] > largest, jnp.uint8(index), slot)
        largest = jnp.maximum(maps[:, index], largest)
    return slot, largest


@functools.partial(jax.jit, static_argnames="num_objects")
def _partition_codes(
    segment: UInt8[Array, "v h w"],
    is_object: Bool[Array, "v h w"],
    mask: Real[Array, "v layers h w"],
    num_objects: int,
) -> tuple[Integer[Array, "v p"], Real[Array, "v g n k"]]:
    """Slot, layer and choice of each pixel in one label, and the soft overlaps."""
    num_views, num_slots = mask.shape[0], mask.shape[1] - 1
    flat = (num_views, -1)
    slot, largest = _first_largest(mask[:, :-1])
    is_background = mask[:, -1] > largest  # ties go to the object
    # 8 bits hold the label of up to 63 slots, and are quicker to go through.
    kind = 2 * is_object.astype(slot.dtype) + is_background.astype(slot.dtype)
    soft = centred(mask[:, :-1]).reshape(num_views, num_slots, -1)
    true = one_hot_rows(segment.reshape(flat), num_objects, soft.dtype)
    return (slot + num_slots * kind).reshape(flat), product_sums(true, soft)


@functools.partial(jax.jit, static_argnames="num")
def _code_table(
    segment: UInt8[Array, "v h w"], code: Integer[Array, "v p"], num: tuple[int, int]
) -> Int32[Array, "v i j"]:
    # A program of its own: fused with the arg-max, XLA counts five times as long.
    return label_table(segment.reshape(code.shape), code, num)


def partition_tables(
    segment: UInt8[np.ndarray, "v h w"],
    is_object: Bool[np.ndarray, "v h w"],
    mask: Real[np.ndarray | Array, "v layers h w"],
    num_objects: int,
) -> PartitionTables:
    """Counts how a predicted partition of one scene meets the true one.

    Args:
      segment: Index of the visible object; `num_objects` is the background.
      is_object: Pixels that count for the scores of objects only.
      mask: Layers of the prediction (background last), uint8 or float in [0, 1].
      num_objects: Largest number of objects, `n`.

    Returns:
      The tables, exact for 8-bit masks.
    """
    num_slots = mask.shape[1] - 1
    code, sums = _partition_codes(segment, is_object, mask, num_objects=num_objects)
    table = _code_table(segment, code, num=(num_objects + 1, 4 * num_slots))
    table = np.asarray(table, np.int64).reshape(len(mask), -1, 2, 2, num_slots)
    soft = _over_blocks(sums)
    by_layer = table.sum(axis=2)  # [v, n+1, background wins, k]
    slots, background = by_layer[:, :, 0], by_layer[:, :, 1].sum(axis=-1, keepdims=True)
    everything = np.concatenate([slots, background], axis=-1)
    if mask.dtype == np.uint8:
        num_pixels = everything[:, :-1].sum(axis=-1, keepdims=True)
        soft = (soft + CENTRE * num_pixels) / 255
    return PartitionTables(everything, table[:, :, 1].sum(axis=2), soft)


@jax.jit
def _shape_products(
    segment: UInt8[Array, "v h w"], shapes: Real[Array, "v labels h w"]
) -> Real[Array, "v g rows labels"]:
    num_views, num_objects = shapes.shape[0], shapes.shape[1] - 1
    rows = centred(shapes[:, :-1]).reshape(num_views, num_objects, -1)
    owner = one_hot_rows(segment.reshape(num_views, -1), num_objects, rows.dtype)
    ones = jnp.ones_like(rows[:, :1])
    left = jnp.concatenate([rows, owner * rows, owner], axis=1)
    return product_sums(left, jnp.concatenate([rows, ones], axis=1))


def shape_tables(
    segment: UInt8[np.ndarray, "v h w"],
    shapes: Real[np.ndarray | Array, "v labels h w"],
) -> ShapeTables:
    """Measures the true complete shapes (uint8 or float in [0, 1]) of one scene.

    Args:
      segment: Index of the visible object.
      shapes: Complete shapes; the last one, the background's, is left out.

    Returns:
      The tables, exact for 8-bit shapes.
    """
    sums = _over_blocks(_shape_products(segment, shapes))
    rows, owned_rows, owner = np.split(sums, 3, axis=1)
    exact = shapes.dtype == np.uint8
    shift, scale = (CENTRE, 255) if exact else (0, 1)
    num_pixels = shapes.shape[-2] * shapes.shape[-1]
    # Undo the centring: ab = (a - c)(b - c) + c (a - c) + c (b - c) + c^2, where the
    # last column of each product holds the sums of the rows themselves.
    area = rows[..., -1] + shift * num_pixels
    both = rows[..., -1:] + rows[..., -1:].swapaxes(1, 2)
    shared = rows[..., :-1] + shift * both + shift**2 * num_pixels
    single = owned_rows[..., -1:] + owner[..., :-1]
    owned = owned_rows[..., :-1] + shift * single + shift**2 * owner[..., -1:]
    return ShapeTables(area / scale, shared / scale**2, owned / scale**2)


@jax.jit
def _shape_sums(
    shapes: Real[Array, "v labels h w"],
    predicted: Real[Array, "v k h w"],
    matching: Int[Array, " n"],
) -> tuple[Real[Array, "v n w"], Real[Array, "v n w"]]:
    """Column by column: what true and matched shapes share, and the matched alone."""
    matched = jnp.take(predicted, matching, axis=1, mode="clip")
    # Also exact for 8 bits: 257 of them fit into 16 bits, and 2**16 into float32.
    short = matched.dtype == jnp.uint8 and matched.shape[-2] <= 257
    dtype = jnp.uint16 if short else jnp.float32
    both = jnp.minimum(shapes[:, :-1], matched)
    return both.sum(axis=-2, dtype=dtype), matched.sum(axis=-2, dtype=dtype)


def intersections(
    shapes: Real[np.ndarray | Array, "v labels h w"],
    predicted: Real[np.ndarray | Array, "v k h w"],
    matching: Int[np.ndarray, " n"],
) -> tuple[Float64[np.ndarray, "v n"], Float64[np.ndarray, "v n"]]:
    """Sums `min(true, predicted)` and the predicted shape, for matched slots."""
    if shapes.dtype != predicted.dtype:
        shapes, predicted = (as_float(values) for values in (shapes, predicted))
    scale = 255 if shapes.dtype == np.uint8 else 1
    columns = _shape_sums(shapes, predicted, matching)
    both, area = (np.asarray(x).sum(axis=-1, dtype=np.float64) for x in columns)
    return both / scale, area / scale


def aligned(values: Real[np.ndarray, "..."]) -> Real[np.ndarray, "..."]:
    """The same values where JAX on CPU can use them in place (its copy is slower)."""
    values = np.ascontiguousarray(values)
    if values.ctypes.data % _ALIGNMENT == 0:
        return values
    memory = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    moved = memory[start : start + values.nbytes].view(values.dtype)
    moved = moved.reshape(values.shape)
    moved[...] = values
    return moved


def as_float(values: Real[np.ndarray | Array, "..."]) -> Real[np.ndarray, "..."]:
    """Maps in [0, 1], whether they were stored in 8 bits or not."""
    values = np.asarray(values)
    if values.dtype == np.uint8:
        return values.astype(np.float32) / 255
    return values.astype(np.float32)


def _over_blocks(sums: Real[Array, "v g i j"]) -> Float64[np.ndarray, "v i j"]:
    # Integers below 2**53, so float64 keeps them exact.
    return np.asarray(sums).astype(np.float64).sum(axis=1)
