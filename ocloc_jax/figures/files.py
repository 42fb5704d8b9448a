"""Pictures as PNG and as animations, in memory and on disk."""

import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

Frames = Sequence[UInt8[np.ndarray, "_ _ 3"]]
ANIMATIONS = (".gif", ".webp")
_KEPT = 32  # colours of a GIF that are exact


def encode(picture: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """The bytes of a PNG file; the same picture always gives the same bytes."""
    buffer = io.BytesIO()
    _image(picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def save(path: str | os.PathLike, picture: UInt8[np.ndarray, "h w 3"]) -> None:
    """Writes a PNG and the folders above it; a reader never sees half a file.

    Args:
      path: Ends in `.png`. A picture that is there already is replaced.
      picture: What the functions of this package return.
    """
    write(check_path(path), encode(picture))


def encode_animation(frames: Frames, suffix: str, fps: int = 12) -> bytes:
    """The bytes of an animation that repeats for ever.

    Args:
      frames: Pictures of one size.
      suffix: `.gif`, which knows 256 colours, or `.webp`, which keeps all of them.
      fps: Frames in a second.
    """
    if len({frame.shape for frame in frames}) != 1:
        shapes = sorted({frame.shape for frame in frames})
        raise ValueError(f"An animation has frames of one size, not {shapes}.")
    images = [_image(frame) for frame in frames]
    options: dict[str, Any] = dict(format="WEBP", lossless=True)
    if suffix == ".gif":
        images, options = _share_palette(images), dict(format="GIF", optimize=False)
    options |= dict(save_all=True, append_images=images[1:], loop=0)
    buffer = io.BytesIO()
    images[0].save(buffer, duration=round(1000 / fps), **options)
    return buffer.getvalue()


def save_animation(path: str | os.PathLike, frames: Frames, fps: int = 12) -> None:
    """Writes a GIF or a WebP, by the end of the name; one that is there is replaced."""
    path = check_path(path, ANIMATIONS)
    write(path, encode_animation(frames, path.suffix.lower(), fps))


def write(path: pathlib.Path, data: bytes) -> None:
    """Writes a file and the folders above it; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_path(
    path: str | os.PathLike, suffixes: Sequence[str] = (".png",)
) -> pathlib.Path:
    """Stops before a picture is computed that could not be saved under this name."""
    path = pathlib.Path(path)
    if path.suffix.lower() not in suffixes:
        kinds = " or ".join(suffix[1:].upper() for suffix in suffixes)
        raise ValueError(
            f"{path}: saved as {kinds} only; end the name in {' or '.join(suffixes)}."
        )
    return path


def _image(picture: np.ndarray) -> Any:
    from PIL import Image

    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise ValueError(
            f"A picture is uint8 [h, w, 3], not {picture.dtype} {picture.shape}."
        )
    return Image.fromarray(np.ascontiguousarray(picture))


def _share_palette(images: list[Any]) -> list[Any]:
    """The same 256 colours in all frames, so that what stands still does not flicker.

    The most frequent ones are kept as they are: ground, text, segments. The others
    share the rest by how far they lie apart, or shades of grey would take it all.
    """
    from PIL import Image
    from scipy import spatial

    pixels = np.stack([np.asarray(image) for image in images]).astype(np.uint32)
    codes = pixels @ np.uint32([1 << 16, 1 << 8, 1])
    counts = np.bincount(codes.reshape(-1))
    occurring = np.flatnonzero(counts)
    colours = _colours(occurring)
    kept = occurring[np.argsort(-counts[occurring], kind="stable")][:_KEPT]
    apart = Image.Quantize.MAXCOVERAGE
    chosen = Image.fromarray(colours[None]).quantize(256 - _KEPT, apart)
    others = np.array(chosen.getpalette(), np.uint8).reshape(-1, 3)[: 256 - _KEPT]
    palette = np.concatenate([_colours(kept), others])
    table = np.zeros(len(counts), np.uint8)
    table[occurring] = spatial.KDTree(palette).query(colours)[1]
    reduced = [Image.fromarray(frame) for frame in table[codes]]
    for image in reduced:
        image.putpalette(palette.tobytes())
    return reduced


def _colours(codes: np.ndarray) -> UInt8[np.ndarray, "n 3"]:
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], -1).astype(np.uint8)
