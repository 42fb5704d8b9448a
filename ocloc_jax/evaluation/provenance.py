"""Where results come from: code, config, weights, machine."""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

import jax
import ml_collections

_PACKAGES = ("ocloc-jax", "jax", "jaxlib", "flax", "numpy", "scipy")
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def describe(
    config: ml_collections.ConfigDict, weights: pathlib.Path
) -> dict[str, Any]:
    """What decides the numbers, and what they were computed on."""
    return {
        "weights": {"path": str(weights), "sha256": file_digest(weights)},
        "config_sha256": config_digest(config),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
    }


def file_digest(path: pathlib.Path) -> str:
    """SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def config_digest(config: ml_collections.ConfigDict) -> str:
    """SHA-256 of a config as JSON with sorted keys."""
    return hashlib.sha256(config.to_json(sort_keys=True).encode()).hexdigest()


def commit() -> str | None:
    """Of the checkout that runs, `-dirty` if its files were changed; else None."""
    here = pathlib.Path(__file__)
    # An installed copy may lie in somebody else's repository.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    options = ("--always", "--dirty", "--abbrev=40", "--exclude=*")
    return _git(here.parent, "describe", *options)


def _git(directory: pathlib.Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *command], cwd=directory, capture_output=True, text=True
        )
    except OSError:  # no git on this machine
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str | None]:
    """Of Python and of the packages that compute."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def hardware() -> dict[str, Any]:
    """Devices of JAX, and the processor."""
    return {
        "backend": jax.default_backend(),
        "device": jax.local_devices()[0].device_kind,
        "num_devices": jax.local_device_count(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
    }


def _processor() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
