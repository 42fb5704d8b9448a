"""What a trained model sees in scenes: inference without training noise."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt8

from ocloc_jax import data
from ocloc_jax.models import compose, latents
from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import Layers
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.schedules import Coefficients

LABELS = ("segment", "overlap", "masks")


def infer(
    model: Ocloc,
    params: PyTree,
    images: Float[Array, "*b m h w 3"],
    key: PRNGKeyArray,
    num_slots: int,
) -> tuple[Latents, Scene]:
    """The most probable latents given random initial slots, and their images."""
    found = infer_latents(model, params, images, key, num_slots)
    layers = decode(model, params, found, *images.shape[-3:-1])
    return found, compose_layers(model, layers, found)


def infer_latents(
    model: Ocloc,
    params: PyTree,
    images: Float[Array, "*b m h w 3"],
    key: PRNGKeyArray,
    num_slots: int,
) -> Latents:
    """The most probable latents given random initial slots."""
    *batch, num_views, _, _, _ = images.shape
    noise = noise_lib.draw(
        key,
        model.sizes,
        batch=tuple(batch),
        num_views=num_views,
        num_slots=num_slots,
    )
    bound = model.bind({"params": params})
    return latents.mode(bound.encoder.posterior(bound.infer_slots(images, noise)))


def decode(
    model: Ocloc, params: PyTree, found: Latents, height: int, width: int
) -> Layers:
    """What latents look like, layer by layer."""
    return model.apply({"params": params}, found, height, width, method="decode")


def compose_layers(model: Ocloc, layers: Layers, found: Latents) -> Scene:
    """Layers put together as after training, without its noise."""
    return compose.compose(layers, found, Coefficients(), mode=model.mode)


def predictions(
    model: Ocloc,
    params: PyTree,
    scenes: data.Scenes,
    *,
    num_views: int,
    num_slots: int,
    seed: int = 0,
    batch_size: int = 10,
) -> Iterator[dict[str, Any]]:
    """Truth and prediction of each scene, as `ocloc_jax.metrics` takes them."""
    keys = ("image", *(key for key in LABELS if key in scenes.keys))
    pipeline = data.EvalPipeline(scenes, batch_size, keys=keys, num_views=num_views)

    @jax.jit
    def step(
        params: PyTree, images: UInt8[Array, "b m h w 3"], key: PRNGKeyArray
    ) -> tuple[Latents, Scene]:
        return infer(model, params, data.to_model_range(images), key, num_slots)

    for i, batch in enumerate(pipeline.batches()):
        key = jax.random.fold_in(jax.random.key(seed), i)
        found, scene = step(params, batch["image"], key)
        for row in np.flatnonzero(np.asarray(batch["valid"])):
            true = {key: np.asarray(batch[key][row]) for key in keys}
            yield {**true, **_prediction(found, scene, int(row))}


def _prediction(found: Latents, scene: Scene, row: int) -> dict[str, np.ndarray]:
    layers = [scene.mask_obj[row], scene.mask_bck[row][:, None]]
    presence = np.asarray(found.presence[row])
    return {
        "mask": np.concatenate([np.asarray(x) for x in layers], axis=1),
        "shape": np.asarray(scene.shape[row]) * presence[None, :, None, None],
        "presence": presence,
        "order": np.asarray(scene.order[row]),
        "reconstruction": (np.asarray(scene.recon[row]) + 1) / 2,
    }
