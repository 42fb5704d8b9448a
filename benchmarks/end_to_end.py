"""From the command to the first step, and real training beside bare steps.

python -m benchmarks.end_to_end --steps 14000

Starts the demo's second stage as a user would, in processes of their own with an empty
home: the first finds no compiled programs, the second those of the first, and each is
stopped after its first finished step. The third trains: printed are its steps per
second from the first log to the last, with all its duties (input pipeline, logs,
checkpoints, validation, figures), as a share of what the same program makes of one
batch that is always there, measured before and after. Scenes are rendered during the
first thousands of steps, and validation is compiled once: a short run shows a smaller
share. 14 000 steps are the demo's own.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from ocloc_jax import huge_pages, logs

STAGE = "multi"
BARE_STEPS = 200


def main() -> None:
    """Measures two starts and a rate, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        print(bare_rate())
        return
    with tempfile.TemporaryDirectory() as home:
        # All for as many steps: programs depend on the schedule.
        cold = first_step(home, "cold", args.steps)
        print(f"first step after {cold:.1f} s, nothing compiled before", flush=True)
        warm = first_step(home, "warm", args.steps)
        print(f"first step after {warm:.1f} s with the compilation cache", flush=True)
        before = ask_bare_rate()
        rate = train(home, "whole", args.steps)
        after = ask_bare_rate()
    print(
        f"training {rate:.2f} steps/s; bare {before:.2f} before, {after:.2f} after; "
        f"ratio {2 * rate / (before + after):.3f}"
    )


def first_step(home: str, name: str, steps: int) -> float:
    """Seconds from the command to the first finished step."""
    started = time.time()
    with start_training(home, name, steps, log_every=1) as process:
        while not (found := rows(home, name)) and process.poll() is None:
            time.sleep(0.01)
        process.terminate()
    if not found:
        raise RuntimeError("training ended before its first step, see above")
    return found[0]["time"] - started


def train(home: str, name: str, steps: int) -> float:
    """Steps per second from the first log to the last."""
    with start_training(home, name, steps) as process:
        if process.wait():
            raise RuntimeError("training failed, see above")
    first, *_, last = rows(home, name)
    return (last["step"] - first["step"]) / (last["time"] - first["time"])


def start_training(
    home: str, name: str, steps: int, **options: Any
) -> subprocess.Popen[bytes]:
    """The demo's second stage in a process with a home of its own."""
    overrides = {
        "only_stage": STAGE,
        "init_from": "weights/demo.safetensors",
        f"stages.{STAGE}.learning_rate.num_steps": steps,
        "eval.splits.test.num_slots": 0,
        "eval.splits.test_general.num_slots": 0,
        **options,
    }
    flags = [f"--config.{key}={value}" for key, value in overrides.items()]
    workdir = f"--workdir={pathlib.Path(home) / name}"
    command = ["launch.py", "--config=configs/demo.py", workdir, *flags]
    environment = {**os.environ, "HOME": home}
    return subprocess.Popen([sys.executable, *command], env=environment)


def rows(home: str, name: str) -> list[dict[str, Any]]:
    """What training has logged so far."""
    path = pathlib.Path(home) / name / STAGE / "metrics.jsonl"
    found = logs.read_json_lines(path) if path.exists() else []
    return [row for row in found if "train/loss" in row]


def ask_bare_rate() -> float:
    """`bare_rate` of a process of its own, as training has one."""
    command = [sys.executable, "-m", "benchmarks.end_to_end", "--bare"]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def bare_rate() -> float:
    """Steps per second of the same program on one batch."""
    import jax

    from configs import demo
    from ocloc_jax import distributed, experiment, loop, over_seeds, programs, start

    config = demo.get_config()
    distributed.split_cpu(config.cpu_devices)
    model = experiment.make_model(config)
    plan = experiment.make_plan(config, config.stages[STAGE])
    seeds, optimizer = plan.make_seeds(), plan.make_optimizer()
    params = start.fresh(model, seeds.numbers, config.initial)
    state = seeds.create_state(distributed.to_host(params), optimizer)
    step = over_seeds.jit_step(loop.make_step(plan, model, optimizer), seeds)
    size = config.data.scenes.size
    shapes = programs.batch_shapes(
        (plan.batch_size,), plan.views["max_views"], (size, size)
    )
    rng = np.random.default_rng(0)
    batch = {
        k: rng.integers(0, 256, x.shape).astype(x.dtype) for k, x in shapes.items()
    }
    batch = jax.device_put(batch, seeds.batch_sharding)
    for count in (20, BARE_STEPS):  # the first ones to warm up
        begun = time.perf_counter()
        before = None
        for _ in range(count):
            state, metrics = step(state, batch)
            jax.block_until_ready(before)  # one step ahead, as in training
            before = metrics
        jax.block_until_ready(state)
    return BARE_STEPS / (time.perf_counter() - begun)


if __name__ == "__main__":
    huge_pages.ask_for()  # as training does
    main()
