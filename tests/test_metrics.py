"""Scores of scenes: reference values, scikit-learn, symmetries, bad input."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from ocloc_jax import metrics
from ocloc_jax.metrics import amodal, clustering, counting, parity, scoring

FEW_SLOTS = {
    "mask": np.zeros((3, 3, 12, 12), np.uint8),
    "shape": None,
    "presence": None,
    "order": None,
}
GOLDEN = pathlib.Path(__file__).parent / "golden" / "metrics.npz"


def make_scene(seed: int = 0, num_slots: int = 4, size: int = 12) -> dict:
    """A random scene of 3 views and up to 3 objects, and a random prediction."""
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 256, (3, 4, size, size), dtype=np.uint8)
    masks *= rng.random(masks.shape) < 0.5
    masks[:, -1] = 255
    visible = masks[:, :3].argmax(axis=1)
    segment = np.where(masks[:, :3].any(axis=1), visible, 3).astype(np.uint8)
    mask = rng.integers(0, 5, (3, num_slots + 1, size, size), dtype=np.uint8)
    return {
        "segment": segment,
        "overlap": (masks[:, :3] > 0).sum(axis=1, dtype=np.uint8),
        "masks": masks,
        "mask": mask * np.uint8(60),
        "shape": rng.integers(0, 256, (3, num_slots, size, size), dtype=np.uint8),
        "presence": rng.random(num_slots, np.float32),
        "order": rng.standard_normal((3, num_slots), np.float32),
        "image": rng.random((3, size, size, 3), np.float32),
        "reconstruction": rng.random((3, size, size, 3), np.float32),
    }


def table_of(true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    table = np.zeros((true.max(initial=0) + 1, predicted.max(initial=0) + 2), np.int64)
    np.add.at(table, (true, predicted), 1)
    return table


def assert_same_scores(first: dict, second: dict, atol: float = 1e-12) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, atol=atol, err_msg=name)


def test_reference_file():
    rows = parity.compare_metrics_file(GOLDEN)
    assert len(rows) == 23
    wrong = [row for row in rows if not row[1] <= min(row[2], 1e-12)]
    assert not wrong


def test_parity_notices_a_wrong_number_and_a_missing_nan():
    with np.load(GOLDEN) as opened:
        arrays = dict(opened)
    arrays["out/iou"] = arrays["out/iou"] + 1e-3
    arrays["per_scene/ooa"] = np.nan_to_num(arrays["per_scene/ooa"])
    errors = {key: error for key, error, _ in parity.compare_metrics_file(arrays)}
    assert errors["out/iou"] == pytest.approx(1e-3)
    assert errors["per_scene/ooa"] == np.inf


def test_float_maps_score_like_8_bit_maps():
    scene = make_scene()
    maps = ("masks", "mask", "shape")
    as_float = {key: scene[key].astype(np.float32) / 255 for key in maps}
    first, second = metrics.score_scene(scene), metrics.score_scene(scene | as_float)
    assert_same_scores(first.values, second.values, atol=1e-6)
    mixed = metrics.score_scene(scene | {"shape": as_float["shape"]})
    assert_same_scores(first.values, mixed.values, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_scikit_learn_on_small_partitions(seed: int, num_pixels: int):
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(0, rng.integers(1, 6, 2)[:, None], (2, num_pixels))
    table = table_of(true, predicted)
    np.testing.assert_allclose(
        clustering.adjusted_rand_index(table),
        sklearn_metrics.adjusted_rand_score(true, predicted),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        clustering.adjusted_mutual_information(table),
        sklearn_metrics.adjusted_mutual_info_score(true, predicted),
        atol=1e-10,
    )


@pytest.mark.parametrize("agreement", [0.0, 0.05, 0.7, 1.0])
def test_scikit_learn_on_a_whole_scene(agreement: float):
    rng = np.random.default_rng(3)
    num_pixels = 8 * 128 * 128
    sizes = np.array([0.75, 0.1, 0.05, 0.05, 0.03, 0.02])
    true, other = rng.choice(6, (2, num_pixels), p=sizes)
    predicted = np.where(rng.random(num_pixels) < agreement, true, other)
    table = table_of(true, predicted)
    ari = sklearn_metrics.adjusted_rand_score(true, predicted)
    ami = sklearn_metrics.adjusted_mutual_info_score(true, predicted)
    single = clustering.adjusted_rand_index(jnp.asarray(table, jnp.int32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(clustering.adjusted_rand_index(table), ari, atol=1e-13)
    np.testing.assert_allclose(single, ari, atol=1e-6)
    np.testing.assert_allclose(
        clustering.adjusted_mutual_information(table), ami, atol=1e-10
    )


def test_expected_information_against_the_full_sum():
    # The definition, term by term over the whole support.
    from scipy import stats

    row, column = np.array([700, 250, 50]), np.array([610, 390])
    expected = 0.0
    for a in row:
        for b in column:
            count = np.arange(1, min(a, b) + 1)
            chance = stats.hypergeom(1000, a, b).pmf(count)
            expected += (chance * count / 1000 * np.log(1000 * count / (a * b))).sum()
    found = clustering.expected_mutual_information(row, column)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("num_pixels", [5_000, 131_072, 1_000_000])
def test_expected_information_may_skip_values(num_pixels: int, monkeypatch):
    # Cells of all widths, some cut off by their support, against every single value.
    row = (np.array([0.7, 0.25, 0.049, 0.001]) * num_pixels).astype(np.int64)
    column = (np.array([0.9, 0.08, 0.02, 0.0]) * row.sum()).astype(np.int64)
    column[-1] += row.sum() - column.sum()
    found = clustering.expected_mutual_information(row, column)
    sampled = clustering._sampled_range

    def every_value(*sizes: np.ndarray):
        low, high, step = sampled(*sizes)
        assert step.max() > 1
        return low, high, np.ones_like(step)

    monkeypatch.setattr(clustering, "_sampled_range", every_value)
    whole = clustering.expected_mutual_information(row, column)
    np.testing.assert_allclose(found, whole, rtol=1e-8)
    assert abs(found - whole) < 1e-13


def test_partitions_without_pixels_or_splits():
    table = np.array([[[0, 0], [0, 0]], [[5, 0], [0, 0]], [[3, 2], [0, 0]]])
    for score in (
        clustering.adjusted_rand_index,
        clustering.adjusted_mutual_information,
    ):
        np.testing.assert_array_equal(score(table), [1, 1, 0])


@pytest.mark.parametrize("shape", [(70_000,), (2, 3, 100)], ids=str)
def test_both_ways_to_count_labels_agree(shape: tuple[int, ...]):
    # More pixels than one block of the product; -1, 4 and 5 are no labels.
    true, predicted = np.random.default_rng(0).integers(-1, 6, (2, *shape), np.int32)
    labels = jnp.asarray(true), jnp.asarray(predicted)
    product, histogram = (
        jax.jit(count, static_argnums=0)((3, 4), *labels)
        for count in (counting._one_hot_product, counting._histogram)
    )
    assert product.shape == (*shape[:-1], 3, 4)
    np.testing.assert_array_equal(product, histogram)
    first = [((true == i) & (predicted == 1)).sum(axis=-1) for i in range(3)]
    np.testing.assert_array_equal(histogram[..., 1], np.stack(first, axis=-1))


def test_8_bit_sums_are_exact_for_large_views():
    # 300 x 300 pixels take two blocks, and the largest values the whole int32 range.
    rng = np.random.default_rng(0)
    shapes = rng.integers(250, 256, (1, 3, 300, 300), dtype=np.uint8)
    segment = rng.integers(0, 3, (1, 300, 300), dtype=np.uint8)
    found = counting.shape_tables(segment, shapes)
    rows = shapes[:, :2].reshape(1, 2, -1).astype(np.int64)
    owner = segment.reshape(1, 1, -1) == np.arange(2)[None, :, None]
    exact = np.einsum("vip,vjp->vij", rows, rows)
    owned = np.einsum("vip,vjp->vij", rows * owner, rows)
    np.testing.assert_array_equal(np.rint(found.shared * 255**2), exact)
    np.testing.assert_array_equal(np.rint(found.owned * 255**2), owned)
    np.testing.assert_array_equal(np.rint(found.area * 255), rows.sum(axis=-1))


@pytest.mark.parametrize("height", [257, 300])  # 16 bits hold 257 rows
def test_8_bit_intersections_are_exact(height: int):
    shapes, predicted = np.full((2, 1, 3, height, 4), 255, np.uint8)
    predicted[:, 2, 0] = 7
    both, area = counting.intersections(shapes, predicted, np.array([2, 0]))
    whole = 4.0 * height
    exact = [[255 * whole - 4 * 248, 255 * whole]]
    np.testing.assert_array_equal(np.rint(both * 255), exact)
    np.testing.assert_array_equal(area, both)


@pytest.mark.parametrize("num_slots", [63, 64])  # 8 bits hold the labels of 63
def test_many_slots_are_counted_one_by_one(num_slots: int):
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 256, (2, num_slots + 1, 9, 9), dtype=np.uint8)
    segment = rng.integers(0, 4, (2, 9, 9), dtype=np.uint8)
    found = counting.partition_tables(segment, segment < 3, mask, 3)
    for label, slot in [(0, 0), (1, num_slots - 1), (3, num_slots)]:
        chosen = mask.argmax(axis=1) == slot
        exact = ((segment == label) & chosen).sum(axis=(1, 2))
        np.testing.assert_array_equal(found.everything[:, label, slot], exact)
    winner = mask[:, :-1].argmax(axis=1)
    last = ((segment == 2) & (winner == num_slots - 1)).sum(axis=(1, 2))
    np.testing.assert_array_equal(found.objects[:, 2, -1], last)


@pytest.mark.parametrize("seed", range(3))
def test_order_of_slots_and_views_does_not_matter(seed: int):
    scene = make_scene(seed)
    scene["mask"] = np.random.default_rng(seed).random(scene["mask"].shape, np.float32)
    rng = np.random.default_rng(seed)
    slots, views = rng.permutation(4), rng.permutation(3)
    layers = np.append(slots, 4)
    moved = {key: value[views] for key, value in scene.items() if key != "presence"}
    moved["mask"], moved["shape"] = moved["mask"][:, layers], moved["shape"][:, slots]
    moved["order"], moved["presence"] = (
        moved["order"][:, slots],
        scene["presence"][slots],
    )
    first, second = metrics.score_scene(scene), metrics.score_scene(moved)
    assert_same_scores(first.values, second.values, atol=1e-7)
    np.testing.assert_array_equal(slots[second.matching], first.matching)


def test_true_labels_may_be_permuted():
    scene = make_scene()
    new = np.array([2, 0, 1, 3])  # old object i becomes new[i]
    moved = scene | {"segment": new[scene["segment"]].astype(np.uint8)}
    moved["masks"] = scene["masks"][:, np.argsort(new)]
    first, second = metrics.score_scene(scene), metrics.score_scene(moved)
    # OOA alone depends on who comes first, through ties: here there are none.
    assert_same_scores(first.values, second.values)


def test_perfect_prediction_of_an_occluded_scene():
    masks = np.zeros((2, 3, 8, 8), np.uint8)
    masks[:, 0, :5], masks[:, 1, 3:], masks[:, 2] = 255, 255, 255
    segment = np.full((2, 8, 8), 0, np.uint8)
    segment[0, 3:], segment[1, 5:] = 1, 1  # nearer: object 1 in view 0, 0 in view 1
    hard = (segment[:, None] == np.arange(3)[:, None, None]) * np.uint8(255)
    result = metrics.evaluate(
        segment=segment[None],
        overlap=(masks[:, :2] > 0).sum(axis=1)[None],
        masks=masks[None],
        mask=hard[None, :, [1, 0, 2]],
        shape=masks[None, :, [1, 0]],
        presence=np.ones((1, 2), np.float32),
        order=np.array([[[5.0, 1.0], [-2.0, 3.0]]], np.float32),
    )
    for kind in ("pooled", "per_scene"):
        assert {result[kind][name] for name in metrics.METRICS} == {1.0}


def test_averages_pool_objects_and_overlaps():
    empty = make_scene(1)
    empty["masks"][:, :3], empty["overlap"][:], empty["segment"][:] = 0, 0, 3
    one = make_scene(2)
    one["masks"][:, 1:3] = 0
    scores = [metrics.score_scene(s) for s in (make_scene(0), one, empty)]
    result = metrics.summarize(scores)
    objects = np.concatenate([s.object_iou for s in scores])
    assert np.isnan(objects).sum() == 5
    assert result["pooled"]["iou"] == pytest.approx(np.nanmean(objects))
    assert result["per_scene"]["iou"] == pytest.approx(
        np.mean([np.mean(scores[0].object_iou), scores[1].object_iou[0]])
    )
    assert result["pooled"]["iou"] != pytest.approx(result["per_scene"]["iou"])
    assert np.isnan(result["scenes"]["ooa"]).tolist() == [False, True, True]
    assert result["pooled"]["ooa"] == pytest.approx(result["scenes"]["ooa"][0])
    assert (scores[2].values["ari_o"], scores[2].values["ami_o"]) == (1.0, 1.0)


def test_mse_and_psnr():
    scene = make_scene()
    scene["image"] = np.zeros((3, 12, 12, 3), np.uint8)
    scene["reconstruction"] = np.full((3, 12, 12, 3), 0.1, np.float32)
    values = metrics.score_scene(scene).values
    assert values["mse"] == pytest.approx(0.01)
    assert values["psnr"] == pytest.approx(20.0)


def test_without_labels_only_the_reconstruction_is_scored():
    scene = make_scene()
    whole = metrics.score_scene(scene).values
    images = {key: scene[key] for key in ("image", "reconstruction", "mask")}
    result = metrics.evaluate_scenes([images])["pooled"]
    assert {name for name, x in result.items() if x == x} == {"mse", "psnr"}
    assert (result["mse"], result["psnr"]) == (whole["mse"], whole["psnr"])
    images["image"] = scene["image"][:, :5]
    with pytest.raises(ValueError, match="`reconstruction`.*disagree: axis h"):
        metrics.score_scene(images)
    with pytest.raises(ValueError, match=r"\['image'\] are missing"):
        metrics.score_scene({"reconstruction": scene["reconstruction"]})


def test_what_is_not_predicted_is_nan():
    scene = make_scene()
    result = metrics.evaluate(
        segment=scene["segment"][None], mask=scene["mask"][None], num_objects=3
    )
    known = {name for name in metrics.METRICS if not np.isnan(result["pooled"][name])}
    assert known == {"ari_a", "ami_a", "ari_o", "ami_o"}


def test_hidden_objects_take_a_slot_that_is_left_over():
    overlap = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    np.testing.assert_array_equal(amodal.match(overlap), [0, 2])
    np.testing.assert_array_equal(amodal.match(np.zeros((2, 3))), [0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (FEW_SLOTS, "2 object slots for up to 3"),
        ({"shape": np.zeros((3, 4, 12, 11), np.uint8)}, "`shape` .* disagree: axis w"),
        ({"mask": np.zeros((3, 5, 12, 12))[0]}, r"expected \[v k\+1 h w\]"),
        ({"mask": np.full((3, 5, 12, 12), 255.0)}, r"must lie in \[0, 1\]"),
        ({"mask": np.full((3, 5, 12, 12), np.nan)}, r"must lie in \[0, 1\]"),
        ({"mask": np.zeros((3, 5, 12, 12), np.int64)}, "has dtype int64"),
        ({"segment": np.full((3, 12, 12), 4, np.uint8)}, "the background is 3"),
        ({"num_objects": 5}, "`masks` has 3 objects"),
        ({"masks": None}, "give `num_objects`"),
        ({"mask": None}, r"\['mask'\] are missing"),
        ({"labels": np.zeros(3)}, r"Unknown arrays \['labels'\]"),
    ],
)
def test_bad_input_says_what_is_wrong(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        metrics.score_scene(make_scene() | change)


def test_scenes_must_be_as_many_everywhere():
    scene = {key: value[None] for key, value in make_scene().items()}
    with pytest.raises(ValueError, match="different numbers of scenes"):
        metrics.evaluate(**scene | {"order": np.zeros((2, 3, 4), np.float32)})
    with pytest.raises(ValueError, match="no scenes"):
        metrics.evaluate_scenes([])


def test_streamed_scenes_score_like_stacked_ones():
    scenes = [make_scene(seed) for seed in range(6)]
    stacked = metrics.evaluate(
        **{key: np.stack([scene[key] for scene in scenes]) for key in scenes[0]}
    )
    for num_threads in (1, 3):
        streamed = metrics.evaluate_scenes(iter(scenes), num_threads=num_threads)
        assert_same_scores(streamed["scenes"], stacked["scenes"])
        assert_same_scores(streamed["pooled"], stacked["pooled"])


def test_few_scenes_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch):
    done, ahead = [], []

    def score(scene: dict) -> metrics.SceneScores:
        result = metrics.score_scene(scene)
        done.append(result)
        return result

    def scenes():
        for seed in range(12):
            ahead.append(seed - len(done))
            yield make_scene(seed)

    monkeypatch.setattr(scoring, "score_scene", score)
    metrics.evaluate_scenes(scenes(), num_threads=2)
    assert len(done) == 12
    assert max(ahead) <= 3


def test_passes_are_summarized():
    result = metrics.mean_and_deviation([{"iou": 0.5}, {"iou": 0.7}])
    assert result["iou"]["mean"] == pytest.approx(0.6)
    assert result["iou"]["sd"] == pytest.approx(0.1)


def test_scenes_on_a_device_are_accepted():
    scene = make_scene()
    on_device = {key: jax.device_put(value) for key, value in scene.items()}
    first, second = metrics.score_scene(scene), metrics.score_scene(on_device)
    assert_same_scores(first.values, second.values)
