"""A model small enough for property tests, with inputs to match."""

from typing import Any

import jax
import jax.numpy as jnp

from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.initial import init
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
    tree = init(of, jax.random.key(seed))
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    moved = [
        x + 0.3 * jax.random.normal(k, x.shape)
        for x, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def images(batch: tuple[int, ...] = (2,), num_views: int = 3, seed: int = 0) -> Any:
    shape = (*batch, num_views, SIZE, SIZE, 3)
    return jax.random.uniform(jax.random.key(seed), shape, jnp.float32, -1, 1)


def noise(
    batch: tuple[int, ...] = (2,),
    num_views: int = 3,
    num_slots: int = 4,
    *,
    training: bool = True,
    shadows: bool = True,
    seed: int = 0,
) -> noise_lib.Noise:
    return noise_lib.draw(
        jax.random.key(seed),
        SIZES,
        batch=batch,
        num_views=num_views,
        num_slots=num_slots,
        image_size=(SIZE, SIZE) if training else None,
        shadows=shadows,
    )
