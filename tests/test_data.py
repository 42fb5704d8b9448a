"""The input pipeline: determinism, coverage, sharding, and what it refuses."""

import collections
import gc
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax import data
from ocloc_jax.data import schedule

NUM_SCENES, NUM_VIEWS, SIZE = 11, 10, 8


def make_scenes(num_scenes: int = NUM_SCENES, num_views: int = NUM_VIEWS) -> dict:
    """Scenes whose every pixel says which scene and view it is from."""
    rng = np.random.default_rng(0)
    shape = (num_scenes, num_views, SIZE, SIZE)
    image = rng.integers(0, 256, (*shape, 3), np.uint8)
    image[..., 0] = np.arange(num_scenes)[:, None, None, None]
    image[..., 1] = np.arange(num_views)[None, :, None, None]
    camera = rng.random((num_scenes, num_views, 3)).astype(np.float32)
    camera[..., 0] *= 2 * np.pi
    segment = rng.integers(0, 4, shape, np.uint8)
    return {"image": image, "segment": segment, "camera": camera}


@pytest.fixture(scope="module")
def arrays() -> dict:
    return make_scenes()


@pytest.fixture(scope="module")
def scenes(arrays: dict) -> data.ArrayScenes:
    return data.ArrayScenes(arrays)


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_array_equal(left[key], right[key], err_msg=key)


def assert_names_its_pixels(batch):
    """Checks `index` and `views` against what the pixels say."""
    image = np.asarray(batch["image"])
    index = np.asarray(batch["index"])[:, None]
    np.testing.assert_array_equal(image[:, :, 0, 0, 0] - index, 0)
    np.testing.assert_array_equal(image[:, :, 0, 0, 1], batch["views"])


@pytest.mark.parametrize(
    ("stage", "num_workers"), [("multi", 0), ("multi", 1), ("multi", 2), ("single", 2)]
)
def test_batches_do_not_depend_on_workers(scenes, stage, num_workers):
    train = data.TrainPipeline(scenes, batch_size=4, stage=stage, seed=3)
    with train.batches(5, 11, num_workers=num_workers, num_threads=3) as batches:
        found = list(batches)  # All kept, so that reused buffers would show.
    gc.collect()
    assert len(found) == 6
    for step, batch in enumerate(found, 5):
        assert_equal(batch, train.host_batch(step))
        assert_names_its_pixels(batch)


@pytest.mark.parametrize("options", [{"num_threads": 1}, {"device_buffer": 0}], ids=str)
def test_resuming_gives_the_same_batches(scenes, options):
    def make() -> data.TrainPipeline:
        return data.TrainPipeline(scenes, batch_size=3, seed=1, keys=("image",))

    whole = list(make().batches(0, 12))
    resumed = list(make().batches(7, 12, **options))
    for batch, again in zip(whole[7:], resumed, strict=True):
        assert_equal(batch, again)


def test_seeds_differ(scenes):
    def views(seed: int) -> list:
        train = data.TrainPipeline(scenes, batch_size=4, seed=seed)
        return [train.plan(step).scenes.tolist() for step in range(11)]

    orders = [views(seed) for seed in range(4)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])


def test_plan_is_what_it_was():
    """Guards resumed runs against a change of the random streams."""
    order = schedule.examples_at(7, 10, np.arange(8, 13))
    assert order.tolist() == [5, 1, 5, 9, 1]
    counts = [schedule.num_views_at(7, step, 1, 8) for step in range(6)]
    assert counts == [7, 6, 8, 5, 7, 5]
    chosen = schedule.choose_views((7, 3, 1), 5, 60)
    assert chosen.tolist() == [47, 59, 25, 44, 8]


@pytest.mark.parametrize("batch_size", [1, 4, 11, 16])
def test_every_scene_once_per_epoch(scenes, batch_size):
    train = data.TrainPipeline(scenes, batch_size=batch_size)
    steps = range(-(-5 * NUM_SCENES // batch_size))
    stream = np.concatenate([train.plan(step).scenes for step in steps])
    epochs = stream[: 5 * NUM_SCENES].reshape(5, NUM_SCENES)
    np.testing.assert_array_equal(
        np.sort(epochs), np.tile(np.arange(NUM_SCENES), (5, 1))
    )
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 5


def test_single_stage_covers_every_view_once_also_when_ragged():
    counts = [3, 1, 5, 2]
    scenes = data.ArrayScenes([{"image": np.zeros((n, 2, 2, 3))} for n in counts])
    train = data.TrainPipeline(scenes, batch_size=11, stage="single")
    assert train.num_examples == 11
    expected = sorted((s, v) for s, n in enumerate(counts) for v in range(n))
    for step in range(3):
        plan = train.plan(step)
        pairs = zip(plan.scenes.tolist(), plan.views[:, 0].tolist(), strict=True)
        assert sorted(pairs) == expected


def test_number_of_views_is_uniform():
    counts = np.bincount([schedule.num_views_at(0, s, 1, 8) for s in range(8000)])
    assert counts[0] == 0 and len(counts) == 9
    chi_square = ((counts[1:] - 1000.0) ** 2 / 1000.0).sum()
    assert chi_square < 24.3  # 99.9 % of the distribution with 7 degrees of freedom


def test_number_of_views_can_be_fixed(scenes):
    train = data.TrainPipeline(scenes, batch_size=2, min_views=5, max_views=5)
    assert {train.plan(step).views.shape for step in range(20)} == {(2, 5)}


def test_views_are_distinct_and_uniform(scenes):
    train = data.TrainPipeline(scenes, batch_size=11, max_views=8)
    seen = collections.Counter()
    for step in range(300):
        plan = train.plan(step)
        assert all(len(set(row)) == len(row) for row in plan.views.tolist())
        seen.update(plan.views.ravel().tolist())
    share = np.array([seen[v] for v in range(NUM_VIEWS)]) / sum(seen.values())
    np.testing.assert_allclose(share, 0.1, atol=0.01)
    assert len({tuple(row) for row in plan.views.tolist()}) > 1


def test_window_by_index_keeps_views_together(scenes):
    train = data.TrainPipeline(scenes, batch_size=11, max_views=3, view_window=2)
    spans = [np.ptp(train.plan(s).views, axis=1).max() for s in range(60)]
    assert 3 <= max(spans) <= 4  # Two to either side of the anchor.


def test_window_grows_with_the_step(scenes):
    train = data.TrainPipeline(
        scenes,
        batch_size=11,
        max_views=4,
        view_window=dict(steps=(49, 50), values=(0, NUM_VIEWS)),
    )
    spans = np.array([np.ptp(train.plan(s).views, axis=1).max() for s in range(100)])
    # A window too small takes the nearest: of four views, those up to 2 away.
    assert spans[:50].min() == 0 and spans[:50].max() == 4
    assert spans[50:].max() == NUM_VIEWS - 1


def test_window_by_azimuth_is_circular(arrays, scenes):
    window = 1.0
    train = data.TrainPipeline(
        scenes, batch_size=11, max_views=2, view_window=window, window_by="azimuth"
    )
    crossed = 0
    for step in range(60):
        plan = train.plan(step)
        if plan.views.shape[1] < 2:
            continue
        azimuth = arrays["camera"][plan.scenes[:, None], plan.views, 0]
        turn = np.abs(azimuth[:, 0] - azimuth[:, 1])
        crossed += int((turn > np.pi).sum())
        near = np.minimum(turn, 2 * np.pi - turn) <= 2 * window
        lonely = np.array([_second_nearest(arrays, s) > window for s in plan.scenes])
        assert (near | lonely).all()
    assert crossed > 0  # Views on either side of azimuth zero are neighbours.


def _second_nearest(arrays: dict, scene: int) -> float:
    azimuth = arrays["camera"][scene, :, 0]
    turn = np.abs(azimuth[:, None] - azimuth[None])
    return float(np.sort(np.minimum(turn, 2 * np.pi - turn))[:, 1].max())


@pytest.mark.parametrize("stage", ["single", "multi"])
def test_shards_of_two_hosts_make_up_the_batch(scenes, stage):
    def make(index: int, count: int) -> data.TrainPipeline:
        return data.TrainPipeline(
            scenes, 6, stage=stage, process_index=index, process_count=count
        )

    for step in (0, 1, 17):
        whole = make(0, 1).host_batch(step)
        shards = [make(i, 2).host_batch(step) for i in range(2)]
        joined = {k: np.concatenate([s[k] for s in shards]) for k in whole}
        assert_equal(joined, whole)


def test_batches_are_split_over_devices_as_uint8(scenes):
    sharding = data.data_sharding()
    train = data.TrainPipeline(scenes, batch_size=16, keys=("image", "segment"))
    batch = next(train.batches(2, sharding=sharding))
    assert isinstance(batch["image"], jax.Array)
    assert batch["image"].dtype == jnp.uint8 and batch["segment"].dtype == jnp.uint8
    assert batch["image"].sharding.is_equivalent_to(sharding, 5)
    assert len(batch["image"].addressable_shards) == jax.device_count() > 1
    assert batch["image"].addressable_shards[0].data.shape[0] == 2
    assert_equal(batch, train.host_batch(2))


HOST_PROGRAM = """
import sys
import jax
import numpy as np
from ocloc_jax import data

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
process, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=process)
image = np.random.default_rng(0).integers(0, 256, (9, 8, 4, 4, 3), np.uint8)
train = data.TrainPipeline(data.ArrayScenes({"image": image}), batch_size=8)
assert (train.process_index, train.process_count) == (process, 2)
for step, batch in enumerate(train.batches(3, 6, sharding=data.data_sharding()), 3):
    whole = train.plan(step, np.arange(8))
    expected = image[whole.scenes[:, None], whole.views]
    assert batch["image"].shape == expected.shape, batch["image"].shape
    shards = batch["image"].addressable_shards
    assert {s.index[0].start for s in shards} == {4 * process, 4 * process + 2}
    for shard in shards:
        np.testing.assert_array_equal(shard.data, expected[shard.index])
"""


def test_two_real_hosts_hold_one_batch():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST_PROGRAM, str(process), address],
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    for host in hosts:
        _, errors = host.communicate(timeout=120)
        assert host.returncode == 0, errors


def test_to_model_range():
    values = jax.jit(data.to_model_range)(jnp.arange(256, dtype=jnp.uint8))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, np.linspace(-1, 1, 256), atol=1e-6)


def test_dropping_the_iterator_stops_its_threads(scenes):
    before = set(threading.enumerate())
    batches = data.TrainPipeline(scenes, batch_size=2).batches(num_threads=4)
    next(batches)
    assert set(threading.enumerate()) > before
    batches.close()
    assert next(batches, None) is None
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("process_count", [1, 2])
def test_evaluation_counts_every_scene_once(arrays, scenes, process_count):
    seen = []
    for process in range(process_count):
        evaluation = data.EvalPipeline(
            scenes, 8, process_index=process, process_count=process_count, num_views=6
        )
        assert evaluation.num_steps == 2
        for step in range(2):
            batch = evaluation.host_batch(step)
            assert batch["image"].shape == (8 // process_count, 6, SIZE, SIZE, 3)
            seen += batch["index"][batch["valid"]].tolist()
            expected = arrays["image"][batch["index"], :6]
            np.testing.assert_array_equal(batch["image"], expected)
    assert sorted(seen) == list(range(NUM_SCENES))


def test_evaluation_ends(scenes):
    batches = list(data.EvalPipeline(scenes, batch_size=4).batches())
    assert [int(b["valid"].sum()) for b in batches] == [4, 4, 3]
    assert [b["image"].shape[:2] for b in batches] == [(4, 8)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(max_views=11), "max_views is 11, but scene 0 has 10 views"),
        (dict(max_views=0), "max_views is 0"),
        (dict(min_views=5, max_views=4), "min_views is 5; choose 1 to 4"),
        (dict(keys=("image", "masks")), r"no \['masks'\]; they have \['image'"),
        (dict(batch_size=3, process_index=0, process_count=2), "by 2 processes"),
        (dict(process_index=2, process_count=2), "process_index 2 is not one"),
        (dict(seed=-1), "seed is -1"),
        (dict(batch_size=0), "batch_size 0"),
    ],
    ids=str,
)
def test_bad_options_are_refused_at_once(scenes, options, message):
    with pytest.raises(ValueError, match=message):
        data.TrainPipeline(scenes, **{"batch_size": 4, **options})


def test_other_refusals(arrays, scenes):
    images = data.ArrayScenes({"image": arrays["image"]})
    with pytest.raises(ValueError, match=r"no \['camera'\]"):
        data.TrainPipeline(images, 4, view_window=1.0, window_by="azimuth")
    with pytest.raises(ValueError, match="view_window is .* as many `values`"):
        data.TrainPipeline(scenes, 4, view_window=dict(steps=(0, 9), values=(1,)))
    with pytest.raises(ValueError, match="num_views is 12, but scene 0 has 10"):
        data.EvalPipeline(scenes, 4, num_views=12)
    with pytest.raises(ValueError, match="batch_size 3 cannot be split over the 8"):
        data.TrainPipeline(scenes, 3).batches(sharding=data.data_sharding())
    with pytest.raises(ValueError, match="Pass `sharding`"):
        data.TrainPipeline(scenes, 4, process_index=0, process_count=2).batches()
    with pytest.raises(ValueError, match="on this process, which reads"):
        data.TrainPipeline(scenes, 8, process_index=0, process_count=2).batches(
            sharding=data.data_sharding()
        )
    with pytest.raises(ValueError, match="start_step is -1"):
        data.TrainPipeline(scenes, 4).batches(-1)
    with pytest.raises(ValueError, match="numbers of scenes differ"):
        data.ArrayScenes({"image": arrays["image"], "segment": arrays["segment"][:3]})
    with pytest.raises(ValueError, match="Scene 1 has the keys"):
        data.ArrayScenes([{"image": arrays["image"][0]}, {"segment": []}])
    with pytest.raises(ValueError, match="scene 0: the numbers of views differ"):
        data.ArrayScenes([{"image": arrays["image"][0], "camera": np.zeros((2, 3))}])
    with pytest.raises(ValueError, match="No scenes"):
        data.ArrayScenes([])
