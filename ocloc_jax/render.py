"""`--mode=render`: the paper's figures of chosen scenes, and films between views."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

import ml_collections

from ocloc_jax import api, data, experiment, figures
from ocloc_jax.figures import files, rendered
from ocloc_jax.figures.grid import Picture
from ocloc_jax.figures.rendered import Film
from ocloc_jax.inferred import InferredScene
from ocloc_jax.weights import find


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
    yield "editing.png", rendered.editing(scene, number, donor)
    if len(scene.latents.view) > 1:
        yield "interpolation.png", rendered.interpolation(scene, options.steps)
        moving = rendered.film(scene, "view", options.frames)
        yield from ((f"interpolation{end}", moving) for end in files.ANIMATIONS)
    sampled = scene.at(scene.sample_views(options.num_samples, options.seed))
    yield "sampling.png", rendered.sampling(sampled)
    if options.num_samples > 1:
        moving = rendered.film(sampled, "sample", options.frames)
        yield from ((f"sampling{end}", moving) for end in files.ANIMATIONS)


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
