"""Checkpoints: what is damaged is noticed and kept, a full disk loses nothing."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import small
from jax.sharding import NamedSharding, PartitionSpec

from ocloc_jax import checkpoints, data, fingerprints, weights
from ocloc_jax.checkpoints import Best, Checkpoints, DiskFull
from ocloc_jax.train import TrainState


def make_state(step: int, seeds: int = 3) -> TrainState:
    """Seeds stacked and split over devices, as unlike a single run as can be."""
    rng = np.random.default_rng(step)
    split = data.data_sharding(jax.devices()[:seeds])
    kernel = rng.normal(size=(seeds, 40, 50)).astype(np.float32)
    state = TrainState(
        step=np.full(seeds, step, np.int32),
        params={"encoder": {"kernel": kernel}, "decoder": {"bias": kernel[:, 0]}},
        opt_state=({"mu": kernel / 2}, np.zeros(seeds)),
        key=jax.random.split(jax.random.key(step), seeds),
    )
    return jax.device_put(state, split)


def assert_equal(first: TrainState, second: TrainState) -> None:
    for one, other in zip(*map(jax.tree.leaves, (first, second)), strict=True):
        assert one.sharding == other.sharding and one.dtype == other.dtype
        assert bool(jnp.array_equal(one, other))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("saved") / "checkpoints"
    with Checkpoints(directory, keep=2) as manager:
        for step in (3, 5, 7):
            manager.save(step, make_state(step))
    return directory


@pytest.fixture
def copy(saved, tmp_path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(saved, tmp_path / "checkpoints"))


def restore(directory: pathlib.Path) -> tuple[int, TrainState]:
    with Checkpoints(directory) as manager:
        return manager.restore(make_state(0))


def data_file(directory: pathlib.Path) -> pathlib.Path:
    """The file that holds the arrays: the largest."""
    every = (path for path in directory.rglob("*") if path.is_file())
    return max(every, key=lambda path: path.stat().st_size)


def flip(path: pathlib.Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << position % 8
    path.write_bytes(content)


def test_the_last_ones_are_kept_and_come_back_bit_by_bit(saved, capfd):
    assert sorted(path.name for path in saved.iterdir()) == ["5", "7"]
    step, state = restore(saved)
    assert step == 7 and "warning" not in capfd.readouterr().err
    assert_equal(state, make_state(7))


def test_nothing_saved_gives_the_given_state(tmp_path, capfd):
    step, state = restore(tmp_path)
    assert step == 0 and "warning" not in capfd.readouterr().err
    assert_equal(state, make_state(0))


def test_restored_memory_is_the_state_s_own(saved):
    """A step may use it up without touching anything else."""
    _, state = restore(saved)
    jax.jit(lambda s: jax.tree.map(jnp.zeros_like, s.params), donate_argnums=0)(state)
    assert_equal(restore(saved)[1], make_state(7))


@pytest.mark.parametrize("position", [1000, 5000, 20_000])
def test_flipped_bit_is_found_named_and_set_aside(copy, capfd, position: int):
    before = data_file(copy / "7").read_bytes()
    flip(data_file(copy / "7"), position)
    step, state = restore(copy)
    assert step == 5
    assert_equal(state, make_state(5))
    assert f"{copy / '7'} is damaged" in capfd.readouterr().err
    kept = data_file(copy / "corrupt-7-1").read_bytes()
    assert len(kept) == len(before) and kept != before
    with Checkpoints(copy) as manager:  # the step can be made again
        manager.save(7, make_state(7))
    assert_equal(restore(copy)[1], make_state(7))
    assert (copy / "corrupt-7-1").exists()


@pytest.mark.parametrize("share", [0, 0.5])
def test_every_file_cut_short(copy, share: float):
    """Whichever file it is, what comes back is right."""
    names = [p.relative_to(copy) for p in (copy / "7").rglob("*") if p.is_file()]
    whole = copy.with_name("whole")
    shutil.copytree(copy, whole)
    found = set()
    for name in names:
        shutil.rmtree(copy)
        shutil.copytree(whole, copy)
        os.truncate(copy / name, int(share * (copy / name).stat().st_size))
        step, state = restore(copy)
        assert_equal(state, make_state(step))
        found.add(step)
    assert 5 in found and found <= {5, 7}  # some files are only notes


def test_all_damaged_starts_anew_and_keeps_them(copy, capfd):
    for step in ("5", "7"):
        os.truncate(data_file(copy / step), 100)
    step, state = restore(copy)
    assert step == 0 and "starting anew" in capfd.readouterr().err
    assert_equal(state, make_state(0))
    assert {"corrupt-5-1", "corrupt-7-1"} == {path.name for path in copy.iterdir()}


def test_another_program_s_checkpoint_is_refused_not_set_aside(copy):
    with Checkpoints(copy) as manager:
        with pytest.raises(ValueError, match="mu is .*3, 40, 50.* instead of .*2, 40"):
            manager.restore(make_state(0, seeds=2))
    assert {path.name for path in copy.iterdir()} == {"5", "7"}


def test_unfinished_save_of_a_killed_process_is_ignored(copy):
    shutil.copytree(copy / "7", copy / "9.orbax-checkpoint-tmp")
    step, _ = restore(copy)
    assert step == 7
    with Checkpoints(copy) as manager:
        manager.save(9, make_state(9))
    assert_equal(restore(copy)[1], make_state(9))


def test_sealed_record_notices_changes():
    record = fingerprints.seal(fingerprints.digests({"a": np.ones(3)}))
    assert fingerprints.unseal(record) == fingerprints.digests({"a": np.ones(3)})
    record["content"]["a"] = record["content"]["a"].replace("0", "1", 1)
    with pytest.raises(ValueError, match="changed"):
        fingerprints.unseal(record)


@pytest.mark.parametrize("noticed", ["check", "save", "exit"])
def test_full_disk_in_the_background(copy, monkeypatch, noticed: str):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "finalize", full)
    with pytest.raises(DiskFull, match="full. Step 7 is safe"):
        with Checkpoints(copy) as manager:
            manager.save(9, make_state(9))
            while noticed == "check":
                manager.check()
            if noticed == "save":
                manager.save(11, make_state(11))
    monkeypatch.undo()
    step, state = restore(copy)
    assert step == 7 and (copy / "5").exists()
    assert_equal(state, make_state(7))


def test_full_disk_elsewhere_is_explained_too(copy):
    with pytest.raises(DiskFull, match="Step 7 is safe"):
        with Checkpoints(copy):
            raise RuntimeError(
                "write: I/O error: No space left on device (os error 28)"
            )
    with pytest.raises(KeyError):
        with Checkpoints(copy):
            raise KeyError("something else")


_FILL = """
import pathlib, sys
import jax.numpy as jnp
import numpy as np
from ocloc_jax.checkpoints import Checkpoints, DiskFull
directory = pathlib.Path(sys.argv[1]) / "checkpoints"
state = {"kernel": jnp.array(np.random.default_rng(0).normal(size=200_000))}
try:
    with Checkpoints(directory) as manager:
        for step in range(1, 9):
            manager.save(step, state)
except DiskFull as error:
    print(error)
with Checkpoints(directory) as manager:
    step, found = manager.restore({"kernel": jnp.zeros(200_000)})
    print("restored", step, np.array_equal(found["kernel"], state["kernel"]))
"""
_MOUNT = 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'


def test_a_disk_that_is_really_full(tmp_path):
    enter = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(tmp_path)]
    try:
        subprocess.run([*enter, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("No small disk to fill: mounting one is not allowed here.")
    root = pathlib.Path(__file__).parents[1]
    command = [*enter, sys.executable, "-c", _FILL, str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert "full. Step 2 is safe" in done.stdout
    assert "restored 2 True" in done.stdout, done.stderr


def test_best_weights_and_their_loss_are_one_file(tmp_path, capfd):
    model = small.model()
    best = Best(tmp_path)
    assert best.update(2.0, 10, model, small.params(model, seed=1))
    assert not best.update(2.0, 20, model, small.params(model, seed=2))
    assert best.update(1.5, 30, model, small.params(model, seed=3))
    again = Best(tmp_path)
    assert (again.value, again.step) == (1.5, 30)
    flip(again.weights, -1000)
    with pytest.raises(ValueError, match="best.safetensors: damaged"):
        weights.load(again.weights)
    after = Best(tmp_path)
    assert (after.value, after.step) == (float("inf"), -1)
    assert (tmp_path / "corrupt-best-1").exists() and not after.weights.exists()
    assert "best.safetensors: damaged" in capfd.readouterr().err


def test_full_disk_is_told_by_number_or_by_words():
    assert checkpoints._is_full_disk(OSError(errno.EDQUOT, "quota"))
    assert not checkpoints._is_full_disk(OSError(errno.ENOENT, "no file"))
    try:
        raise ValueError("outer") from OSError(errno.ENOSPC, "full")
    except ValueError as error:
        assert checkpoints._is_full_disk(error)


def test_of_several_devices_one_copy_is_saved():
    mesh = jax.make_mesh(
        (jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,)
    )
    numbers = np.arange(2.0 * jax.device_count())
    split, whole = (
        jax.device_put(numbers, NamedSharding(mesh, PartitionSpec(*axes)))
        for axes in (("data",), ())
    )
    found = checkpoints._one_copy({"whole": whole, "split": split})
    assert len(found["whole"].sharding.device_set) == 1
    np.testing.assert_array_equal(found["whole"], numbers)
    assert found["split"] is split
