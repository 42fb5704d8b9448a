"""Writes one shard so that a killed build can go on where it stopped.

While a shard is being made its examples go to a journal next to it; a restart keeps
every example that reached the journal whole. A finished shard appears under its name
in one step, together with a note of the SHA-256 of each example.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from array_record.python import array_record_module

from ocloc_jax import records
from tfds_builders.sources import DataError, Source

# Examples are compressed already; one per group makes random access cheap.
ARRAY_RECORD_OPTIONS = "group_size:1,uncompressed"
_HEADER = struct.Struct("<QI")  # Length and CRC-32 of an example in a journal.


@dataclasses.dataclass(frozen=True)
class Shard:
    """A run of scenes that goes into one file.

    Attributes:
      path: The finished file.
      source: Where the scenes come from.
      start: Index of the first scene.
      stop: Index after the last scene.
      size: Height and width of the views.
    """

    path: str
    source: Source
    start: int
    stop: int
    size: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class ShardNote:
    """What is known about a finished shard.

    Attributes:
      examples: SHA-256 of each example, in order.
      num_bytes: Total length of the examples.
      num_views: Smallest and largest number of views.
      keys: Entries that at least one scene has.
    """

    examples: list[str]
    num_bytes: int
    num_views: list[int]
    keys: list[str]


def write(
    shard: Shard, on_scenes: Callable[[int], None] = lambda count: None
) -> ShardNote:
    """Makes the shard, or finishes one that an earlier run began.

    Args:
      shard: What to write.
      on_scenes: Called with the number of scenes found in a journal, then with 1
        after each scene that is made.
    """
    path = pathlib.Path(shard.path)
    journal = path.with_name(path.name + ".journal")
    with _writing(path):
        file = journal.open("ab")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # An orphan of a killed build may hold it.
        examples = _resume(journal)[: shard.stop - shard.start]
        on_scenes(len(examples))
        for index in range(shard.start + len(examples), shard.stop):
            examples.append(_make_example(shard, index))
            with _writing(path):
                _append(file, examples[-1])
            on_scenes(1)
    with _writing(path):
        note = _finish(path, examples)
        journal.unlink(missing_ok=True)
    return note


@contextlib.contextmanager
def _writing(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # array_record raises the latter.
        cause = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(
            f"{path}: cannot be written ({cause}); make room or choose another "
            "--data_dir, then build again to go on from here"
        ) from error


def _make_example(shard: Shard, index: int) -> bytes:
    name, scene = shard.source.scene(index)
    try:
        example = records.encode_scene(scene, name)
    except ValueError as error:
        raise DataError(f"scene {name}: {error}") from error
    if tuple(example["size"]) != shard.size:
        have, want = ("x".join(map(str, n)) for n in (example["size"], shard.size))
        raise DataError(f"scene {name}: views of {have}, expected {want}")
    return records.canonical(_features(shard.size).serialize_example(example))


@functools.cache
def _features(size: tuple[int, int]) -> Any:
    return records.features(*size)


def _append(file, example: bytes) -> None:
    file.write(_HEADER.pack(len(example), zlib.crc32(example)))
    file.write(example)
    file.flush()


def _resume(journal: pathlib.Path) -> list[bytes]:
    """Returns the whole examples of a journal and cuts off what follows them."""
    if not journal.exists():
        return []
    examples, end, data = [], 0, journal.read_bytes()
    while len(data) >= end + _HEADER.size:
        length, checksum = _HEADER.unpack_from(data, end)
        example = data[end + _HEADER.size : end + _HEADER.size + length]
        if len(example) < length or zlib.crc32(example) != checksum:
            break
        examples.append(example)
        end += _HEADER.size + length
    os.truncate(journal, end)
    return examples


def _finish(path: pathlib.Path, examples: Sequence[bytes]) -> ShardNote:
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, examples)
    _sync(temporary)
    note = describe(examples)
    # The note goes first: a shard without one counts as unfinished.
    _note_path(path).write_text(json.dumps(dataclasses.asdict(note)))
    os.replace(temporary, path)
    return note


def write_file(path: str | os.PathLike, examples: Iterable[bytes]) -> None:
    """Writes serialised examples as they are kept everywhere in this project."""
    writer = array_record_module.ArrayRecordWriter(
        os.fspath(path), ARRAY_RECORD_OPTIONS
    )
    for example in examples:
        writer.write(example)
    writer.close()


def _sync(path: pathlib.Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _note_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".note.json")


def describe(examples: Sequence[bytes]) -> ShardNote:
    """Summarises serialised examples."""
    parsed = [records.parse(example) for example in examples]
    views = [record.num_views for record in parsed]
    keys = [key for key in records.KEYS if any(record.has(key) for record in parsed)]
    return ShardNote(
        [hashlib.sha256(example).hexdigest() for example in examples],
        sum(map(len, examples)),
        [min(views), max(views)],
        keys,
    )


def read_examples(path: str | pathlib.Path) -> Iterator[bytes]:
    """Yields the stored examples of one shard."""
    reader = array_record_module.ArrayRecordReader(str(path))
    try:
        for index in range(reader.num_records()):
            yield reader.read([index])[0]
    finally:
        reader.close()


def finished(shard: Shard) -> ShardNote | None:
    """Returns the note of a shard whose file is whole, else None.

    Every example is read back and compared with its SHA-256.
    """
    path = pathlib.Path(shard.path)
    try:
        note = ShardNote(**json.loads(_note_path(path).read_text()))
        stored = [hashlib.sha256(raw).hexdigest() for raw in read_examples(path)]
    except (OSError, ValueError, TypeError, RuntimeError, IndexError):
        return None  # Unfinished or damaged: it will be made again.
    return note if stored == note.examples else None
