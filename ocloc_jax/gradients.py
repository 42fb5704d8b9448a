"""The gradient of the objective, of all images at once or of a few at a time.

Views of a scene meet in the encoder. Given the latents, every image is decoded and
compared by itself: its gradient can be taken right away, and what the decoder kept for
it be forgotten before the next image begins. Nothing is computed twice for that, and
the memory of a step hardly grows with the number of scenes and views.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ocloc_jax import health, losses
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.noise import Noise
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.schedules import Coefficients

# Fields of latents and noise that have an axis of views behind that of the scenes.
_OF_VIEWS = ("slot_view", "view", "shape", "shadow_shape", "appearance")

Metrics = dict[str, Float[Array, ""]]
Batch = tuple[Latents, Float[Array, "b m h w 3"], Noise]
Render = Callable[..., tuple[Array, tuple[losses.Terms, health.Usage]]]


def gradient(
    model: Ocloc,
    params: PyTree,
    images: Float[Array, "b m h w 3"],
    noise: Noise,
    coefficients: Coefficients,
    objective: losses.Objective,
    images_at_a_time: int = 0,
) -> tuple[PyTree, Metrics]:
    """Of the mean objective of some scenes, with the numbers that are logged of them.

    Args:
      model: What is trained.
      params: Its parameters.
      images: In [-1, 1].
      noise: Every random draw.
      coefficients: Of the schedule.
      objective: What is optimised.
      images_at_a_time: How many images are decoded at a time at most; 0 for all.
    """
    num_scenes, _, height, width, _ = images.shape
    weigh = functools.partial(losses.weigh, coefficients=coefficients, mode=model.mode)

    def encode(encoder: PyTree) -> tuple[tuple[Latents, Array], tuple]:
        variables = {"params": {"encoder": encoder}}
        arguments = images, noise, coefficients
        _, posterior, latents = model.apply(variables, *arguments, method="encode")
        options = dict(alpha=objective.alpha, mode=model.mode)
        terms = losses.latent_terms(posterior, height * width, **options)
        return (latents, weigh(terms).mean()), (posterior, terms)

    def render(
        decoder: PyTree, latents: Latents, images: Array, noise: Noise
    ) -> tuple[Array, tuple]:
        variables = {"params": {"decoder": decoder}}
        arguments = latents, noise, coefficients, height, width
        _, scene = model.apply(variables, *arguments, method="render")
        options = dict(sigma_x=objective.sigma_x, mode=model.mode)
        terms = losses.image_terms(scene, images, coefficients, **options)
        return weigh(terms).sum() / num_scenes, (terms, health.usage(scene))

    (latents, loss), pull, (posterior, terms) = jax.vjp(
        encode, params["encoder"], has_aux=True
    )
    (d_decoder, d_latents), (more, used) = _of_images(
        render, params["decoder"], (latents, images, noise), images_at_a_time
    )
    (d_encoder,) = pull((d_latents, jnp.ones_like(loss)))
    terms |= more
    metrics = {name: value.mean() for name, value in terms.items()}
    metrics |= health.measure(used, posterior, latents)
    metrics["loss"] = weigh(terms).mean()
    return {"encoder": d_encoder, "decoder": d_decoder}, metrics


def _of_images(
    render: Render, decoder: PyTree, batch: Batch, at_a_time: int
) -> tuple[tuple[PyTree, Latents], tuple[losses.Terms, health.Usage]]:
    """Gradients for decoder and latents, and the numbers of every scene."""
    of_latents = jax.grad(render, argnums=(0, 1), has_aux=True)
    latents, images, noise = batch
    num_scenes, num_views = images.shape[:2]
    num_chunks = _num_chunks(num_scenes * num_views, at_a_time)
    if num_chunks == 1:
        return of_latents(decoder, *batch)
    split = functools.partial(_split, num_views=num_views, num_chunks=num_chunks)
    latents, join = jax.vjp(split, latents)
    rows = latents, _chunks(_singly(images), num_chunks), split(noise)

    def add(total: PyTree, chunk: Batch) -> tuple[PyTree, tuple]:
        (d_decoder, d_latents), numbers = of_latents(decoder, *chunk)
        return jax.tree.map(jnp.add, total, d_decoder), (d_latents, numbers)

    zeros = jax.tree.map(jnp.zeros_like, decoder)
    d_decoder, (d_latents, (terms, used)) = jax.lax.scan(add, zeros, rows)

    def by_scene(x: Float[Array, "n c *s"]) -> Float[Array, "b m *s"]:
        return jnp.moveaxis(x.reshape(num_views, num_scenes, *x.shape[2:]), 0, 1)

    terms = {name: by_scene(x).sum(axis=1) for name, x in terms.items()}
    used = jax.tree.map(lambda x: by_scene(x)[:, :, 0], used)
    return (d_decoder, *join(d_latents)), (terms, used)


def _num_chunks(num_images: int, at_a_time: int) -> int:
    """How often the largest divisor that is allowed fits; 0 allows all."""
    most = min(at_a_time, num_images) if at_a_time else num_images
    size = next(n for n in range(most, 0, -1) if num_images % n == 0)
    return num_images // size


def _split(fields: Any, num_views: int, num_chunks: int) -> Any:
    """Latents or noise of scenes as chunks of scenes that have one view each."""

    def one(name: str, x: Array) -> Array:
        repeated = jnp.broadcast_to(x, (num_views, *x.shape)).reshape(-1, *x.shape[1:])
        return _chunks(_singly(x) if name in _OF_VIEWS else repeated, num_chunks)

    given = {k: v for k, v in vars(fields).items() if v is not None}
    return fields.replace(**{name: one(name, x) for name, x in given.items()})


def _singly(x: Float[Array, "b m *s"]) -> Float[Array, "n 1 *s"]:
    """Every view as a scene; all scenes of a view together, as they lie on devices."""
    return jnp.moveaxis(x, 1, 0).reshape(-1, 1, *x.shape[2:])


def _chunks(x: Float[Array, "n *s"], num_chunks: int) -> Float[Array, "c n2 *s"]:
    return x.reshape(num_chunks, -1, *x.shape[1:])
