"""A run that is killed and stopped again and again ends as if nothing had happened."""

import pathlib
import random
import re
import signal
import time

import jax
import jax.numpy as jnp
import processes
import pytest
import tiny_config

from ocloc_jax import experiment, start, train, weights
from ocloc_jax.checkpoints import Checkpoints

STEPS = 30
CONFIG = f"{STEPS},single,multi"
STOPS = (
    ("single", signal.SIGKILL),
    ("single", signal.SIGTERM),
    ("multi", signal.SIGKILL),
    ("multi", signal.SIGKILL),
)


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    processes.end_all()


def test_interrupted_processes_end_with_the_same_parameters(tmp_path):
    draw = random.Random(0)
    reference = processes.start(tmp_path / "whole", CONFIG)
    workdir = tmp_path / "interrupted"
    for stage, number in STOPS:
        process = processes.start(workdir, CONFIG)
        log = workdir / stage / "metrics.jsonl"
        processes.wait_for(process, log, steps=draw.randint(1, 4))
        time.sleep(draw.uniform(0, 0.1))
        process.send_signal(number)
        _, err = process.communicate()
        check_end(workdir, number, process.returncode, err)
    processes.finish(processes.start(workdir, CONFIG))
    processes.finish(reference)
    assert_same(workdir, tmp_path / "whole")


def check_end(workdir: pathlib.Path, number: int, code: int, err: str) -> None:
    """A process that may still speak says where it stopped, and has saved that step."""
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
        return
    assert code == 1 and "Traceback" not in err
    found = re.search(r"Stopped after step (\d+) of (\w+); state saved", err)
    step, stage = found.groups()
    assert (workdir / stage / "checkpoints" / step).exists()
    assert max(row["step"] for row in processes.rows(workdir)[stage]) == int(step)


def assert_same(first: pathlib.Path, second: pathlib.Path) -> None:
    """Final states, best weights and logged rows, bit by bit."""
    assert processes.rows(first) == processes.rows(second)
    config = tiny_config.get_config(CONFIG)
    model = experiment.make_model(config)
    (params,) = start.fresh(model, range(1))
    for stage in config.stages:
        plan = experiment.make_plan(config, config.stages[stage])
        optimizer = plan.make_optimizer()
        like = train.create_state(params, optimizer, seed=0)
        states = []
        for workdir in (first, second):
            with Checkpoints(workdir / stage / "checkpoints") as checkpoints:
                states.append(checkpoints.load(STEPS, like))
        best = [
            weights.load(x / stage / "best.safetensors")[1] for x in (first, second)
        ]
        for pair in (states, best):
            for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
                assert bool(jnp.array_equal(a, b))
        assert weights.note(first / stage / "best.safetensors") == weights.note(
            second / stage / "best.safetensors"
        )
