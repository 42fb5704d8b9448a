"""A killed build goes on where it stopped and is never mistaken for a whole one."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import fake_scenes
import pytest
import tensorflow_datasets as tfds

import ocloc_jax
from tfds_builders import __main__ as command_line
from tfds_builders import parallel, raytraced, shards

ROOT = pathlib.Path(__file__).parents[1]
SCRIPT = str(ROOT / "tests" / "fake_scenes.py")
BUILD = ("build", "multiview_clevr", "--config", "raytraced_tiny")
COUNTS = ("--num_scenes", "train=130,validation=2,test=0,test_general=0")


@pytest.fixture(autouse=True)
def ray_tracer(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocloc_jax.scenes", fake_scenes)
    monkeypatch.setattr(ocloc_jax, "scenes", fake_scenes, raising=False)


def _start(data_dir, seconds, workers, stderr=subprocess.DEVNULL, **kwargs):
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "FAKE_SCENES_SECONDS": str(seconds),
    }
    command = [sys.executable, SCRIPT, *BUILD, *COUNTS]
    command += ["--workers", str(workers), "--data_dir", str(data_dir)]
    return subprocess.Popen(command, env=environment, stderr=stderr, **kwargs)


def _progress(data_dir):
    """Bytes in the work directory; grows with every scene."""
    files = pathlib.Path(data_dir).rglob("*.partial/*train*")
    return sum(path.stat().st_size for path in files if path.exists())


def _wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def _fingerprint(data_dir):
    (info,) = pathlib.Path(data_dir).rglob("dataset_info.json")
    return tfds.builder_from_directory(info.parent).info.metadata["fingerprint"]


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_build_is_not_readable_and_goes_on(workers, tmp_path, monkeypatch):
    process = _start(tmp_path / "a", 0.02, workers)
    _wait(lambda: _progress(tmp_path / "a") > 60_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.rglob("dataset_info.json"))
    assert command_line.main(["doctor", str(tmp_path / "a")]) == 2

    rendered = []
    render = fake_scenes.render

    def counting(*arguments, **kwargs):
        rendered.append(kwargs["index"])
        return render(*arguments, **kwargs)

    monkeypatch.setattr(fake_scenes, "render", counting)
    options = [*BUILD, *COUNTS, "--workers", "1", "--data_dir"]
    assert command_line.main([*options, str(tmp_path / "a")]) == 0
    second_run = len(rendered)
    assert command_line.main([*options, str(tmp_path / "b")]) == 0
    assert second_run < len(rendered) - second_run == 132
    assert _fingerprint(tmp_path / "a") == _fingerprint(tmp_path / "b")
    assert not list(tmp_path.rglob("*.partial"))
    assert not list(tmp_path.rglob("incomplete.*"))


def test_orphaned_workers_end_with_their_parent(tmp_path):
    process = _start(tmp_path, 0.05, 2)
    _wait(lambda: _progress(tmp_path) > 20_000)
    children = _children(process.pid)
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait(lambda: not any(_alive(child) for child in children), 20)


def _heed_control_c():
    """A shell's background job, as these tests may be, passes on that it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_interrupted_build_stops_soon_and_says_so(tmp_path):
    """Control-C reaches the whole process group, as in a terminal."""
    # Slow scenes, so that the build is at work whenever this process gets its turn.
    process = _start(
        tmp_path,
        0.5,
        2,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_heed_control_c,
    )
    _wait(lambda: _progress(tmp_path) > 0)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1].startswith("stopped; the same command")
    assert b"Traceback" not in errors


def _children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def _alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _shard(path, stop=5):
    (split,) = raytraced.make_splits(
        {"train": stop}, {"train": (1, 3)}, seed=0, size=8, num_views=2
    ).values()
    return shards.Shard(str(path / "shard"), split, 0, stop, (8, 8))


def test_damage_is_found_and_mended(tmp_path):
    shard = _shard(tmp_path)
    note = shards.write(shard)
    whole = pathlib.Path(shard.path).read_bytes()
    assert shards.finished(shard) == note
    for damaged in (whole[:-100], whole[:500] + b"x" * 50 + whole[550:], b""):
        pathlib.Path(shard.path).write_bytes(damaged)
        assert shards.finished(shard) is None
    notes = parallel.make_shards({"train": [shard]}, workers=1)
    assert notes["train"][0].examples == note.examples
    assert pathlib.Path(shard.path).read_bytes() == whole


def test_half_written_example_is_cut_off(tmp_path):
    shard = _shard(tmp_path)
    made = []

    def stop_at_three(count):
        made.append(count)
        if sum(made) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.write(shard, stop_at_three)
    journal = tmp_path / "shard.journal"
    journal.write_bytes(journal.read_bytes()[:-5])
    made.clear()
    note = shards.write(shard, made.append)
    assert made == [2, 1, 1, 1]  # Two of the five were whole.
    (tmp_path / "again").mkdir()
    assert note.examples == shards.write(_shard(tmp_path / "again")).examples
    assert not journal.exists()


def test_other_settings_do_not_reuse_old_shards(tmp_path):
    with parallel.work_directory(tmp_path / "work", {"seed": 0}) as work:
        (work / "shard").write_text("old")
    with parallel.work_directory(tmp_path / "work", {"seed": 0}) as work:
        assert (work / "shard").exists()
    with parallel.work_directory(tmp_path / "work", {"seed": 1}) as work:
        assert not (work / "shard").exists()


def test_two_builds_at_once_are_refused(tmp_path):
    with parallel.work_directory(tmp_path, 0):
        with pytest.raises(ValueError, match="another build is at work"):
            with parallel.work_directory(tmp_path, 0):
                pass
