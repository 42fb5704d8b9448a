"""Figures and films of scenes rendered anew: edited, or from other viewpoints."""

import numpy as np
from jaxtyping import Float

from ocloc_jax.figures import grid, parts
from ocloc_jax.figures.grid import Label, Picture
from ocloc_jax.figures.parts import Column, Panel
from ocloc_jax.inferred import InferredScene

Film = list[Picture]

_FILM_TILE = 192  # a film has few tiles, so they may be larger than a figure's


def editing(
    scene: InferredScene, number: int, donor: tuple[int, InferredScene] | None
) -> Picture:
    """The scene, without each of its objects, and with each one of another scene."""
    panels = [
        Panel(f"Scene {number}", [Column(Label("input"), _input(scene)), *_seen(scene)])
    ]
    removed = parts.labels("without\nobject", scene.presence)
    panels.append(
        Panel(
            "One object removed, with its shadow",
            [Column(removed[k], scene.remove([k]).render()) for k in _shown(scene)],
        )
    )
    if donor is not None:
        other_number, other = donor
        inserted = parts.labels("with its\nobject", other.presence)
        panels.append(Panel(f"Scene {other_number}", _seen(other)))
        columns = [
            Column(inserted[k], scene.insert(other, k).render()) for k in _shown(other)
        ]
        title = f"Scene {number} with one object of scene {other_number}"
        panels.append(Panel(title, columns))
    return parts.draw(panels)


def interpolation(scene: InferredScene, steps: int) -> Picture:
    """From each view to the next, with what was observed at both ends."""
    observed, names, rows = _input(scene), [], []
    for start, end in _pairs(len(scene.latents.view)):
        between = scene.at(scene.interpolate(start, end, steps))
        rows.append([observed[start], *between.render(), observed[end]])
        rows.append([None, *parts.segmentation(between.composition), None])
        names += [f"view {start + 1} to {end + 1}", "segmentation"]
    ticks = [f"{share:.2f}" for share in np.linspace(0, 1, steps)]
    heads = ["observed\nstart", *ticks, "observed\nend"]
    title = "Viewpoints between observed ones: share of the way"
    return grid.strip(rows, names, heads, title)


def sampling(sampled: InferredScene) -> Picture:
    """The scene from viewpoints at which no camera stood."""
    rows = [
        list(sampled.render()),
        list(parts.segmentation(sampled.composition)),
        list(sampled.render(objects=())),
    ]
    names = ["rendered", "segmentation", "without objects"]
    heads = [f"sample {i + 1}" for i in range(len(rows[0]))]
    title = "The scene from viewpoints drawn from the prior"
    return grid.strip(rows, names, heads, title)


def film(scene: InferredScene, word: str, frames: int) -> Film:
    """A round trip through all viewpoints of a scene, a picture for every frame."""
    pairs = _pairs(len(scene.latents.view))
    pairs = pairs if len(pairs) > 1 else [*pairs, pairs[0][::-1]]
    legs = [scene.interpolate(*pair, frames + 1)[:-1] for pair in pairs]
    moving = scene.at(np.concatenate(legs))
    segmented = parts.segmentation(moving.composition)
    columns = [moving.render(), segmented, moving.render(objects=())]
    heads = ["rendered", "segmentation", "without objects"]
    drawn = []
    for i, tiles in enumerate(zip(*columns, strict=True)):
        start, end = pairs[i // frames]
        way = f"{i % frames / frames:.2f} of the way"
        title = f"From {word} {start + 1} to {word} {end + 1}: {way}"
        larger = [_enlarge(tile) for tile in tiles]
        drawn.append(grid.strip([larger], [""], heads, title))
    return drawn


def _pairs(num: int) -> list[tuple[int, int]]:
    """Each of so many views and the next, back to the first."""
    pairs = [(i, (i + 1) % num) for i in range(num)]
    return pairs[:1] if num == 2 else pairs


def _seen(scene: InferredScene) -> list[Column]:
    return [
        Column(Label("rendered"), scene.render()),
        Column(Label("segmentation"), parts.segmentation(scene.composition)),
    ]


def _shown(scene: InferredScene) -> list[int]:
    """The objects, or the likeliest slot of a scene without any."""
    return scene.objects or [int(scene.presence.argmax())]


def _input(scene: InferredScene) -> Float[np.ndarray, "m h w 3"]:
    if scene.images is None:
        raise ValueError("This scene was not observed; it has no input images.")
    return 2 * scene.images - 1


def _enlarge(tile: Picture) -> Picture:
    factor = max(1, _FILM_TILE // tile.shape[1])
    return tile.repeat(factor, axis=0).repeat(factor, axis=1)
