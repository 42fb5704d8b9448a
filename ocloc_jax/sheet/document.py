"""The HTML file: a template, its style and program, and the data, all in one."""

import html
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ocloc_jax.figures import grid
from ocloc_jax.models import sizes
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.sheet import sprites
from ocloc_jax.sheet.viewpoints import Walk, walks

PROGRAM = ("compose.js", "pictures.js", "sheet.js")


def write(
    path: str | os.PathLike,
    model: Ocloc,
    params: PyTree,
    scenes: Sequence[np.ndarray],
    *,
    num_slots: int,
    steps: int = 8,
    seed: int = 0,
    names: Sequence[str] | None = None,
    note: str = "",
    overwrite: bool = False,
) -> pathlib.Path:
    """Takes scenes apart and writes a sheet of them.

    Args:
      path: Ends in `.html`.
      model: What infers and draws.
      params: Of the model.
      scenes: Photographs of each scene, uint8 [m, h, w, 3].
      num_slots: K.
      steps: From one photograph to the next on the path of viewpoints.
      seed: Of the initial slots.
      names: Of the scenes; numbers by default.
      note: A sentence on where model and scenes come from.
      overwrite: Replace a file of this name.
    """
    path = check_path(path, overwrite)
    check_scenes(model, scenes)
    found = walks(model, params, scenes, num_slots=num_slots, steps=steps, seed=seed)
    text = page(found, names or [f"Scene {i + 1}" for i in range(len(scenes))], note)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a file of this name is always whole.
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def page(scenes: Iterable[Walk], names: Sequence[str], note: str = "") -> str:
    """The sheet as one string of HTML that needs nothing else."""
    described, pictures = [], []
    for i, (walk, name) in enumerate(zip(scenes, names, strict=True)):
        packed = sprites.pack(walk)
        described.append({"name": name, **_describe(walk, packed)})
        layers = {"colours": packed.colours, "covers": packed.covers}
        tiles = {"photographs": walk.images[:, None], **layers}
        pictures += [_picture(f"{k}-{i}", v) for k, v in tiles.items()]
    most = max(len(scene["presence"]) for scene in described)
    values = {
        "scenes": described,
        "palette": grid.object_colours(most).tolist(),
        "ground": grid.BACKGROUND_COLOUR,
    }
    parts = {
        "style": _file("sheet.css"),
        "program": "\n".join(map(_file, PROGRAM)),
        "note": html.escape(note),
        "pictures": "\n".join(pictures),
        # So that no text in it can end the element it stands in.
        "values": json.dumps(values, separators=(",", ":")).replace("<", "\\u003c"),
    }
    text = _file("sheet.html")
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _describe(walk: Walk, packed: sprites.Sprites) -> dict[str, Any]:
    return {
        "height": walk.recon.shape[1],
        "width": walk.recon.shape[2],
        "positions": len(walk.recon),
        "knots": walk.knots.tolist(),
        "presence": [round(float(x), 4) for x in walk.presence],
        "ranks": packed.ranks.tolist(),
        "ranges": packed.ranges.tolist(),
        "shadows": walk.shadow_shape is not None,
        "orderedShadows": walk.ordered_shadows,
        "error": round(sprites.rounding_error(walk, packed), 2),
    }


def _picture(name: str, tiles: Any) -> str:
    address = sprites.data_uri(sprites.spread(tiles))
    return f'<img id="{name}" alt="" src="{address}">'


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def check_path(path: str | os.PathLike, overwrite: bool = False) -> pathlib.Path:
    """Stops before a sheet is computed that could not be saved under this name."""
    path = pathlib.Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: a sheet is an HTML file; end its name in .html.")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another name or remove it first.")
    return path


def check_scenes(model: Ocloc, scenes: Sequence[np.ndarray]) -> None:
    """Stops before any work at photographs that the model cannot take."""
    if not scenes:
        raise ValueError("No scenes were given; a sheet shows at least one.")
    for i, images in enumerate(scenes):
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != "uint8":
            raise ValueError(
                f"Scene {i} is {images.dtype} {list(images.shape)}; photographs of a "
                "scene are uint8 [views, height, width, 3]."
            )
        if not len(images):
            raise ValueError(f"Scene {i} has no photographs; give at least one.")
        sizes.check_image_size(model.sizes, *images.shape[1:3])
