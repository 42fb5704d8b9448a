"""The published configs run: both stages, a stop in each, and what they leave."""

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import event_files
import numpy as np
import pytest

from ocloc_jax import experiment, loop, losses, weights
from ocloc_jax.logs import read_json_lines

ROOT = pathlib.Path(__file__).parents[1]
STAGES = ("single", "multi")


def smoke_config(dataset: str):
    return importlib.import_module(f"configs.{dataset}").get_config("smoke")


def assert_complete(workdir: pathlib.Path) -> None:
    """Each step of each stage is there once, whatever stopped the run in between."""
    for stage in STAGES:
        directory = workdir / stage
        rows = read_json_lines(directory / "metrics.jsonl")
        steps = [row["step"] for row in rows if "train/loss" in row]
        assert steps == [1, 2, 3, 4]
        shown = event_files.shown(directory)
        terms = ["nll", *losses.KL_TERMS, *losses.REGULARISERS]
        for tag in [f"train/{term}" for term in terms]:
            assert [step for step, _ in shown[tag]] == [1, 2, 3, 4], tag
        assert [step for step, _ in shown["validation/loss"]] == [2, 4]
        assert [step for step, _ in shown["validation/decomposition"]] == [4]
        assert (directory / "validation_decomposition.png").stat().st_size > 1000
    assert "decoder/object_net" in (workdir / "parameters.txt").read_text()
    assert (workdir / "config.json").exists()


@pytest.mark.parametrize("dataset", ["shop", "gso", "shapenet"])
def test_smoke_with_a_stop_in_each_stage(dataset: str, tmp_path, monkeypatch):
    """Asked to stop after the third step of a stage, between two checkpoints."""
    stopped = []

    def advance(self) -> None:
        self._bar.update()
        if self._bar.n == 3 and self._name not in stopped:
            stopped.append(self._name)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop.logs.StageLog, "advance", advance)
    for _ in STAGES:
        with pytest.raises(loop.Stopped):
            experiment.run(smoke_config(dataset), tmp_path)
    best = experiment.run(smoke_config(dataset), tmp_path)
    assert stopped == ["single", "multi"]
    assert_complete(tmp_path)
    model, params = weights.load(best)
    assert model.sizes == experiment.make_model(smoke_config(dataset)).sizes
    # The second stage began with the weights of the first, and moved them.
    _, before = weights.load(tmp_path / "single" / "best.safetensors")
    kernel = ("decoder", "object_net", "conv_0", "kernel")
    for key in kernel:
        before, params = before[key], params[key]
    change = np.abs(np.asarray(params) - np.asarray(before)).max()
    assert 0 < change < 1e-2


def test_smoke_by_the_real_command(tmp_path):
    """CLEVR: interrupted by a signal from outside, and started again."""
    command = [sys.executable, "launch.py", "--config=configs/clevr.py:smoke"]
    command.append(f"--workdir={tmp_path}")
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}  # with XLA_FLAGS of conftest
    env["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".jax_cache")
    options = dict(cwd=ROOT, env=env, text=True, stderr=subprocess.PIPE)
    rows = tmp_path / "single" / "metrics.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as first:
        while not rows.exists() and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=600)
    assert "Traceback" not in said
    assert "Stopped after step" in said, said
    again = subprocess.run(command, stdout=subprocess.PIPE, timeout=900, **options)
    assert again.returncode == 0, again.stderr
    assert "multi: compiled 1 of" in again.stderr
    assert "best weights:" in again.stdout
    assert_complete(tmp_path)
