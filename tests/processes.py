"""Training in processes of their own, as people start it: `python launch.py ...`."""

import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from ocloc_jax.logs import read_json_lines

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parent


_started: list[subprocess.Popen] = []
_started_at: dict[int, float] = {}


def end_all() -> None:
    """Ends what a failed test left running."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()


def start(workdir: pathlib.Path, config: str, **environment: Any) -> subprocess.Popen:
    """Starts training, a run with so many steps in each stage."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **{name: str(value) for name, value in environment.items()},
    }
    command = [sys.executable, "launch.py", f"--config=tests/tiny_config.py:{config}"]
    process = subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started.append(process)
    _started_at[process.pid] = time.time()
    return process


def finish(process: subprocess.Popen) -> str:
    """Waits until a process has done all its work; what it said."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def rows(workdir: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """What the stages have logged, without the time."""
    return {
        path.parent.name: [
            {key: value for key, value in row.items() if key != "time"}
            for row in read_json_lines(path)
        ]
        for path in workdir.glob("*/metrics.jsonl")
    }


def wait_for(process: subprocess.Popen, path: pathlib.Path, steps: int) -> None:
    """Waits until a process has added so many rows to the log of a stage."""
    since = _started_at[process.pid]
    while process.poll() is None:
        if path.exists():
            new = [row for row in read_json_lines(path) if row["time"] > since]
            if len(new) >= steps:
                return
        time.sleep(0.005)
    raise AssertionError(f"The process ended early: {process.communicate()}")
