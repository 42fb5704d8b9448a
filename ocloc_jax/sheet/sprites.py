"""Layers as bytes in two pictures for each scene, from which a browser composes.

A picture has one column of tiles for each viewpoint. `colours` has one row of tiles
for each object and a last one for the background; red, green and blue of `covers` are
the shape, the shadow's shape (both times presence) and the light a shadow lets pass.
"""

import base64
import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from ocloc_jax.models import ordering
from ocloc_jax.sheet.viewpoints import Walk

_MAX_SIDE = 16383  # of a WebP picture


@dataclasses.dataclass(frozen=True)
class Sprites:
    """What is embedded of a walk.

    Attributes:
      covers: Shapes, shadow shapes, lights.
      colours: Appearances, the background last.
      ranges: Of each layer of `colours`, the values of bytes 0 and 255. Networks are
        not bound to [-1, 1], and neither are the layers.
      ranks: How many objects lie before each one; only comparisons matter.
    """

    covers: UInt8[np.ndarray, "p k h w 3"]
    colours: UInt8[np.ndarray, "p k+1 h w 3"]
    ranges: Float[np.ndarray, "k+1 2"]
    ranks: Int[np.ndarray, "p k"]


def pack(walk: Walk) -> Sprites:
    """Rounds the layers of a walk to bytes."""
    presence = walk.presence[None, :, None, None]
    covers = [walk.shape * presence]
    if walk.shadow_shape is not None:
        covers += [walk.shadow_shape * presence, walk.shadow_light]
    covers = [np.rint(255 * cover).astype(np.uint8) for cover in covers]
    if walk.shadow_shape is not None:
        covers[2] = np.where(covers[1] > 0, covers[2], 255)  # smaller, and never seen
    while len(covers) < 3:
        covers.append(np.zeros_like(covers[0]))
    layers = [*np.moveaxis(walk.appearance, 1, 0), walk.background]
    seen = [*np.moveaxis(covers[0] > 0, 1, 0), np.ones(walk.background.shape[:-1])]
    packed = [_to_bytes(x, s.astype(bool)) for x, s in zip(layers, seen, strict=True)]
    nearer = walk.order[:, None, :] > walk.order[:, :, None]
    return Sprites(
        covers=np.stack(covers, axis=-1),
        colours=np.stack([pixels for pixels, _ in packed], axis=1),
        ranges=np.array([limits for _, limits in packed]),
        ranks=nearer.sum(axis=-1),
    )


def _to_bytes(
    layer: Float[np.ndarray, "p h w 3"], seen: Shaped[np.ndarray, "p h w"]
) -> tuple[UInt8[np.ndarray, "p h w 3"], tuple[float, float]]:
    """Spends all bytes on the pixels that can be seen; the others get one colour."""
    visible = layer[seen]
    if not visible.size:
        return np.zeros(layer.shape, np.uint8), (-1.0, 1.0)
    low, high = round(float(visible.min()), 5), round(float(visible.max()), 5)
    high = max(high, low + 1e-3)
    layer = np.where(seen[..., None], layer, visible.mean(axis=0))
    scaled = (layer.astype(np.float32) - low) / (high - low)
    return np.rint(255 * np.clip(scaled, 0, 1)).astype(np.uint8), (low, high)


def rounding_error(walk: Walk, sprites: Sprites) -> float:
    """Largest difference, out of 255, between pictures from bytes and the model's."""
    shape, shadow, light = np.moveaxis(sprites.covers / np.float32(255), -1, 0)
    low, high = np.moveaxis(sprites.ranges, -1, 0)[:, None, :, None, None, None]
    layers = np.float32(low + sprites.colours / 255 * (high - low))
    masks = _masks(shape, -sprites.ranks, hard=True)
    background = layers[:, -1]
    if walk.shadow_shape is not None:
        order = -sprites.ranks * walk.ordered_shadows
        none, some = _masks(shadow, order, hard=walk.ordered_shadows)
        lit = none + (some * light).sum(axis=1)
        background = (background + 1) * lit[..., None] - 1
    objects = (masks[1][..., None] * layers[:, :-1]).sum(axis=1)
    recon = masks[0][..., None] * background + objects
    difference = np.clip(recon, -1, 1) - np.clip(walk.recon, -1, 1)
    return float(abs(difference).max() * 127.5)


def _masks(
    shape: Float[np.ndarray, "p k h w"], order: Int[np.ndarray, "p k"], hard: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The model's own masks, of shapes that already hold presence."""
    order = jnp.asarray(order, jnp.float32)
    masks = jax.jit(ordering.layer_masks)(
        jnp.asarray(shape), jnp.zeros_like(order), order, jnp.float32(hard)
    )
    return np.asarray(masks[0]), np.asarray(masks[1])


def spread(tiles: UInt8[np.ndarray, "p l h w 3"]) -> UInt8[np.ndarray, "H W 3"]:
    """Tiles side by side: viewpoints to the right, layers downwards."""
    p, num, h, w, _ = tiles.shape
    if p * w > _MAX_SIDE or num * h > _MAX_SIDE:
        raise ValueError(
            f"{p} viewpoints and {num} layers of {h}x{w} pixels do not fit into one "
            f"picture of {_MAX_SIDE} pixels a side; use fewer steps or photographs."
        )
    return tiles.transpose(1, 2, 0, 3, 4).reshape(num * h, p * w, 3)


def data_uri(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    """A picture as the address of itself: WebP, no pixel changed."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "WEBP", lossless=True, quality=80)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
