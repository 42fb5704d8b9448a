"""A walk around discs with shadows, made by hand: every part of it is known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax.models import ordering
from ocloc_jax.sheet import Walk

PRESENCE = (0.99, 0.97, 0.98, 0.95, 0.2, 0.01)
COLOURS = ((200, 40, 40), (50, 90, 220), (40, 160, 70), (230, 190, 50), (90, 90, 90))


def walk(size: int = 64, num_views: int = 4, steps: int = 8, seed: int = 0) -> Walk:
    """Six slots, the last two as good as empty, seen from a circling camera."""
    rng = np.random.default_rng(seed)
    num, num_slots = (num_views - 1) * steps + 1, len(PRESENCE)
    angle = np.linspace(0, 1.5 * np.pi, num)[:, None] + rng.uniform(0, 6)
    around = np.arange(num_slots) * 2 * np.pi / 4 + rng.uniform(0, 0.5, num_slots)
    radius = rng.uniform(0.3, 0.5, num_slots)
    across, near = radius * np.cos(angle + around), radius * np.sin(angle + around)
    extent = rng.uniform(0.16, 0.26, num_slots) * (1 + 0.4 * near)
    y, x = np.meshgrid(*[np.linspace(-1, 1, size)] * 2, indexing="ij")
    dx = x - across[..., None, None]
    dy = y - (0.1 + 0.5 * near)[..., None, None]
    wide = extent[..., None, None]
    shape = _soft((np.hypot(dx, dy) / wide - 1) * wide * size / 2)
    shadow = np.hypot((dx - 0.7 * wide) / 1.4, (dy - 0.8 * wide) / 0.6) / wide
    shadow_shape = _soft((shadow - 1) * wide * size / 4) * (1 - shape)
    shade = 1 - 0.6 * np.clip((dx + dy) / wide, -1, 1)
    colours = np.array([COLOURS[k % len(COLOURS)] for k in range(num_slots)]) / 255
    appearance = 2 * shade[..., None] * colours[:, None, None] * 0.7 - 1
    ground = 0.25 - 0.35 * y[..., None] * np.array([0.6, 0.8, 1.0])
    fields = {
        "background": np.broadcast_to(ground, (num, size, size, 3)),
        "appearance": appearance,
        "shape": shape,
        "order": near,
        "shadow_shape": shadow_shape,
        "shadow_light": np.full_like(shape, 0.35),
    }
    fields = {k: np.array(v, np.float32) for k, v in fields.items()}
    knots = np.arange(num_views) * steps
    empty = np.zeros((num, size, size, 3), np.float32)
    photographs = np.zeros((num_views, size, size, 3), np.uint8)
    made = Walk(photographs, knots, np.float32(PRESENCE), empty, **fields)
    recon = composed(made)
    noisy = recon[knots] + rng.normal(0, 0.04, recon[knots].shape)
    images = np.rint((np.clip(noisy, -1, 1) + 1) * 127.5).astype(np.uint8)
    return dataclasses.replace(made, images=images, recon=recon)


def composed(
    of: Walk,
    objects: np.ndarray | None = None,
    shadows: np.ndarray | None = None,
    background: np.ndarray | None = None,
) -> np.ndarray:
    """Pictures from the layers of a walk, with the model's own masks.

    Args:
      of: What to compose.
      objects: Which of them are shown; by default all.
      shadows: Which of them are shown; by default all.
      background: Instead of the walk's own.
    """
    ground = of.background if background is None else background
    if of.shadow_shape is not None:
        hard = of.ordered_shadows
        none, some = masks(of, of.shadow_shape, hard * of.order, shadows, hard)
        lit = none + (some * of.shadow_light).sum(axis=1)
        ground = (ground + 1) * lit[..., None] - 1
    left, seen = masks(of, of.shape, of.order, objects, 1)
    colours = (seen[..., None] * of.appearance).sum(axis=1)
    return left[..., None] * ground + colours


def masks(
    of: Walk,
    shape: np.ndarray,
    order: np.ndarray,
    shown: np.ndarray | None,
    hardness: float,
) -> tuple[np.ndarray, ...]:
    """The model's own masks of the background and of the objects."""
    shown = np.ones(len(of.presence)) if shown is None else np.asarray(shown)
    log_presence = np.log(np.maximum(of.presence * shown, 1e-30))
    log_presence = np.broadcast_to(log_presence, order.shape)
    args = (jnp.asarray(x, jnp.float32) for x in (shape, log_presence, order, hardness))
    return tuple(np.asarray(x) for x in jax.jit(ordering.layer_masks)(*args))


def _soft(pixels_outside: np.ndarray) -> np.ndarray:
    """An edge about two pixels wide."""
    return 1 / (1 + np.exp(np.clip(3 * pixels_outside, -40, 40)))
