"""Pictures as PNG, in memory and on disk."""

import io
import os
import pathlib

import numpy as np
from jaxtyping import UInt8


def encode(picture: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """The bytes of a PNG file; the same picture always gives the same bytes."""
    from PIL import Image

    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise ValueError(
            f"A picture is uint8 [h, w, 3], not {picture.dtype} {picture.shape}."
        )
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def save(path: str | os.PathLike, picture: UInt8[np.ndarray, "h w 3"]) -> None:
    """Writes a PNG and the folders above it; a reader never sees half a file.

    Args:
      path: Ends in `.png`. A picture that is there already is replaced.
      picture: What the functions of this package return.
    """
    path = check_path(path)
    data = encode(picture)
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


def check_path(path: str | os.PathLike) -> pathlib.Path:
    """Stops before a picture is computed that could not be saved under this name."""
    path = pathlib.Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"{path}: pictures are saved as PNG; end the name in .png.")
    return path
