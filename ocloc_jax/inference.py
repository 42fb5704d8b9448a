"""What a trained model sees in scenes: inference without training noise."""

import functools
from collections.abc import Iterator
from concurrent import futures
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt8

from ocloc_jax import data, figures, programs
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
    bound = _for_threads(model).bind({"params": params})
    return latents.mode(bound.encoder.posterior(bound.infer_slots(images, noise)))


def decode(
    model: Ocloc, params: PyTree, found: Latents, height: int, width: int
) -> Layers:
    """What latents look like, layer by layer."""
    model = _for_threads(model)
    return model.apply({"params": params}, found, height, width, method="decode")


def _for_threads(model: Ocloc) -> Ocloc:
    """The model as a CPU runs it fastest; others are left alone."""
    return model.clone(num_parts=2) if jax.default_backend() == "cpu" else model


def compose_layers(model: Ocloc, layers: Layers, found: Latents) -> Scene:
    """Layers put together as after training, without its noise."""
    return compose.compose(layers, found, Coefficients(), mode=model.mode)


class Prediction(NamedTuple):
    """What a model makes of one scene, on the host.

    Attributes:
      arrays: Truth and prediction, as `ocloc_jax.metrics` takes them.
      latents: The fields of `Latents`.
    """

    arrays: dict[str, np.ndarray]
    latents: dict[str, np.ndarray]


def predictions(
    model: Ocloc,
    params: PyTree,
    scenes: data.Scenes,
    *,
    num_views: int,
    num_slots: int,
    seed: int = 0,
    batch_size: int = 10,
) -> Iterator[Prediction]:
    """Truth and prediction of each scene in turn; a few batches are held at a time.

    The initial slots depend on the seed and the number of the scene only, so that the
    batch size does not matter.
    """
    keys = ("image", *(key for key in LABELS if key in scenes.keys))
    # Whichever process asks does all of it, on a device of its own.
    pipeline = data.EvalPipeline(scenes, batch_size, keys, 0, 1, num_views=num_views)
    for batch in pipeline.batches(device_buffer=1):
        found = _predict(model, params, batch["image"], batch["index"], seed, num_slots)
        found, true = jax.device_get((found, {key: batch[key] for key in keys}))
        for row in np.flatnonzero(np.asarray(batch["valid"])):
            arrays, latent = jax.tree.map(lambda x, row=row: x[row], found)
            yield Prediction({k: v[row] for k, v in true.items()} | arrays, latent)


@functools.partial(jax.jit, static_argnames=("model", "num_slots"))
def _predict(
    model: Ocloc,
    params: PyTree,
    images: UInt8[Array, "b m h w 3"],
    index: Int[Array, " b"],
    seed: Int[Array, ""] | int,
    num_slots: int,
) -> tuple[dict[str, Array], dict[str, Array]]:
    def one(
        images: UInt8[Array, "m h w 3"], index: Int[Array, ""]
    ) -> tuple[Latents, Scene]:
        key = jax.random.fold_in(jax.random.key(seed), index)
        return infer(model, params, data.to_model_range(images), key, num_slots)

    found, scene = jax.vmap(one)(images, index)
    layers = [scene.mask_obj, scene.mask_bck[:, :, None]]
    arrays = {
        "mask": jnp.concatenate(layers, axis=2),
        "shape": scene.shape * found.presence[:, None, :, None, None],
        "presence": found.presence,
        "order": scene.order,
        "reconstruction": (scene.recon + 1) / 2,
    }
    return arrays, dict(vars(found))


class Picture:
    """A function of the parameters: how the first scene of a split is taken apart."""

    def __init__(self, model: Ocloc, pipeline: data.EvalPipeline, num_slots: int):
        """Reads and compiles nothing yet."""

        def run(
            params: PyTree, images: UInt8[Array, "1 m h w 3"]
        ) -> tuple[Latents, Scene]:
            images = data.to_model_range(images)
            found = infer(model, params, images, jax.random.key(0), num_slots)
            return jax.tree.map(lambda x: x[0], found)

        self._pipeline, self._program = pipeline, programs.Ahead(jax.jit(run))

    def __call__(self, params: PyTree) -> figures.Picture:
        images = self._images()
        found, scene = self._program(params, images)
        return figures.decomposition(images[0] / 127.5 - 1, scene, found.presence)

    def prepare(self, pool: futures.Executor, params: PyTree) -> None:
        """Has the program made in the background, for parameters like these."""
        self._program.prepare(pool, params, self._images())

    def _images(self) -> UInt8[np.ndarray, "1 m h w 3"]:
        scenes, views = self._pipeline.scenes, list(range(self._pipeline.num_views))
        return scenes.decode(scenes[0], views, ("image",))["image"][None]
