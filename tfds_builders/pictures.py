"""Reads pictures of any size and brings them to the size of the dataset."""

import contextlib
import pathlib
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageOps

from tfds_builders.sources import DataError

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})
MAX_OBJECTS = 254  # `segment` is stored in one byte, and the background needs one.


def is_picture(path: pathlib.Path) -> bool:
    """Whether the name looks like that of a picture."""
    return path.suffix.lower() in EXTENSIONS


def read(path: pathlib.Path, size: int) -> np.ndarray:
    """Returns uint8 `[size, size, 3]`: upright, the middle square, resized."""
    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        square = _middle_square(_on_white(upright))
        return np.asarray(square.resize((size, size), Image.Resampling.LANCZOS))


def read_mask(path: pathlib.Path, view: pathlib.Path, size: int) -> np.ndarray:
    """Returns uint8 `[size, size]`, the object numbers of the mask of a view."""
    with _opened(view) as image:
        expected = ImageOps.exif_transpose(image).size
    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.size != expected:
            raise DataError(
                f"{path}: {_times(upright.size)} pixels, but {view.name} has "
                f"{_times(expected)}; a mask must fit its picture"
            )
        square = _middle_square(_index_image(path, upright))
        return np.asarray(square.resize((size, size), Image.Resampling.NEAREST))


def count_objects(path: pathlib.Path) -> int:
    """Returns the largest object number of a mask."""
    with _opened(path) as image:
        most = int(np.asarray(_index_image(path, image)).max())
    if most > MAX_OBJECTS:
        raise DataError(
            f"{path}: object number {most}; at most {MAX_OBJECTS} objects are possible"
        )
    return most


def _index_image(path: pathlib.Path, image: Image.Image) -> Image.Image:
    """Checks that pixels are numbers: a palette or one grey channel."""
    if image.mode not in ("L", "P", "1", "I;16", "I"):
        raise DataError(
            f"{path}: mode {image.mode}; expected a palette or grey picture whose "
            "values number the objects from 1, with 0 for the background"
        )
    numbers = np.asarray(image)
    if numbers.max() > 255:
        raise DataError(
            f"{path}: object number {numbers.max()}; at most {MAX_OBJECTS} objects "
            "are possible"
        )
    return Image.fromarray(numbers.astype(np.uint8))


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            image.load()
            yield image
    except DataError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        cause = " ".join(str(error).split())
        raise DataError(
            f"{path}: cannot be read as a picture ({cause}); replace or remove it"
        ) from error


def _on_white(image: Image.Image) -> Image.Image:
    """Converts to RGB; what is transparent becomes white."""
    if image.mode in ("I;16", "I"):  # Pillow would clip sixteen bits at 255.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    colours = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, colours).convert("RGB")


def _middle_square(image: Image.Image) -> Image.Image:
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
