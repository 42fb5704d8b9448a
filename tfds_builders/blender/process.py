"""Runs Blender as a process of its own and hands it scenes.

The `bpy` wheel needs one certain version of Python and a NumPy older than JAX does, so
it lives in an environment of its own; and a crash of Blender then ends only Blender.
"""

import atexit
import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfds_builders.sources import DataError

VARIABLE = "BLENDER_PYTHON"
_WORKER = pathlib.Path(__file__).with_name("worker.py")
_INSTALL = (
    "install it in a Python 3.11 environment of its own, `python3.11 -m venv blender; "
    f"blender/bin/pip install bpy==5.0.1`, and set {VARIABLE}=blender/bin/python"
)


class Blender:
    """A running Blender."""

    def __init__(self, python: str):
        """Starts Blender with the Python that has `bpy`."""
        self._folder = tempfile.TemporaryDirectory(prefix="blender_")
        self._log = pathlib.Path(self._folder.name) / "log.txt"
        # What Blender writes by itself goes away with the folder.
        folders = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self._folder.name)
        try:
            with self._log.open("w") as log:
                self._process = subprocess.Popen(
                    [python, str(_WORKER), self._folder.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, **folders},
                    text=True,
                )
        except OSError as error:
            raise DataError(
                f"{VARIABLE}: {python} cannot be run ({error.strerror})"
            ) from error
        greeting = self._read("Blender did not start")
        if "missing" in greeting:
            raise DataError(
                f"{python} cannot import bpy ({greeting['missing']}); {_INSTALL}"
            )
        self.version = greeting["blender"]

    def render(self, job: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Renders the scene of `layout.plan`, with the settings that worker needs."""
        output = pathlib.Path(self._folder.name) / "scene.npz"
        with contextlib.suppress(BrokenPipeError):  # The log says why.
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        answer = self._read("Blender died of these meshes: " + _list(job["meshes"]))
        if "error" in answer:
            raise DataError(answer["error"])
        with np.load(output) as arrays:
            return dict(arrays)

    def _read(self, otherwise: str) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        words = [x for x in self._log.read_text(errors="replace").splitlines() if x]
        last = words[-1] if words else f"exit status {self._process.returncode}"
        raise DataError(f"{otherwise} ({last})")

    def alive(self) -> bool:
        """Whether it can render."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it, whatever it is doing."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def _list(meshes: list[str]) -> str:
    return ", ".join(dict.fromkeys(meshes)) or "none"


_lock = threading.Lock()
_running: Blender | None = None


def render(job: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Renders a scene in the Blender of this process."""
    with _lock:  # Apache Beam may call from several threads.
        return _blender().render({**job, "threads": _threads()})


@functools.cache
def version() -> str:
    """Version of Blender; says how to install it if it is missing."""
    with _lock:
        return _blender().version


def _blender() -> Blender:
    global _running
    if _running is None or not _running.alive():
        close()
        _running = Blender(os.environ.get(VARIABLE) or sys.executable)
    return _running


@atexit.register
def close() -> None:
    """Ends the Blender of this process."""
    global _running
    running, _running = _running, None
    if running is not None:
        running.close()


def _threads() -> int:
    """One in each process of a pool, all where there is no pool."""
    return 0 if multiprocessing.parent_process() is None else 1
