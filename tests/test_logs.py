"""What people watch: rows once each, also after a stop, in every form."""

import io
import os
import subprocess
import sys
import types

import event_files
import numpy as np
import PIL.Image
import pytest

from ocloc_jax import logs

SCORES = {"loss": 5.0, "ari_obj_m": 0.5, "ari_all_m": 0.25}


def log_steps(path, start: int, steps, **options) -> None:
    log = logs.StageLog("multi", path, start, end=9, **options)
    for step in steps:
        log.train(step, {"loss": np.float32(step), "nll": np.float32(10 * step)})
        log.advance()
    log.validation(step, SCORES)
    log.close()


def test_a_resumed_run_shows_every_step_once(tmp_path):
    """The first part got to step 4, but saved its state at step 2."""
    path = tmp_path / "metrics.jsonl"
    log_steps(path, 0, [1, 2, 3, 4])
    log_steps(path, 2, [3, 4, 5])
    rows = [row for row in logs.read_json_lines(path) if "train/nll" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert len(list(tmp_path.glob("events.*"))) == 2
    found = event_files.shown(tmp_path)
    assert found["train/nll"] == [(i, 10.0 * i) for i in (1, 2, 3, 4, 5)]
    assert found["validation/loss"] == [(5, 5.0)]
    assert set(found) == {
        *("train/loss", "train/nll", "validation/loss"),
        *("validation/ari_obj_m", "validation/ari_all_m"),
    }


def test_pictures_go_to_tensorboard_and_beside_the_rows(tmp_path):
    log = logs.StageLog("multi", tmp_path / "metrics.jsonl", 0, end=9)
    pictures = np.random.default_rng(0).integers(0, 256, (2, 6, 9, 3), np.uint8)
    for step, picture in enumerate(pictures, 1):
        log.picture(step, picture)
    log.close()
    newest = PIL.Image.open(tmp_path / "validation_decomposition.png")
    np.testing.assert_array_equal(newest, pictures[1])
    found = event_files.shown(tmp_path)["validation/decomposition"]
    assert [step for step, _ in found] == [1, 2]
    decoded = PIL.Image.open(io.BytesIO(found[0][1].encoded_image_string))
    np.testing.assert_array_equal(decoded, pictures[0])


def test_tensorboard_does_not_load_pytorch(tmp_path):
    """Where that is installed it would take two seconds of every start."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('loaded')")
    program = (
        "import pathlib, sys; from ocloc_jax import logs; "
        f"logs.TensorBoard(pathlib.Path({str(tmp_path)!r}), keep_until=0).close(); "
        "print('torch' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout == "False\n"


def test_numbers_that_are_none_stay_readable(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log_steps(path, 0, [1])
    logs.JsonLines(path, keep_until=1).write(2, {"train/loss": float("nan")})
    assert logs.read_json_lines(path)[-1]["train/loss"] is None


def test_live_line_has_loss_and_ari(tmp_path, capsys):
    log_steps(tmp_path / "metrics.jsonl", 0, [1, 2])
    line = capsys.readouterr().err
    for part in ("multi", "2/9", "step/s", "loss=2.0", "ARI_O=0.50", "ARI_A=0.25"):
        assert part in line


def test_only_the_first_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(logs.distributed, "is_main", lambda: False)
    log_steps(tmp_path / "metrics.jsonl", 0, [1, 2])
    assert not list(tmp_path.iterdir())


class FakeRun:
    """Records what it is told, and leaves out old steps as wandb does."""

    def __init__(self, **options):
        self.options, self.rows, self.finished = options, [], False

    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb_runs(monkeypatch):
    runs = []
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: runs.append(FakeRun(**options)) or runs[-1]
    fake.Image = lambda picture: ("image", picture.shape)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return runs


def test_wandb_goes_on_with_the_same_run(tmp_path, wandb_runs):
    stage = tmp_path / "clevr" / "multi"
    stage.mkdir(parents=True)
    (tmp_path / "clevr" / "config.json").write_text('{"seed": 3}')
    log_steps(stage / "metrics.jsonl", 0, [1, 2], wandb="ocloc")
    log_steps(stage / "metrics.jsonl", 2, [3], wandb="ocloc")
    first, second = wandb_runs
    assert first.options == second.options
    assert first.options["project"] == "ocloc"
    assert first.options["name"] == "clevr/multi"
    assert first.options["resume"] == "allow"
    assert first.options["config"] == {"seed": 3}
    assert first.finished and second.finished
    assert first.rows[0] == (1, {"train/loss": 1.0, "train/nll": 10.0})
    assert first.rows[-1] == (2, {f"validation/{k}": v for k, v in SCORES.items()})


def test_wandb_gets_pictures(tmp_path, wandb_runs):
    log = logs.StageLog("s", tmp_path / "metrics.jsonl", 0, end=2, wandb="ocloc")
    log.picture(1, np.zeros((4, 5, 3), np.uint8))
    log.close()
    row = {"validation/decomposition": ("image", (4, 5, 3))}
    assert wandb_runs[0].rows == [(1, row)]


def test_missing_wandb_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="wandb is not installed.*pip install wandb"):
        logs.import_wandb()
