"""Builder configs: how the scenes are obtained, and at what scale."""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow_datasets as tfds

from tfds_builders.sources import SPLITS, DataError

# The paper's table of datasets.
NUM_SCENES = {"train": 5000, "validation": 100, "test": 100, "test_general": 100}
NUM_OBJECTS = {
    "train": (3, 6),
    "validation": (3, 6),
    "test": (3, 6),
    "test_general": (7, 10),
}


@dataclasses.dataclass(eq=False)
class MultiviewConfig(tfds.core.BuilderConfig):
    """One way to obtain the scenes, and at what scale.

    Attributes:
      kind: `released` reads the authors' file, `raytraced` and `blender` render.
      size: Height and width of the views.
      num_views: Views of each scene.
      num_scenes: Scenes of each split.
      num_objects: Smallest and largest number of objects in each split; the
        largest is the index of the background.
      seed: Seed of the whole dataset (if rendered).
      scene: Further fields of `ocloc_jax.scenes.SceneSpec` (if rendered).
      needs_meshes: Whether there is nothing to render without meshes (`blender`).
      samples: Paths that Cycles follows for each pixel (`blender`).
      up_axis: Vertical axis of .obj files, `y` or `z` (`blender`).
    """

    kind: str = "released"
    size: int = 128
    num_views: int = 60
    num_scenes: Mapping[str, int] = dataclasses.field(default_factory=NUM_SCENES.copy)
    num_objects: Mapping[str, tuple[int, int]] = dataclasses.field(
        default_factory=NUM_OBJECTS.copy
    )
    seed: int = 0
    scene: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needs_meshes: bool = False
    samples: int = 64
    up_axis: str = "y"


def released(num_views: int) -> MultiviewConfig:
    """Returns the config `released`, which every dataset has."""
    return MultiviewConfig(
        name="released",
        num_views=num_views,
        description="The scenes that the authors of the paper published.",
    )


def raytraced() -> list[MultiviewConfig]:
    """Returns the configs of the built-in ray tracer, the paper's scale first."""
    tiny = {"train": 8, "validation": 2, "test": 2, "test_general": 2}
    return [
        MultiviewConfig(
            name="raytraced_128",
            kind="raytraced",
            description="Rendered by the built-in ray tracer at the paper's scale.",
        ),
        MultiviewConfig(
            name="raytraced_64",
            kind="raytraced",
            size=64,
            num_views=16,
            num_scenes=NUM_SCENES | {"train": 2000},
            description="2000 training scenes of 16 views of 64x64, for one machine.",
        ),
        MultiviewConfig(
            name="raytraced_tiny",
            kind="raytraced",
            size=32,
            num_views=4,
            num_scenes=tiny,
            description="A few scenes of 4 views of 32x32, for tests.",
        ),
    ]


def blender(
    num_views: int, needs_meshes: bool = True, up_axis: str = "y"
) -> list[MultiviewConfig]:
    """Returns the configs that Blender renders, the paper's scale first."""
    given = "meshes" if needs_meshes else "meshes, or of CLEVR's primitives"
    shared = {"kind": "blender", "needs_meshes": needs_meshes, "up_axis": up_axis}
    return [
        MultiviewConfig(
            name="blender_128",
            num_views=num_views,
            description=f"Rendered by Blender of a folder of {given}.",
            **shared,
        ),
        MultiviewConfig(
            name="blender_tiny",
            size=32,
            num_views=2,
            num_scenes={"train": 2, "validation": 1, "test": 1, "test_general": 1},
            samples=4,
            description="A few scenes of 2 views of 32x32 by Blender, for tests.",
            **shared,
        ),
    ]


def customise(config: MultiviewConfig, **changes: Any) -> MultiviewConfig:
    """Returns the config with other values, and a name that tells them.

    Args:
      config: Where to start.
      **changes: New values; None leaves a value alone. `num_scenes` and
        `num_objects` may hold some of the splits, `scene` some of the fields.

    Raises:
      DataError: A change makes no sense for this kind of config.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    _check_kind(config, set(changes))
    for key in ("num_scenes", "num_objects", "scene"):
        if key in changes:
            changes[key] = {**getattr(config, key), **changes[key]}
    changed = {k: v for k, v in changes.items() if v != getattr(config, k)}
    _check(changed)
    if not changed:
        return config
    words = [config.name, *(_word(config, key, changed[key]) for key in changed)]
    return dataclasses.replace(config, name="_".join(words), **changed)


def _check_kind(config: MultiviewConfig, changed: set[str]) -> None:
    fixed = {"num_views", "num_scenes", "seed", "scene"} & changed
    if config.kind == "released" and fixed:
        raise DataError(
            f"config {config.name!r} reads a file: {sorted(fixed)} cannot be chosen"
        )
    check_blender(config, {"samples", "up_axis"} & changed)


def check_blender(config: MultiviewConfig, options: Collection[str]) -> None:
    """Refuses options of Blender for configs that do without it."""
    if options and config.kind != "blender":
        raise DataError(
            f"config {config.name!r} does not use Blender: {sorted(options)} cannot be "
            "chosen; take --config blender_128"
        )


def _check(changed: Mapping[str, Any]) -> None:
    for key in ("size", "num_views"):
        if changed.get(key, 1) < 1:
            raise DataError(f"{key}: {changed[key]}; expected at least 1")
    for key in ("num_scenes", "num_objects"):
        if unknown := set(changed.get(key, ())) - set(SPLITS):
            raise DataError(f"{key}: no splits {sorted(unknown)}; use {list(SPLITS)}")


def _word(config: MultiviewConfig, key: str, value: Any) -> str:
    """What a changed value adds to the name of the config, such as `views8`."""
    if isinstance(value, Mapping):
        old = getattr(config, key)
        news = [f"{k}{v}" for k, v in value.items() if old.get(k) != v]
        value = "_".join([""] * (key == "num_objects") + news)
    else:
        value = f"{key.removeprefix('num_')}{value}"
    prefix = "objects" if key == "num_objects" else ""
    return prefix + re.sub(r"[^\w.+-]+", "-", value).strip("-")
