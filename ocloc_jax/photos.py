"""Views of one scene as an array, from arrays, pictures or files."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

Views = Float[np.ndarray, "m h w 3"]


def as_views(images: Any, size: int | None = None) -> Views:
    """Views in [0, 1], from whatever a person has of them.

    Args:
      images: `[views, height, width, 3]`, uint8 or floating point in [0, 1]; or a list
        of PIL images or names of files, which are turned upright.
      size: Cuts the middle square out of pictures and files and resizes it to this
        many pixels a side. Arrays are never resized.

    Raises:
      ValueError: They are something else; the message says what to do.
    """
    if _is_file(images):
        raise ValueError(
            f"{str(images)!r} is one name; pass a list, one picture for each view."
        )
    if isinstance(images, list | tuple):
        images = _stack([_read(x, size) if _is_picture(x) else x for x in images])
    elif size is not None:
        raise ValueError("size is for pictures and files; resize arrays beforehand.")
    return _from_array(np.asarray(images))


def _is_file(image: Any) -> bool:
    return isinstance(image, str | os.PathLike)


def _is_picture(image: Any) -> bool:
    return _is_file(image) or hasattr(image, "convert")


def _stack(views: Sequence[Any]) -> np.ndarray:
    shapes = [list(np.shape(view)) for view in views]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            f"Views of a scene share a size, but these are {shapes}; pass size=... to "
            "cut and resize pictures and files."
        )
    return np.stack(views) if views else np.empty((0,))


def _read(picture: Any, size: int | None) -> np.ndarray:
    from PIL import Image, ImageOps

    if hasattr(picture, "convert"):
        upright = ImageOps.exif_transpose(picture)
    else:
        try:
            with Image.open(picture) as opened:
                upright = ImageOps.exif_transpose(opened)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"{picture}: cannot be read: {error}") from error
    rgb = upright.convert("RGB")
    if size is not None:
        rgb = ImageOps.fit(rgb, (size, size), Image.Resampling.LANCZOS)
    return np.asarray(rgb)


def _from_array(images: np.ndarray) -> Views:
    _check_shape(images.shape)
    if images.dtype == np.uint8:
        return images.astype(np.float32) / 255
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(
            f"Images are uint8 or floating point in [0, 1], not {images.dtype}; divide "
            "by the value of white (65535 for 16 bits)."
        )
    low, high = images.min(), images.max()
    if not (low >= 0 and high <= 1):  # also if there is a nan
        raise ValueError(
            f"Floating-point images are in [0, 1], but these go from {low:g} to "
            f"{high:g}; map them there, such as (x + 1) / 2 or x / 255."
        )
    return images.astype(np.float32)


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) == 4 and shape[-1] == 3 and 0 not in shape:
        return
    advice = "one axis each for views, rows, columns and the three colours"
    if len(shape) == 3 and shape[-1] == 3:
        advice = "for a single view pass images[None]"
    elif len(shape) == 5:
        advice = "pass one scene at a time"
    elif len(shape) == 4 and shape[1] == 3:
        advice = "colours come last: numpy.moveaxis(images, 1, -1)"
    elif len(shape) == 4 and shape[-1] == 4:
        advice = "leave out the alpha channel: images[..., :3]"
    elif len(shape) == 4 and shape[-1] == 1:
        advice = "repeat grey as three colours: images.repeat(3, axis=-1)"
    raise ValueError(
        f"Images of a scene are [views, height, width, 3], not {list(shape)}; {advice}."
    )
