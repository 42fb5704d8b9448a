"""The paper's figure: a scene taken apart, one row for each viewpoint."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from ocloc_jax.figures import grid
from ocloc_jax.figures.grid import AnyArray, Label, Picture
from ocloc_jax.models.compose import Scene

PRESENT = 0.5  # as in the reported number of objects
_SQUARE = 8  # of the checkerboard, in pixels of the figure


class Column(NamedTuple):
    """A label, and an image of every viewpoint."""

    label: Label
    tiles: Shaped[np.ndarray, "m _ _ 3"] | list[Picture]


class Panel(NamedTuple):
    """Columns under one title."""

    title: str
    columns: list[Column]


def decomposition(
    images: Float[AnyArray, "m h w 3"], scene: Scene, presence: Float[AnyArray, " k"]
) -> Picture:
    """Draws everything a scene is composed of.

    Args:
      images: The views that were observed, in [-1, 1].
      scene: What the model made of them: one scene, no batch axis.
      presence: Of each slot; those below one half are drawn faded.
    """
    return draw(panels(images, scene, presence))


def draw(panels: Sequence[Panel]) -> Picture:
    """Puts panels side by side, a row for each viewpoint."""
    names = [f"view {i + 1}" for i in range(len(panels[0].columns[0].tiles))]
    pictures = []
    for panel in panels:
        rows = list(zip(*(column.tiles for column in panel.columns), strict=True))
        heads = [column.label for column in panel.columns]
        pictures.append(grid.strip(rows, names, heads, panel.title))
        names = [""] * len(names)  # only once, at the left
    return grid.beside(pictures)


def panels(
    images: Float[AnyArray, "m h w 3"], scene: Scene, presence: Float[AnyArray, " k"]
) -> list[Panel]:
    """The columns of the figure, so that others can arrange them differently."""
    presence = np.asarray(presence, np.float32)
    _check(np.shape(images), scene, presence)
    columns = {
        "input": images,
        "reconstruction": scene.recon,
        "segmentation": segmentation(scene),
        "background\nalone": scene.background_imp,
    }
    if scene.shadow_shape is not None:
        columns["background\nwith shadows"] = scene.background
    whole = [Column(Label(k), grid.to_rgb(v)) for k, v in columns.items()]
    drawn = [
        Panel("Scene", whole),
        Panel(
            "Complete objects (1 = nearest)",
            _objects(scene, presence),
        ),
    ]
    if scene.shadow_shape is not None:
        drawn.append(Panel("Shadows", _shadows(scene, presence)))
    return drawn


def segmentation(scene: Scene) -> UInt8[np.ndarray, "*b h w 3"]:
    """The strongest layer of every pixel in its colour; the background is grey."""
    masks = np.asarray(scene.mask_obj, np.float32)
    background = np.asarray(scene.mask_bck, np.float32)[..., None, :, :]
    # The background is last, so that it wins only if larger than every object.
    layer = np.concatenate([masks, background], axis=-3).argmax(axis=-3)
    colours = [*grid.object_colours(masks.shape[-3]), grid.BACKGROUND_COLOUR]
    return np.array(colours, np.uint8)[layer]


def depth_ranks(
    order: Float[np.ndarray, "*b k"], presence: Float[np.ndarray, " k"]
) -> Int[np.ndarray, "*b k"]:
    """Place of every present object from the camera, 1 nearest; 0 if it is absent.

    Objects of equal order share a place, since neither occludes the other.
    """
    present = presence >= PRESENT
    nearer = (order[..., None, :] > order[..., :, None]) & present
    return np.where(present, 1 + nearer.sum(axis=-1), 0)


def _objects(scene: Scene, presence: Float[np.ndarray, " k"]) -> list[Column]:
    ranks = depth_ranks(np.asarray(scene.order, np.float32), presence)
    columns = []
    for k, label in enumerate(labels("object", presence)):
        tiles = []
        for m in range(ranks.shape[0]):
            alpha = np.asarray(scene.shape[m, k], np.float32) * presence[k]
            tile = _on_checkerboard(np.asarray(scene.appearance[m, k]), alpha)
            number = str(ranks[m, k])
            tiles.append(grid.fade(tile) if label.faded else grid.stamp(tile, number))
        label = label._replace(text=f"{label.text}\npresence {presence[k]:.2f}")
        columns.append(Column(label, tiles))
    return columns


def _shadows(scene: Scene, presence: Float[np.ndarray, " k"]) -> list[Column]:
    """What each object takes from the light of a white ground, alone on it."""
    shape = np.asarray(scene.shadow_shape, np.float32)
    light = 1 - shape * presence[:, None, None] * (1 - np.asarray(scene.shadow_light))
    grey = np.broadcast_to(light[..., None], (*light.shape, 3))
    tiles = np.moveaxis(grid.to_rgb(2 * grey - 1), 1, 0)
    return [
        Column(label, list(map(grid.fade, tile)) if label.faded else tile)
        for label, tile in zip(
            labels("shadow of\nobject", presence), tiles, strict=True
        )
    ]


def labels(word: str, presence: Float[np.ndarray, " k"]) -> list[Label]:
    """A label in the colour of every slot; that of an empty one is faded."""
    colours = grid.object_colours(len(presence)).tolist()
    return [
        Label(f"{word} {k + 1}", tuple(colour), not present >= PRESENT)
        for k, (colour, present) in enumerate(zip(colours, presence, strict=True))
    ]


def _on_checkerboard(
    appearance: Float[np.ndarray, "h w 3"], alpha: Float[np.ndarray, "h w"]
) -> Picture:
    colour = grid.enlarge(np.clip(appearance, -1, 1))
    alpha = grid.enlarge(alpha)[..., None]
    y, x = np.ogrid[: colour.shape[0], : colour.shape[1]]
    dark = (y // _SQUARE + x // _SQUARE) % 2 == 1
    board = np.where(dark, np.float32(0.6), np.float32(1))[..., None]
    return grid.to_rgb(alpha * colour + (1 - alpha) * board)


def _check(
    images: tuple[int, ...], scene: Scene, presence: Float[np.ndarray, " k"]
) -> None:
    masks = (images[0], len(presence), *images[1:3])
    expected = {"recon": images, "mask_obj": masks, "order": masks[:2]}
    for name, shape in expected.items():
        if np.shape(getattr(scene, name)) != shape:
            raise ValueError(
                f"Images {images} and {len(presence)} presences need a scene whose "
                f"{name} is {shape}, but it is {np.shape(getattr(scene, name))}. Pass "
                "one scene, without a batch axis."
            )
