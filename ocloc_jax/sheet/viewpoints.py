"""Scenes along a path of viewpoints, through those that photographs were taken from."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt8

from ocloc_jax import data, inference
from ocloc_jax.models import compose
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.schedules import Coefficients

Images = UInt8[np.ndarray, "m h w 3"]
_FIELDS = (
    *("recon", "background_imp", "appearance", "shape", "order"),
    *("shadow_shape", "shadow_light"),
)


@dataclasses.dataclass(frozen=True)
class Walk:
    """One scene seen from `p` viewpoints, and what each picture is composed of.

    Attributes:
      images: The photographs, in the order in which the path passes them.
      knots: Where on the path each photograph was taken; all else is imagined.
      presence: Of each object.
      recon: The model's own pictures, to check against; in [-1, 1] as all pictures.
      background: Without shadows.
      appearance: Of each object.
      shape: Complete shape of each object, without presence.
      order: Depth order; the larger one occludes the smaller one.
      shadow_shape: None in a model without shadows, as is the next one.
      shadow_light: What a shadow lets pass.
      ordered_shadows: Whether shadows occlude each other by depth order (the model's
        mode "paper") or are mixed by strength ("released").
    """

    images: Images
    knots: Int[np.ndarray, " m"]
    presence: Float[np.ndarray, " k"]
    recon: Float[np.ndarray, "p h w 3"]
    background: Float[np.ndarray, "p h w 3"]
    appearance: Float[np.ndarray, "p k h w 3"]
    shape: Float[np.ndarray, "p k h w"]
    order: Float[np.ndarray, "p k"]
    shadow_shape: Float[np.ndarray, "p k h w"] | None = None
    shadow_light: Float[np.ndarray, "p k h w"] | None = None
    ordered_shadows: bool = False


def walks(
    model: Ocloc,
    params: PyTree,
    scenes: Sequence[Images],
    *,
    num_slots: int,
    steps: int = 8,
    seed: int = 0,
) -> Iterator[Walk]:
    """Infers each scene from all of its photographs and walks past them.

    Args:
      model: Any; its programs are compiled once for scenes of one size.
      params: Of the model.
      scenes: Photographs of each scene, in any order.
      num_slots: K.
      steps: From one photograph to the next; all but the last are imagined.
      seed: Of the initial slots.
    """
    if num_slots < 1 or steps < 1:
        raise ValueError(f"{num_slots} slots, {steps} steps; use 1 or more of each.")
    find, look = _programs(model, num_slots)
    for i, images in enumerate(scenes):
        key = jax.random.fold_in(jax.random.key(seed), i)
        found = find(params, images, key)
        order = shortest_way(np.asarray(found.view))
        path, knots = interpolate(np.asarray(found.view)[order], steps)
        # One viewpoint at a time: memory then does not grow with the path on a device.
        seen = [look(params, found, view[None], images.shape[1:3]) for view in path]
        fields = {k: np.concatenate([one[k] for one in seen]) for k in seen[0]}
        yield Walk(
            images=images[order],
            knots=knots,
            presence=np.asarray(found.presence),
            background=fields.pop("background_imp"),
            ordered_shadows=model.mode == "paper",
            **fields,
        )


def _programs(model: Ocloc, num_slots: int) -> tuple[Callable, Callable]:
    """Photographs to latents, and latents of one viewpoint to what is seen there."""

    @jax.jit
    def find(params: PyTree, images: Array, key: Array) -> Latents:
        images = data.to_model_range(images)[None]
        found, _ = inference.infer(model, params, images, key, num_slots)
        return jax.tree.map(lambda x: x[0], found)

    def look(params: PyTree, found: Latents, view: Array, size: tuple) -> PyTree:
        found = found.replace(view=view)
        layers = model.bind({"params": params}).decode(found, *size)
        scene = compose.compose(layers, found, Coefficients(), mode=model.mode)
        fields = {name: getattr(scene, name) for name in _FIELDS}
        return {name: x for name, x in fields.items() if x is not None}

    compiled = jax.jit(look, static_argnums=3)
    return find, lambda *args: jax.device_get(compiled(*args))


def shortest_way(views: Float[np.ndarray, "m e"]) -> Int[np.ndarray, " m"]:
    """An order of viewpoints in which neighbours are near, starting with the first.

    Photographs come in no order. From one viewpoint to the nearest that is left is
    not always the shortest way, but a short one.
    """
    way, left = [0], set(range(1, len(views)))
    while left:
        here = views[way[-1]]
        way.append(min(left, key=lambda i: (np.square(views[i] - here).sum(), i)))
        left.remove(way[-1])
    return np.array(way)


def interpolate(
    views: Float[np.ndarray, "m e"], steps: int
) -> tuple[Float[np.ndarray, "p e"], Int[np.ndarray, " m"]]:
    """A path of straight lines, and the positions on it where the views lie."""
    knots = np.arange(len(views)) * steps
    at = np.arange(knots[-1] + 1)
    path = [np.interp(at, knots, channel) for channel in views.T]
    return np.stack(path, axis=-1).astype(np.float32), knots
