"""Constancy of objects on scenes made by hand, and the camera probe."""

import numpy as np
import pytest

from ocloc_jax import metrics
from ocloc_jax.metrics import constancy, probe


def hand_made(slots: list[list[int]], hidden: float = 0.0) -> dict:
    """Two objects in stripes; `slots[view][object]` is the slot that draws it.

    In the last view the first object lies wholly behind the second one; `hidden` is
    how much of it the prediction knows there.
    """
    num_views, size = len(slots) + 1, 6
    masks = np.zeros((num_views, 3, size, size), np.float32)
    masks[:, 0, :2], masks[:, 1, 2:4], masks[:, 2] = 1, 1, 1
    masks[-1, 1, :2] = 1
    segment = np.full((num_views, size, size), 2, np.uint8)
    segment[:, :2], segment[:, 2:4] = 0, 1
    segment[-1, :2] = 1
    mask = np.zeros((num_views, 5, size, size), np.float32)
    mask[:, -1] = 0.5
    shape = np.zeros((num_views, 4, size, size), np.float32)
    for view, pair in enumerate([*slots, slots[0]]):
        for number, slot in enumerate(pair):
            mask[view, slot] += segment[view] == number
            shape[view, slot] = masks[view, number]
    shape[-1, slots[0][0]] *= hidden
    scene = {"segment": segment, "masks": masks, "shape": shape}
    mask /= mask.sum(axis=1, keepdims=True)
    return scene | {"mask": mask, "presence": np.array([1, 1, 0, 0], np.float32)}


def test_switches_are_counted_over_pairs_of_views():
    steady = metrics.score_scene(hand_made([[0, 1], [0, 1], [0, 1]]))
    assert constancy.identity_switch_rate([steady])["rate"] == 0
    # Object 0: views 0..2, one of them differs: 2 of 3 pairs. Object 1: 4 views, one
    # differs: 3 of 6 pairs.
    swapped = metrics.score_scene(hand_made([[0, 1], [0, 1], [1, 0]]))
    found = constancy.identity_switch_rate([swapped])
    assert (found["num_switches"], found["num_pairs"]) == (5, 9)
    both = constancy.identity_switch_rate([steady, swapped])
    assert both["rate"] == pytest.approx(5 / 18)


def test_switches_need_two_views_of_an_object():
    scene = constancy.first_views(hand_made([[0, 1], [1, 0]]), 1)
    found = constancy.identity_switch_rate([metrics.score_scene(scene)])
    assert np.isnan(found["rate"])
    assert found["num_pairs"] == 0
    whole = metrics.score_scene(hand_made([[0, 1], [1, 0]]))
    large = constancy.identity_switch_rate([whole], min_pixels=13)
    assert large["num_pairs"] == 0  # only the last view shows 24 pixels of object 1


@pytest.mark.parametrize("known", [0.0, 0.25, 1.0])
def test_recall_of_hidden_objects(known: float):
    scores = metrics.score_scene(hand_made([[2, 1], [2, 1]], hidden=known))
    found = constancy.hidden_recall([scores])
    assert found["recall"] == pytest.approx(known)
    assert found["num_views"] == 1


def test_nothing_hidden_has_no_recall():
    scene = constancy.first_views(hand_made([[0, 1], [0, 1]]), 2)
    found = constancy.hidden_recall([metrics.score_scene(scene)])
    assert np.isnan(found["recall"])
    assert found["num_views"] == 0
    without = metrics.score_scene(scene | {"shape": None})
    with pytest.raises(ValueError, match="`masks` and `shape`"):
        constancy.hidden_recall([without])


def test_objects_that_no_view_shows_are_not_asked_for():
    scene = {
        key: value if key == "presence" else value[-1:]
        for key, value in hand_made([[0, 1]]).items()
    }
    assert constancy.hidden_recall([metrics.score_scene(scene)])["num_views"] == 0


def test_curve_falls_where_a_view_swaps_the_objects():
    scene = hand_made([[0, 1], [0, 1], [1, 0]])
    curve = constancy.accuracy_by_views(
        {count: [constancy.first_views(scene, count)] for count in (3, 1, 2)}
    )
    np.testing.assert_array_equal(curve["num_views"], [1, 2, 3])
    assert curve["ari_o"][0] == curve["ari_o"][1] == 1
    assert curve["ari_o"][2] < 0.5
    with pytest.raises(ValueError, match="Cannot keep 5 of 4 views"):
        constancy.first_views(scene, 5)


def random_cameras(num_scenes: int = 40, num_views: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = [0, 0.15 * np.pi, 10.5], [2 * np.pi, 0.3 * np.pi, 12]
    return rng.uniform(low, high, (num_scenes, num_views, 3)).astype(np.float32)


def test_probe_reads_a_linear_code_and_not_noise():
    rng = np.random.default_rng(1)
    camera = random_cameras()
    code = probe.camera_targets(camera) @ rng.standard_normal((4, 6)) + 3
    found = probe.camera_probe(code.astype(np.float32), camera, penalty=1e-8)
    assert all(found[name] > 0.999 for name in probe.TARGETS)
    assert found["azimuth_error"] < 0.01
    noise = rng.standard_normal((40, 8, 6)).astype(np.float32)
    found = probe.camera_probe(noise, camera)
    assert all(found[name] < 0.1 for name in probe.TARGETS)
    assert found["azimuth_error"] == pytest.approx(np.pi / 2, abs=0.3)


def test_probe_judges_on_scenes_it_has_not_seen():
    # Every scene has its own zero direction: elevation can be read, azimuth cannot.
    rng = np.random.default_rng(2)
    camera = random_cameras()
    turned = camera.copy()
    turned[..., 0] += rng.uniform(0, 2 * np.pi, (40, 1))
    code = probe.camera_targets(turned).astype(np.float32)
    found = probe.camera_probe(code, camera)
    assert found["elevation"] > 0.99
    assert found["azimuth_sin"] < 0.5


def test_probe_handles_constant_inputs_and_too_few_scenes():
    camera = random_cameras()
    camera[..., 2] = 11
    code = np.zeros((40, 8, 3), np.float32)
    code[..., 0] = camera[..., 1]
    found = probe.camera_probe(code, camera)
    assert found["elevation"] > 0.99
    assert np.isnan(found["distance"])
    with pytest.raises(ValueError, match="more scenes"):
        probe.camera_probe(code[:1], camera[:1])


def test_ridge_meets_its_closed_form():
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((50, 3)), rng.standard_normal((50, 2))
    weights, offset = probe.ridge(inputs, targets, penalty=0.1)
    standard = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    gram = standard.T @ standard + 0.1 * 50 * np.eye(3)
    exact = np.linalg.solve(gram, standard.T @ (targets - targets.mean(axis=0)))
    np.testing.assert_allclose(weights * inputs.std(axis=0)[:, None], exact)
    np.testing.assert_allclose((inputs @ weights + offset).mean(0), targets.mean(0))
