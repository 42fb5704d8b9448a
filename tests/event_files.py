"""Reads TensorBoard's event files as TensorBoard shows them."""

import pathlib
import struct
from collections.abc import Iterator
from typing import Any

from tensorboardX.proto import event_pb2


def shown(directory: pathlib.Path) -> dict[str, list[tuple[int, Any]]]:
    """(step, value) of every tag, in the order of writing.

    The start of a session at a step hides what earlier ones wrote from there on.
    """
    kept: list[Any] = []
    for event in _events(directory):
        if event.session_log.status == event_pb2.SessionLog.START:
            kept = [e for e in kept if e.step < event.step]
        kept.append(event)
    found: dict[str, list[tuple[int, Any]]] = {}
    for event in kept:
        for value in event.summary.value:
            item = value.image if value.HasField("image") else value.simple_value
            found.setdefault(value.tag, []).append((event.step, item))
    return found


def _events(directory: pathlib.Path) -> Iterator[Any]:
    for path in sorted(directory.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            # A record: its length, a checksum, the event, and another checksum.
            (length,) = struct.unpack_from("<Q", content, at)
            yield event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
            at += length + 16
