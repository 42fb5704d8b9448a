"""Several processes as one run: over loopback, with what can go wrong on the way."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import processes
import pytest
import tiny_config

from ocloc_jax import distributed, experiment, start, train
from ocloc_jax.checkpoints import Checkpoints

STEPS = 12
CONFIG = f"{STEPS},single"


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    processes.end_all()


def start_two(workdir: pathlib.Path) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    variables = dict(JAX_COORDINATOR_ADDRESS=address, JAX_NUM_PROCESSES=2)
    return [
        processes.start(workdir, CONFIG, **variables, JAX_PROCESS_ID=i) for i in (0, 1)
    ]


def test_two_processes_train_as_two_devices_do(tmp_path):
    """Although they are stopped, and find their last checkpoint damaged."""
    workdir, directory = tmp_path / "two", tmp_path / "two" / "single"
    first, second = start_two(workdir)
    processes.wait_for(first, directory / "metrics.jsonl", steps=4)
    second.send_signal(signal.SIGINT)
    messages = [process.communicate()[1] for process in (first, second)]
    stops = [re.search(r"Stopped after step (\d+) of single", m) for m in messages]
    assert all(stops), messages
    step = stops[0][1]
    assert stops[1][1] == step and 4 <= int(step) < STEPS

    damage(directory / "checkpoints" / step)
    first, second = start_two(workdir)
    out, err = first.communicate()
    assert first.returncode == 0, err
    assert "best weights" in out and f"checkpoints/{step} is damaged" in err
    assert (directory / "checkpoints" / f"corrupt-{step}-1").exists()
    # Only process 0 speaks.
    out, err = second.communicate()
    assert second.returncode == 0
    assert all(line.startswith("[Gloo]") for line in out.splitlines())
    assert "damaged" not in err and "single:" not in err

    whole = tmp_path / "one"
    processes.finish(processes.start(whole, CONFIG, JAX_NUM_CPU_DEVICES=2))
    for mine, other in zip(rows(workdir), rows(whole), strict=True):
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            np.testing.assert_allclose(value, other[key], rtol=1e-4, err_msg=key)
    for a, b in zip(*map(final_params, (workdir, whole)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def damage(checkpoint: pathlib.Path) -> None:
    every = (path for path in checkpoint.rglob("*") if path.is_file())
    largest = max(every, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def rows(workdir: pathlib.Path) -> list[dict[str, float]]:
    return processes.rows(workdir)["single"]


def final_params(workdir: pathlib.Path) -> list[jax.Array]:
    config = tiny_config.get_config(CONFIG)
    plan = experiment.make_plan(config, config.stages.single)
    optimizer = plan.make_optimizer()
    (params,) = start.fresh(experiment.make_model(config), range(1))
    like = train.create_state(params, optimizer, seed=0)
    with Checkpoints(workdir / "single" / "checkpoints") as checkpoints:
        return jax.tree.leaves(checkpoints.load(STEPS, like).params)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("127.0.0.1:1", "2", None), "JAX_PROCESS_ID.* not set"),
        (("127.0.0.1", "2", "0"), "HOST:PORT"),
        (("127.0.0.1:1", "two", "0"), "whole numbers"),
    ],
)
def test_half_a_description_is_refused(monkeypatch, values, message: str):
    for name, value in zip(distributed.VARIABLES, values, strict=True):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        distributed.initialize()


def test_alone(monkeypatch):
    assert distributed.is_main() and not distributed.any_process(False)
    assert distributed.any_process(True)
    distributed.wait("nobody")
    assert not set(distributed.VARIABLES) & set(os.environ)


@pytest.mark.parametrize("flags, count", [("", 2), ("device_count=3", 3)])
def test_a_cpu_is_split_unless_the_user_has_done_so(flags, count):
    program = (
        "from ocloc_jax import distributed; distributed.split_cpu(2); import jax; "
        "print(jax.device_count())"
    )
    flags = flags and f"--xla_force_host_platform_{flags}"
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    variables.pop("JAX_NUM_CPU_DEVICES", None)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.stdout.split() == [str(count)], done.stderr


def test_a_cpu_is_not_split_into_nothing():
    with pytest.raises(ValueError, match="cpu_devices must be 1 or more, not 0"):
        distributed.split_cpu(0)
