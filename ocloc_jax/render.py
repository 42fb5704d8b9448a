"""`--mode=render`: the paper's figures of chosen scenes, and films between views."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

import ml_collections
import numpy as np
from jaxtyping import Float

from ocloc_jax import api, data, experiment, figures
from ocloc_jax.figures import files, parts
from ocloc_jax.figures.grid import Label, Picture
from ocloc_jax.figures.parts import Column, Panel
from ocloc_jax.inferred import InferredScene
from ocloc_jax.weights import find

Film = list[Picture]

_FILM_TILE = 192  # a film has few tiles, so they may be larger than a figure's


@dataclasses.dataclass(frozen=True)
class Options:
    """What is drawn; `config.render` overrides it.

    Attributes:
      split: Of the dataset.
      scenes: Their indices.
      num_views: M, from the first view of a scene.
      num_slots: K.
      num_samples: Viewpoints to draw from the prior.
      steps: Images in a strip from one view to the next, both included.
      frames: Frames of a film from one view to the next.
      fps: Frames in a second.
      seed: Of initial slots and of sampled viewpoints.
    """

    split: str = "test"
    scenes: tuple[int, ...] = (0, 1, 2)
    num_views: int = 4
    num_slots: int = api.NUM_SLOTS
    num_samples: int = 8
    steps: int = 7
    frames: int = 12
    fps: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        """Fails before anything is drawn."""
        least = dict(num_slots=1, num_samples=1, steps=2, frames=1, fps=1)
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(
                    f"render.{name} is {getattr(self, name)}; use {low} or more."
                )


def run(
    config: ml_collections.ConfigDict,
    workdir: pathlib.Path,
    weights: str | pathlib.Path | None = None,
) -> pathlib.Path:
    """Draws scenes with the best weights of `workdir`, or others; the directory."""
    options = Options(**config.get("render", {}))
    path = find(weights or workdir)
    loaded = api.load(path)
    scenes = _open(config, options)
    directory = workdir / "render"
    donors = {i: _another(i, options.scenes, len(scenes)) for i in options.scenes}
    needed = {*donors, *donors.values()} - {None}
    found = {i: _infer(loaded, scenes, i, options) for i in sorted(needed)}
    for i, j in donors.items():
        donor = None if j is None else (j, found[j])
        for name, content in pictures(found[i], i, donor, options):
            _save(directory / f"scene_{i:03d}" / name, content, options.fps)
    _record(directory, path, options, found)
    return directory


def pictures(
    scene: InferredScene,
    number: int,
    donor: tuple[int, InferredScene] | None,
    options: Options,
) -> Iterator[tuple[str, Picture | Film]]:
    """Names and contents of all files of a scene, as soon as each is drawn.

    Args:
      scene: What to draw.
      number: Its index, for labels.
      donor: Another scene and its index, whose objects are put into this one.
      options: How many viewpoints and frames.
    """
    yield "decomposition.png", scene.decomposition()
    yield "editing.png", editing(scene, number, donor)
    if len(scene.latents.view) > 1:
        yield "interpolation.png", interpolation(scene, options.steps)
        moving = film(scene, "view", options.frames)
        yield from ((f"interpolation{end}", moving) for end in files.ANIMATIONS)
    sampled = scene.at(scene.sample_views(options.num_samples, options.seed))
    yield "sampling.png", sampling(sampled)
    if options.num_samples > 1:
        moving = film(sampled, "sample", options.frames)
        yield from ((f"sampling{end}", moving) for end in files.ANIMATIONS)


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
    return figures.strip(rows, names, heads, title)


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
    return figures.strip(rows, names, heads, title)


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
        drawn.append(figures.strip([larger], [""], heads, title))
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


def _open(config: ml_collections.ConfigDict, options: Options) -> data.Scenes:
    """The split to draw; what it does not hold is named before any work."""
    sizes = config.data.get("num_scenes")
    if sizes is not None and options.split not in sizes:
        raise ValueError(
            f"render.split is {options.split!r}, but data.num_scenes has only "
            f"{sorted(sizes)}."
        )
    scenes = experiment.load_scenes(config, options.split)
    wrong = [i for i in options.scenes if not 0 <= i < len(scenes)]
    if wrong or not options.scenes:
        raise ValueError(
            f"render.scenes is {options.scenes}; {options.split} has the scenes 0 to "
            f"{len(scenes) - 1}."
        )
    fewest = int(scenes.view_counts.min())
    if not 1 <= options.num_views <= fewest:
        raise ValueError(
            f"render.num_views is {options.num_views}; scenes of {options.split} have "
            f"{fewest} views."
        )
    return scenes


def _infer(
    loaded: api.Loaded, scenes: data.Scenes, number: int, options: Options
) -> InferredScene:
    views = range(options.num_views)
    images = scenes.decode(scenes[number], views, ("image",))["image"]
    return loaded.infer(images, options.num_slots, seed=options.seed)


def _another(number: int, drawn: Sequence[int], num_scenes: int) -> int | None:
    """The next of the drawn scenes, or of the split if there is only one."""
    if len(drawn) > 1:
        return drawn[(drawn.index(number) + 1) % len(drawn)]
    return None if num_scenes == 1 else (number + 1) % num_scenes


def _save(path: pathlib.Path, content: Picture | Film, fps: int) -> None:
    if isinstance(content, list):
        figures.save_animation(path, content, fps)
    else:
        figures.save(path, content)
    print(path, flush=True)


def _record(
    directory: pathlib.Path,
    weights: pathlib.Path,
    options: Options,
    found: dict[int, InferredScene],
) -> None:
    """Says beside the pictures what they were made of."""
    record = {"weights": str(weights), **dataclasses.asdict(options)}
    record["presence"] = {
        i: [round(float(p), 3) for p in scene.presence] for i, scene in found.items()
    }
    files.write(directory / "render.json", f"{json.dumps(record, indent=2)}\n".encode())
