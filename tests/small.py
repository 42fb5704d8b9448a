"""A model small enough for property tests, with inputs to match.

Everything random comes from NumPy: XLA would compile each draw of its own.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.models.noise import Noise
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import ImageNetSizes, ModelSizes

IMAGE = ImageNetSizes(
    hidden=(12,), width=8, num_heads=2, mlp_hidden=12, channels=(8, 6)
)
SIZES = ModelSizes(
    features=8,
    num_convs=2,
    slot_view=3,
    slot_attr=8,
    key=6,
    update_hidden=8,
    latent_view=2,
    latent_bck=3,
    latent_obj=4,
    head_hidden=12,
    order_hidden=(12,),
    background=IMAGE,
    objects=IMAGE,
)
SIZE = 16


def model(**options: Any) -> Ocloc:
    return Ocloc(SIZES, **options)


def params(of: Ocloc, seed: int = 0) -> Any:
    """Parameters well away from the initial ones, where many gradients vanish."""
    rng = np.random.default_rng(seed)
    flat = {}
    for path, shape in parameter_shapes(of).items():
        fan_in = np.prod(shape[:-1]) if path[-1] == "kernel" else 10
        value = rng.normal(path[-1] == "scale", 1.4 / np.sqrt(fan_in), shape)
        flat[path] = jnp.asarray(value, jnp.float32)
    return traverse_util.unflatten_dict(flat)


def images(batch: tuple[int, ...] = (2,), num_views: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    shape = (*batch, num_views, SIZE, SIZE, 3)
    return jnp.asarray(rng.uniform(-1, 1, shape), jnp.float32)


def noise(
    batch: tuple[int, ...] = (2,),
    num_views: int = 3,
    num_slots: int = 4,
    *,
    training: bool = True,
    shadows: bool = True,
    seed: int = 0,
) -> Noise:
    rng = np.random.default_rng(seed)
    view, slot = (*batch, num_views), (*batch, num_slots)
    pixels = (*view, num_slots, SIZE, SIZE)
    draws = {
        "slot_view": rng.normal(size=(*view, SIZES.slot_view)),
        "slot_attr": rng.normal(size=(*slot, SIZES.slot_attr)),
        "view": rng.normal(size=(*view, SIZES.latent_view)),
        "obj": rng.normal(size=(*slot, SIZES.latent_obj)),
        "bck": rng.normal(size=(*batch, SIZES.latent_bck)),
        "presence": rng.uniform(size=slot),
    }
    if training:
        draws["shape"] = rng.uniform(size=pixels)
    if training and shadows:
        draws["shadow_shape"] = rng.uniform(size=pixels)
        draws["appearance"] = rng.normal(size=(*pixels, 3))
    return Noise(**{k: jnp.asarray(v, jnp.float32) for k, v in draws.items()})
