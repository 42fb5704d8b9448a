"""Draws a contact sheet of ray-traced scenes to look at.

python -m ocloc_jax.scenes sheet.png [--seed 0] [--index 0] [--views 6]
"""

import argparse

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from ocloc_jax.scenes import renderer
from ocloc_jax.scenes.spec import SceneSpec

_TILE = 128
# Colours of segments; the last is the background.
_PALETTE = np.array(
    [
        *[(230, 60, 60), (60, 120, 230), (70, 180, 80), (240, 190, 50)],
        *[(150, 80, 200), (60, 200, 210), (240, 130, 40), (240, 130, 190)],
        *[(140, 100, 70), (170, 220, 90), (40, 40, 40)],
    ],
    np.uint8,
)


def row(images: UInt8[np.ndarray, "v h w 3"]) -> UInt8[np.ndarray, "H W 3"]:
    """Returns views side by side, small ones enlarged so that pixels show."""
    zoom = max(1, _TILE // images.shape[1])
    return np.concatenate(list(images.repeat(zoom, 1).repeat(zoom, 2)), axis=1)


def sheet(seed: int, index: int, num_views: int) -> UInt8[np.ndarray, "H W 3"]:
    """Returns one row for each kind of scene, and labels below the first two."""
    rows = []
    kinds = [
        {},
        {"min_objects": 7, "max_objects": 10},
        {"background": "textured"},
        {"background": "sky"},
        {"size": 64},
        {"size": 32},
    ]
    for i, kind in enumerate(kinds):
        spec = SceneSpec(num_views=num_views, **kind)
        record = renderer.render(spec, seed, index + min(i, 4))
        rows.append(row(record["image"]))
        if i < 2:
            segment = np.where(record["segment"] == spec.max_objects, 10, 0)
            segment = np.maximum(segment, record["segment"])
            rows.append(row(_PALETTE[segment]))
    return np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="PNG file to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--views", type=int, default=6)
    args = parser.parse_args()
    picture = Image.fromarray(sheet(args.seed, args.index, args.views))
    picture.save(args.out, optimize=True)


if __name__ == "__main__":
    main()
