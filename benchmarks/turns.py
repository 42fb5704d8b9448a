"""Two programs that take turns: each in its own process, one step at a time.

Needs nothing but the standard library, so that either side may have an interpreter of
its own.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_STATUS, _CLEAR = (
    pathlib.Path("/proc/self/status"),
    pathlib.Path("/proc/self/clear_refs"),
)


def serve(actions: dict[str, Callable[[], Any]], facts: dict[str, Any]) -> None:
    """Does what is asked on standard input, and answers with what it took.

    "reset" forgets the peak of memory so far, that of compilation for example.
    """
    _answer(facts)
    for line in sys.stdin:
        name = line.strip()
        if name == "reset":
            _CLEAR.write_text("5")
            _answer({})
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        actions[name]()
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        _answer({"wall": seconds[0], "cpu": seconds[1], "peak": peak_memory()})


def _answer(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


def peak_memory() -> int:
    """Largest resident memory since the last reset, in bytes."""
    return _memory("VmHWM")


def resident_memory() -> int:
    """Resident memory now, in bytes."""
    return _memory("VmRSS")


def _memory(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith(name))


class Side:
    """A process that serves; `facts` is what it says of itself."""

    def __init__(self, command: list[str], **environment: str):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.facts = self._read(command)

    def ask(self, name: str) -> dict[str, float]:
        """Has one action done and returns what it took."""
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return self._read(name)

    def close(self) -> None:
        """Lets the process end."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self, what: Any) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process ended without an answer to {what}.")
        return json.loads(line)
