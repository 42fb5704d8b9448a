"""Files that are whole or not there, whatever ends the program."""

import os
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def written_whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a path to write to; what was written becomes `path` at the end."""
    partial = path.with_name(path.name + ".partial")
    yield partial
    with partial.open("rb") as file:
        os.fsync(file.fileno())  # or a power cut could leave the name without content
    os.replace(partial, path)


def free_name(path: pathlib.Path) -> pathlib.Path:
    """The path with the first number behind it that is not taken."""
    number = 1
    while (found := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return found
