"""Finds meshes and environment maps in folders of any layout."""

import dataclasses
import functools
import os
import pathlib
import struct

from tfds_builders.sources import DataError, digest

MESHES = (".obj", ".glb", ".gltf")
ENVIRONMENTS = (".hdr", ".exr", ".png", ".jpg")
_HEAD = 1 << 16  # Enough of an .obj to meet its first vertex.


@dataclasses.dataclass(frozen=True)
class Library:
    """The usable files of a folder.

    Attributes:
      paths: Meshes or environment maps, ordered by their path inside the folder.
      fingerprint: Changes when any file of the folder does, textures included.
    """

    paths: tuple[str, ...]
    fingerprint: str


@functools.cache
def find_meshes(folder: str) -> Library:
    """Returns all meshes below a folder; a file that cannot be one is named."""
    library = _find(folder, MESHES, "meshes")
    for path in library.paths:
        _check_mesh(pathlib.Path(path))
    return library


@functools.cache
def find_environments(folder: str) -> Library:
    """Returns all environment maps (equirectangular panoramas) below a folder."""
    return _find(folder, ENVIRONMENTS, "environments")


def _find(folder: str, endings: tuple[str, ...], what: str) -> Library:
    root = pathlib.Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise DataError(f"{what}: {root} is not a folder")
    paths = sorted(
        pathlib.Path(where, name)
        for where, _, names in os.walk(root, followlinks=True)
        for name in names
        if not name.startswith(".")  # Such as ._model.obj, which is no mesh.
    )
    found = tuple(str(path) for path in paths if path.suffix.lower() in endings)
    if not found:
        raise DataError(f"{what}: no {', '.join(endings)} file in {root} or below it")
    stats = [(path.relative_to(root), path.stat()) for path in paths if path.exists()]
    return Library(found, digest([(n, s.st_size, s.st_mtime_ns) for n, s in stats]))


def _check_mesh(path: pathlib.Path) -> None:
    """Finds empty, cut off and mislabelled files before hours of rendering do."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix.lower() == ".glb":
        good = _is_whole_glb(head, path.stat().st_size)
    elif path.suffix.lower() == ".obj":
        # A longer file may open with a long comment: leave that to Blender.
        good = b"\nv " in b"\n" + head or len(head) == _HEAD
    else:
        good = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    if not good:
        raise DataError(
            f"{path}: not a whole {path.suffix} mesh; repair or remove the file"
        )


def _is_whole_glb(head: bytes, num_bytes: int) -> bool:
    if len(head) < 12:
        return False
    magic, _, length = struct.unpack_from("<4sII", head)
    return magic == b"glTF" and length <= num_bytes
