"""Draws a contact sheet: a row of views for each scene, and their segmentation."""

import colorsys
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from tfds_builders.sources import Scene

_TILE = 96
_GAP = 4
_LABEL = 16
_VIEWS = 8

Row = tuple[str, Scene, int | None]


def draw(rows: Sequence[Row]) -> Image.Image:
    """Returns the sheet.

    Args:
      rows: Label, arrays, and index of the background (None if unknown) of each
        scene; the first eight views are drawn.
    """
    strips = [_strip(*row) for row in rows]
    width = max((strip.width for strip in strips), default=_TILE)
    height = sum(strip.height + _GAP for strip in strips) or _TILE
    sheet = Image.new("RGB", (width, height), "white")
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height + _GAP
    return sheet


def _strip(label: str, scene: Scene, background: int | None) -> Image.Image:
    lines = [scene["image"][:_VIEWS]]
    if "segment" in scene and background is not None:
        lines.append(colour_segments(scene["segment"][:_VIEWS], background))
    step = _TILE + _GAP
    text = f"{label} ({len(scene['image'])} views)"
    width = max(len(lines[0]) * step, 8 * len(text))
    strip = Image.new("RGB", (width, _LABEL + len(lines) * step), "white")
    ImageDraw.Draw(strip).text((_GAP, 2), text, fill="black")
    for row, line in enumerate(lines):
        for column, view in enumerate(line):
            tile = Image.fromarray(view).resize((_TILE, _TILE), Image.Resampling.BOX)
            strip.paste(tile, (column * step, _LABEL + row * step))
    return strip


def colour_segments(segment: np.ndarray, background: int) -> np.ndarray:
    """Gives every object a colour and the background a dark grey."""
    hues = (np.arange(256) * 0.618034) % 1  # Neighbours differ most.
    palette = np.array([colorsys.hsv_to_rgb(hue, 0.75, 1.0) for hue in hues])
    palette[background] = 0.2
    return (palette * 255).astype(np.uint8)[segment]
