"""One scene as the model understands it, to be read, edited and rendered anew."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from ocloc_jax import chunks
from ocloc_jax.figures import grid, parts
from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import Layers
from ocloc_jax.models.latents import Latents


@runtime_checkable
class Decoder(Protocol):
    """What a scene asks of the model that found it."""

    def decode(self, found: Latents, size: tuple[int, int]) -> Layers: ...

    def compose(self, layers: Layers, found: Latents) -> Scene: ...


@dataclasses.dataclass(frozen=True, eq=False)
class InferredScene:
    """Latents of a scene and everything that follows from them.

    Axes are views, then slots (m, k). A slot that found no object has a presence below
    one half; `objects` lists the others. Nothing is changed in place: edits return new
    scenes.

    Attributes:
      decoder: The model that found it, for a scene that is rendered anew.
      latents: `view` [m, ev], `obj` [k, eo], `bck` [eb] and `presence_logit` [k].
      size: Height and width of images.
      chunk: How many views are decoded at once.
      images: The observed views in [0, 1]; None where no camera stood.
    """

    decoder: Decoder
    latents: Latents
    size: tuple[int, int]
    chunk: int
    images: Float[np.ndarray, "m h w 3"] | None = None

    @property
    def presence(self) -> Float[np.ndarray, " k"]:
        """How surely each slot holds an object."""
        return np.asarray(self.latents.presence)

    @property
    def objects(self) -> list[int]:
        """Slots that hold an object."""
        return np.flatnonzero(self.presence >= parts.PRESENT).tolist()

    @property
    def count(self) -> int:
        """Number of objects."""
        return len(self.objects)

    @functools.cached_property
    def layers(self) -> Layers:
        """What the networks say of every view and slot, before anything is composed."""
        return self._of_all_views(
            lambda views: self.decoder.decode(self._seen(views), self.size)
        )

    @functools.cached_property
    def composition(self) -> Scene:
        """All arrays of the composed scene, in the model's range of [-1, 1]."""
        return self._compose(self.layers)

    @property
    def reconstruction(self) -> Float[np.ndarray, "m h w 3"]:
        """The views put together again, in [0, 1]."""
        return _unit(self.composition.recon)

    @property
    def masks(self) -> Float[np.ndarray, "m k1 h w"]:
        """Visible share of every slot at each pixel, the background last."""
        background = np.asarray(self.composition.mask_bck)[:, None]
        return np.concatenate([self.composition.mask_obj, background], axis=1)

    @property
    def segmentation(self) -> Int[np.ndarray, "m h w"]:
        """The slot that each pixel shows most of; k is the background."""
        return self.masks.argmax(axis=1)

    @property
    def shapes(self) -> Float[np.ndarray, "m k h w"]:
        """Complete shapes, also where others hide them, times presence."""
        return np.asarray(self.composition.shape) * self.presence[:, None, None]

    @property
    def appearance(self) -> Float[np.ndarray, "m k h w 3"]:
        """Colours of each object in [0, 1]; meant only inside its shape."""
        return _unit(self.composition.appearance)

    @property
    def background(self) -> Float[np.ndarray, "m h w 3"]:
        """What lies behind all objects, without shadows, in [0, 1]."""
        return _unit(self.composition.background_imp)

    @property
    def shadows(self) -> Float[np.ndarray, "m k h w"] | None:
        """Share of the light that each object alone takes from the background.

        None for a model without shadows.
        """
        scene = self.composition
        if scene.shadow_shape is None:
            return None
        dark = np.asarray(scene.shadow_shape) * (1 - np.asarray(scene.shadow_light))
        return dark * self.presence[:, None, None]

    @property
    def order(self) -> Float[np.ndarray, "m k"]:
        """Depth order: of two objects the one with the larger number is in front."""
        return np.asarray(self.composition.order)

    @property
    def ranks(self) -> Int[np.ndarray, "m k"]:
        """Place of each object from the camera, 1 nearest; 0 for an empty slot."""
        return parts.depth_ranks(self.order, self.presence)

    def render(
        self,
        views: Any = None,
        objects: Iterable[int] | None = None,
        *,
        shadows: bool = True,
        background: bool = True,
    ) -> UInt8[np.ndarray, "n h w 3"]:
        """Images of the scene, or of a part of it, from any viewpoints.

        Args:
          views: Indices of views, or viewpoint latents [n, ev] as `interpolate` and
            `sample_views` give them; by default the observed views.
          objects: Slots to show; by default all.
          shadows: Whether objects cast shadows; only shown objects do.
          background: Whether to show it; otherwise the ground is white.
        """
        if views is not None and not _are_indices(views):
            options = dict(shadows=shadows, background=background)
            return self.at(views).render(objects=objects, **options)
        scene = self if objects is None else self._only(objects)
        composed = scene.composition if background else scene._on_white()
        image = np.asarray(composed.recon)
        if not shadows:
            gap = np.asarray(composed.background_imp) - np.asarray(composed.background)
            image = image + np.asarray(composed.mask_bck)[..., None] * gap
        return grid.to_rgb(image if views is None else image[self._views(views)])

    def at(self, views: Any) -> "InferredScene":
        """The same scene from other viewpoints, given as latents [n, ev]."""
        views = jnp.asarray(views, jnp.float32)
        width = self.latents.view.shape[-1]
        if views.ndim != 2 or views.shape[1] != width or not len(views):
            raise ValueError(
                f"Viewpoint latents of this model are [n, {width}], not "
                f"{list(views.shape)}; see interpolate and sample_views."
            )
        latents = self.latents.replace(view=views)
        return dataclasses.replace(self, latents=latents, images=None)

    def interpolate(
        self, start: int, end: int, steps: int
    ) -> Float[np.ndarray, "n ev"]:
        """Viewpoint latents on the straight line between two views, ends included."""
        if steps < 2:
            raise ValueError(f"{steps} steps; use 2 or more, which include both ends.")
        first, last = np.asarray(self.latents.view)[self._views([start, end])]
        share = np.linspace(0, 1, steps, dtype=np.float32)[:, None]
        return (1 - share) * first + share * last

    def sample_views(self, num: int, seed: int = 0) -> Float[np.ndarray, "n ev"]:
        """Viewpoint latents drawn from the prior, a standard normal distribution."""
        if num < 1:
            raise ValueError(f"{num} viewpoints; use 1 or more.")
        shape = (num, self.latents.view.shape[-1])
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    def remove(self, objects: Iterable[int]) -> "InferredScene":
        """The scene without some objects and their shadows; the slots stay, empty."""
        gone = self._slots(objects)
        return self._only(k for k in range(len(self.presence)) if not gone[k])

    def insert(self, other: "InferredScene", slot: int) -> "InferredScene":
        """The scene with an object of another one, in a further slot, the last.

        The object keeps its place in its own scene's world.
        """
        if other.decoder is not self.decoder:
            raise ValueError(
                "Both scenes must come from the same loaded weights; latents of other "
                "weights mean something else."
            )
        chosen = int(np.flatnonzero(other._slots([slot]))[0])
        ours, theirs = self.latents, other.latents
        latents = ours.replace(
            obj=jnp.concatenate([ours.obj, theirs.obj[chosen][None]]),
            presence_logit=jnp.append(
                ours.presence_logit, theirs.presence_logit[chosen]
            ),
        )
        return dataclasses.replace(self, latents=latents)

    def decomposition(self) -> grid.Picture:
        """The paper's figure of the scene, as an image to show or save."""
        shown = self.reconstruction if self.images is None else self.images
        return parts.decomposition(2 * shown - 1, self.composition, self.presence)

    def _only(self, objects: Iterable[int]) -> "InferredScene":
        kept = self._slots(objects)
        logit = jnp.where(kept, self.latents.presence_logit, -jnp.inf)
        scene = dataclasses.replace(
            self, latents=self.latents.replace(presence_logit=logit)
        )
        # Layers do not depend on presence, so they need not be decoded again.
        scene.__dict__["layers"] = self.layers
        return scene

    def _slots(self, objects: Iterable[int]) -> Bool[np.ndarray, " k"]:
        """Which slots are listed."""
        listed, num = list(objects), len(self.presence)
        wrong = [k for k in listed if not 0 <= k < num]
        if wrong:
            raise ValueError(f"There are no slots {wrong}; use 0 to {num - 1}.")
        return np.isin(np.arange(num), listed)

    def _views(self, views: Any) -> Int[np.ndarray, " n"]:
        num = len(self.latents.view)
        listed = np.atleast_1d(np.asarray(views, np.int64))
        wrong = [int(i) for i in listed if not -num <= i < num]
        if wrong:
            raise ValueError(f"There are no views {wrong}; use 0 to {num - 1}.")
        return listed

    def _compose(self, layers: Layers) -> Scene:
        def program(views: chunks.Rows) -> Scene:
            return self.decoder.compose(chunks.take(layers, views), self._seen(views))

        return self._of_all_views(program)

    def _of_all_views(self, program: Callable[[chunks.Rows], chunks.Tree]) -> Any:
        return chunks.run(program, len(self.latents.view), self.chunk)

    def _on_white(self) -> Scene:
        white = jnp.ones_like(self.layers.background)
        return self._compose(self.layers.replace(background=white))

    def _seen(self, views: chunks.Rows) -> Latents:
        return self.latents.replace(view=chunks.take(self.latents.view, views))


def _unit(image: Float[jax.Array, "*s"]) -> Float[np.ndarray, "*s"]:
    """From [-1, 1] to [0, 1], clipped."""
    return np.clip((np.asarray(image) + 1) / 2, 0, 1)


def _are_indices(views: Any) -> bool:
    array = np.asarray(views)
    return array.ndim < 2 and np.issubdtype(array.dtype, np.integer)
