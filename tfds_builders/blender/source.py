"""Scenes from Blender, as a source for the builders."""

import dataclasses
import functools
import hashlib
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ocloc_jax import records
from tfds_builders import raytraced
from tfds_builders.blender import files, process
from tfds_builders.sources import SPLITS, DataError, Scene

DEVICES = ("cpu", "gpu")
UP_AXES = ("y", "z")


@dataclasses.dataclass(frozen=True)
class Options:
    """What Blender needs beyond the specification of the scenes.

    Attributes:
      meshes: Folder of meshes; None stands for CLEVR's primitives.
      environments: Folder of environment maps; None for lamps and a grey ground.
      samples: Paths that Cycles follows for each pixel.
      device: `cpu` or `gpu`.
      up_axis: Vertical axis of .obj files, `y` or `z`; .glb files know theirs.
    """

    meshes: str | None = None
    environments: str | None = None
    samples: int = 64
    device: str = "cpu"
    up_axis: str = "y"

    def __post_init__(self):
        if self.samples < 1:
            raise DataError(f"samples: {self.samples}; expected at least 1")
        for name, known in (("device", DEVICES), ("up_axis", UP_AXES)):
            if getattr(self, name) not in known:
                raise DataError(f"{name}: {getattr(self, name)!r}; use one of {known}")

    def inputs(self) -> dict[str, str | None]:
        """Fingerprints of the folders, wherever they lie."""
        return {
            "meshes": self.meshes and files.find_meshes(self.meshes).fingerprint,
            "environments": self.environments
            and files.find_environments(self.environments).fingerprint,
        }


@dataclasses.dataclass(frozen=True)
class BlenderSplit(raytraced.RaytracedSplit):
    """The ray tracer's scenes, with other objects and rendered by Blender."""

    options: Options

    def scene(self, index: int) -> tuple[str, Scene]:
        """Renders one scene."""
        from tfds_builders.blender import layout  # Loads JAX.

        index, options = self.first + index, self.options
        meshes = files.find_meshes(options.meshes).paths if options.meshes else ()
        maps = options.environments
        environments = files.find_environments(maps).paths if maps else ()
        plan = layout.plan(self.spec, self.seed, index, meshes, environments)
        settings = {
            "size": self.spec.size,
            "label_side": math.isqrt(self.spec.samples),
            "samples": options.samples,
            "device": options.device,
            "up_axis": options.up_axis,
        }
        rendered = process.render(plan | settings)
        name = f"blender/seed{self.seed}/{index:08d}"
        return name, assemble(plan, rendered, self.max_objects)

    def identity(self) -> Mapping[str, Any]:
        """The specification, the files, and the code that renders them."""
        options = dataclasses.asdict(self.options) | self.options.inputs()
        code = [raytraced.code_digest(), _code_digest(), process.version()]
        return dataclasses.asdict(self) | {"options": options, "code": code}


def make_splits(
    num_scenes: Mapping[str, int],
    num_objects: Mapping[str, tuple[int, int]],
    seed: int,
    options: Options,
    **spec: Any,
) -> dict[str, BlenderSplit]:
    """Returns the sources of all splits; looks for the files and for Blender.

    Args:
      num_scenes: Scenes in each split; a split with none is left out.
      num_objects: Smallest and largest number of objects in each split.
      seed: Seed of the whole dataset.
      options: Files and settings of Blender.
      **spec: Other fields of `ocloc_jax.scenes.SceneSpec`; `samples` among them is
        the number of rays for each pixel of the labels.
    """
    raytraced.check(num_scenes, seed)
    if spec.get("background", "plain") != "plain":
        raise DataError(
            f"scene: background={spec['background']!r} is for the ray tracer; give "
            "Blender a folder of --environments"
        )
    options.inputs()
    process.version()
    return {
        split: BlenderSplit(
            raytraced.make_spec(*num_objects[split], spec),
            seed,
            SPLITS.index(split) * raytraced.SPLIT_STRIDE,
            count,
            options,
        )
        for split, count in num_scenes.items()
        if count
    }


def assemble(
    plan: Mapping[str, Any], rendered: Mapping[str, np.ndarray], max_objects: int
) -> dict[str, np.ndarray]:
    """Returns the record of a scene; labels mean what those of the ray tracer do.

    Args:
      plan: The scene, from `layout.plan`.
      rendered: `image` [v, h, w, 3], `centre` [objects, 3], and for several rays in
        each direction of a pixel: `visible` [v, h * side, w * side], the object from
        1 that each sees, and `complete` [v, objects, h * side, w * side].
      max_objects: Index of the background.
    """
    image, absent = rendered["image"], max_objects - len(plan["objects"])
    num_views, size = image.shape[:2]
    numbers = np.arange(1, max_objects + 1)[None, :, None, None]
    seen = _cells(rendered["visible"][:, None] == numbers, size).sum(axis=-1)
    complete = np.pad(rendered["complete"], ((0, 0), (0, absent), (0, 0), (0, 0)))
    coverage = _cells(complete, size).mean(axis=-1)
    overlap = (coverage >= 0.5).sum(axis=1).astype(np.uint8)
    masks = np.round(coverage * 255).astype(np.uint8)
    background = np.full((num_views, 1, size, size), 255, np.uint8)
    segment = np.where(overlap > 0, seen.argmax(axis=1), max_objects)
    return {
        "image": image,
        "segment": segment.astype(np.uint8),
        "overlap": overlap,
        "masks": np.concatenate([masks, background], axis=1),
        "order": _order(plan, rendered["centre"], max_objects),
        "camera": np.array(plan["cameras"], np.float32),
    }


def _cells(rays: np.ndarray, size: int) -> np.ndarray:
    """Gathers the rays of each pixel: [..., h * s, w * s] to [..., h, w, s * s]."""
    side = rays.shape[-1] // size
    cells = rays.reshape(*rays.shape[:-2], size, side, size, side)
    cells = np.moveaxis(cells, -3, -2)
    return cells.reshape(*cells.shape[:-2], side * side)


def _order(plan: Mapping[str, Any], centre: np.ndarray, max_objects: int) -> np.ndarray:
    eyes = np.array(plan["poses"])[:, None, :3, 3]
    order = np.full((len(eyes), max_objects), records.UNUSED_ORDER, np.float32)
    order[:, : len(centre)] = -np.linalg.norm(centre[None] - eyes, axis=-1)
    return order


@functools.cache
def _code_digest() -> str:
    files_ = sorted(pathlib.Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files_)).hexdigest()
