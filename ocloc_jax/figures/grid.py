"""Labelled grids of images, and the colours and text that figures share."""

import colorsys
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Shaped, UInt8

Colour = tuple[int, int, int]
AnyArray = np.ndarray | jax.Array
Image = Shaped[AnyArray, "_ _ 3"]
Picture = UInt8[np.ndarray, "_ _ 3"]

BACKGROUND_COLOUR = (200, 200, 200)
NAN_COLOUR = (255, 0, 255)
TILE = 96  # smaller images are enlarged to at least this width
GAP = 4
_FADED = 0.7  # how much of the way to white
_TEXT, _FADED_TEXT, _OUTLINE = (20, 20, 20), (165, 165, 165), (175, 175, 175)
_TEXT_SIZE, _LINE, _BAR = 13, 16, 6
_OBJECT_COLOURS = (
    *[(214, 39, 40), (31, 119, 200), (44, 150, 44), (250, 190, 30)],
    *[(140, 60, 190), (25, 200, 215), (255, 120, 15), (245, 130, 190)],
    *[(130, 80, 60), (160, 220, 80), (20, 35, 115), (0, 105, 95)],
)


class Label(NamedTuple):
    """Text beside or above images.

    Attributes:
      text: Wrapped to the width of a column; may hold line breaks.
      colour: Of a bar next to the images, if they have a colour of their own.
      faded: For what is there but does not count.
    """

    text: str
    colour: Colour | None = None
    faded: bool = False


def strip(
    rows: Sequence[Sequence[Image | None]],
    row_labels: Sequence[str],
    column_labels: Sequence[str | Label],
    title: str = "",
) -> Picture:
    """Draws a labelled grid of images.

    Args:
      rows: Images of one size, uint8 or floating point in [-1, 1]; small ones are
        enlarged by a whole factor. None leaves a tile empty.
      row_labels: One for each row.
      column_labels: One for each column.
      title: Above the columns.
    """
    _check(rows, row_labels, column_labels)
    tiles = [[x if x is None else enlarge(to_rgb(x)) for x in row] for row in rows]
    height, width = _tile_size(tiles)
    labels = [Label(x) if isinstance(x, str) else x for x in column_labels]
    columns = width * len(labels) + GAP * (len(labels) - 1)
    left = max(map(_text_width, row_labels)) + GAP
    left = left + GAP if left > GAP else left
    head = _wrap(title, columns) if title else []
    names = [_wrap(label.text, width) for label in labels]
    top = _LINE * (len(head) + max(map(len, names))) + _BAR + 4 * GAP
    canvas = _Canvas(top + len(rows) * (height + GAP), left + columns + GAP)
    canvas.title(head, left, columns)
    for i, (label, lines) in enumerate(zip(labels, names, strict=True)):
        x = left + i * (width + GAP)
        canvas.header(label, lines, x, top, width)
    for j, (name, row) in enumerate(zip(row_labels, tiles, strict=True)):
        y = top + j * (height + GAP)
        canvas.text([name], GAP, y + (height - _LINE) // 2)
        for i, tile in enumerate(row):
            if tile is not None:
                canvas.tile(tile, left + i * (width + GAP), y)
    return canvas.picture()


def beside(pictures: Sequence[Picture], gap: int = 4 * GAP) -> Picture:
    """Puts pictures next to each other, their lower edges in line."""
    height = max(len(picture) for picture in pictures)
    columns = []
    for picture in pictures:
        above = ((height - len(picture), 0), (0, gap), (0, 0))
        columns.append(np.pad(picture, above, constant_values=255))
    return np.concatenate(columns, axis=1)[:, :-gap]


def to_rgb(image: Shaped[AnyArray, "*b 3"]) -> UInt8[np.ndarray, "*b 3"]:
    """Images in [-1, 1] as bytes, clipped; pixels that are nan stand out."""
    image = np.asarray(image)
    if image.dtype == np.uint8:
        return image
    if np.issubdtype(image.dtype, np.integer) or image.dtype == bool:
        raise ValueError(
            f"Images are uint8 or floating point in [-1, 1], not {image.dtype}."
        )
    image = image.astype(np.float32)
    scaled = np.rint((np.clip(image, -1, 1) + 1) * 127.5)
    nan = np.isnan(image).any(axis=-1, keepdims=True)
    return np.where(nan, np.float32(NAN_COLOUR), scaled).astype(np.uint8)


def enlarge(image: Shaped[np.ndarray, "h w *c"]) -> Shaped[np.ndarray, "h2 w2 *c"]:
    """Repeats pixels until text fits above the image."""
    factor = zoom(image.shape[1])
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def zoom(width: int) -> int:
    """The whole number by which images of this width are enlarged."""
    return math.ceil(TILE / width)


def fade(tile: Picture) -> Picture:
    """Towards white, for what does not count."""
    return to_rgb(tile / 127.5 * (1 - _FADED) + 2 * _FADED - 1)


def object_colours(num: int) -> UInt8[np.ndarray, "k 3"]:
    """Distinct colours; that of an object does not depend on how many there are."""
    listed = list(_OBJECT_COLOURS[:num])
    for i in range(len(listed), num):
        hue = i * 0.618034 % 1  # the golden ratio never comes back to the same hue
        rgb = colorsys.hsv_to_rgb(hue, (0.95, 0.55)[i % 2], (0.6, 0.95)[i // 2 % 2])
        listed.append(tuple(round(255 * x) for x in rgb))
    return np.array(listed, np.uint8).reshape(num, 3)


def stamp(tile: Picture, text: str) -> Picture:
    """Writes a few characters into the upper left corner."""
    canvas = _Canvas.of(tile)
    size = round(_text_width(text)) + 7, _LINE + 1
    canvas.draw.rectangle((0, 0, *size), fill=_TEXT)
    canvas.draw.text((4, _LINE - 3), text, (255, 255, 255), _font(), anchor="ls")
    return canvas.picture()


class _Canvas:
    """A white picture to draw on."""

    def __init__(self, height: int, width: int):
        from PIL import Image, ImageDraw

        self.image = Image.new("RGB", (width, height), (255, 255, 255))
        self.draw = ImageDraw.Draw(self.image)

    @classmethod
    def of(cls, picture: Picture) -> "_Canvas":
        canvas = cls(*picture.shape[:2])
        canvas.paste(picture, 0, 0)
        return canvas

    def paste(self, tile: Picture, x: int, y: int) -> None:
        from PIL import Image

        self.image.paste(Image.fromarray(np.ascontiguousarray(tile)), (x, y))

    def tile(self, tile: Picture, x: int, y: int) -> None:
        """With an outline around it, since it may be as white as the ground."""
        box = (x - 1, y - 1, x + tile.shape[1], y + tile.shape[0])
        self.draw.rectangle(box, outline=_OUTLINE)
        self.paste(tile, x, y)

    def text(
        self, lines: Sequence[str], x: int, y: int, colour: Colour = _TEXT
    ) -> None:
        for i, line in enumerate(lines):
            self.draw.text((x, y + i * _LINE + 12), line, colour, _font(), anchor="ls")

    def title(self, lines: Sequence[str], x: int, width: int) -> None:
        y = GAP + len(lines) * _LINE + 1
        self.text(lines, x, GAP)
        if lines:
            self.draw.line((x, y, x + width - 1, y), _OUTLINE)

    def header(
        self, label: Label, lines: Sequence[str], x: int, top: int, width: int
    ) -> None:
        y = top - GAP - _BAR
        colour = _FADED_TEXT if label.faded else _TEXT
        self.text(lines, x, y - 2 - len(lines) * _LINE, colour)
        if label.colour is not None:
            bar = np.full((_BAR, width, 3), label.colour, np.uint8)
            self.paste(fade(bar) if label.faded else bar, x, y)

    def picture(self) -> Picture:
        return np.array(self.image)


@functools.cache
def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(_TEXT_SIZE)


def _text_width(text: str) -> int:
    return math.ceil(_font().getlength(text))


def _wrap(text: str, width: int) -> list[str]:
    """Breaks text into lines that fit; a word that does not fit is cut."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            joined = f"{line} {word}".strip()
            if _text_width(joined) > width and line:
                lines.append(line)
                joined = word
            while _text_width(joined) > width and len(joined) > 1:
                fits = [
                    n for n in range(len(joined)) if _text_width(joined[:n]) <= width
                ]
                cut = max(1, *fits)
                lines.append(joined[:cut])
                joined = joined[cut:]
            line = joined
        lines.append(line)
    return lines


def _tile_size(tiles: Sequence[Sequence[Picture | None]]) -> tuple[int, int]:
    sizes = {tile.shape[:2] for row in tiles for tile in row if tile is not None}
    if len(sizes) > 1:
        raise ValueError(f"Images of one grid share a size; these have {sizes}.")
    return sizes.pop() if sizes else (TILE, TILE)


def _check(
    rows: Sequence[Sequence[Any]], row_labels: Sequence, column_labels: Sequence
) -> None:
    if not rows or not column_labels:
        raise ValueError("A grid needs at least one row and one column.")
    if len(rows) != len(row_labels):
        raise ValueError(f"{len(rows)} rows but {len(row_labels)} row labels.")
    for i, row in enumerate(rows):
        if len(row) != len(column_labels):
            raise ValueError(
                f"Row {i} has {len(row)} images but there are {len(column_labels)} "
                "column labels; use None where an image is missing."
            )
