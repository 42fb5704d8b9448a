"""Rendered scenes: records, labels against an oracle, light, and purity."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scene_oracle as oracle

from ocloc_jax import scenes
from ocloc_jax.scenes import camera as cameras
from ocloc_jax.scenes import lights, renderer, sample, tracer
from ocloc_jax.scenes.spec import TARGET_HEIGHT

SPEC = scenes.SceneSpec(size=32, num_views=3, min_objects=2, max_objects=4)
N = SPEC.max_objects


@functools.cache
def rendered(index: int = 0) -> renderer.Record:
    return scenes.render(SPEC, seed=0, index=index)


def objects_of(index: int, seed: int = 0) -> sample.Objects:
    one_view = dataclasses.replace(SPEC, num_views=1)
    return renderer._start_scene(one_view, np.uint32(seed), np.uint32(index))[1].objects


def assert_same(one: renderer.Record, other: renderer.Record) -> None:
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def test_record_has_the_shared_keys_dtypes_and_shapes():
    v, s = SPEC.num_views, SPEC.size
    expected = {
        "image": (np.uint8, (v, s, s, 3)),
        "segment": (np.uint8, (v, s, s)),
        "overlap": (np.uint8, (v, s, s)),
        "masks": (np.uint8, (v, N + 1, s, s)),
        "order": (np.float32, (v, N)),
        "camera": (np.float32, (v, 3)),
    }
    found = {key: (value.dtype, value.shape) for key, value in rendered().items()}
    assert found == expected


def test_labels_equal_those_of_the_oracle():
    for index in range(3):
        record, objects = rendered(index), objects_of(index)
        for view in range(SPEC.num_views):
            origin, rays = oracle.look(
                record["camera"][view], 32, 2, SPEC.field_of_view, TARGET_HEIGHT
            )
            depth = np.stack([oracle.enter(objects, k, origin, rays) for k in range(N)])
            depth[~np.asarray(objects.present)] = np.inf
            covered = np.isfinite(depth).mean(-1)
            masks = np.round(covered * 255)
            assert (record["masks"][view, :N] == masks).mean() > 0.999
            overlap = (covered >= 0.5).sum(0)
            assert (record["overlap"][view] == overlap).mean() > 0.999
            first = np.where(np.isfinite(depth.min(0)), depth.argmin(0), N)
            seen = np.stack([(first == k).sum(-1) for k in range(N)])
            segment = np.where(overlap > 0, seen.argmax(0), N)
            assert (record["segment"][view] == segment).mean() > 0.998


@pytest.mark.parametrize("index", range(6))
def test_labels_agree_with_each_other(index: int):
    record, present = rendered(index), np.asarray(objects_of(index).present)
    segment, masks = record["segment"], record["masks"]
    for k in range(N):
        assert (masks[:, k][segment == k] > 0).all()
        assert masks[:, k].any() == present[k]
    assert (masks[:, N] == 255).all()
    assert segment.max() == N
    np.testing.assert_array_equal(record["overlap"], (masks[:, :N] >= 128).sum(1))
    np.testing.assert_array_equal(record["overlap"] > 0, segment < N)
    # Alone in a pixel, an object is visible there.
    alone = (masks[:, :N] == 255) & ((masks[:, :N] > 0).sum(1, keepdims=True) == 1)
    view, k, row, column = np.nonzero(alone)
    np.testing.assert_array_equal(segment[view, row, column], k)
    np.testing.assert_array_equal(record["order"] == -1e9, ~present[None].repeat(3, 0))


def test_order_is_minus_the_distance_and_centres_lie_in_masks():
    checked = 0
    for index in range(4):
        record, objects = rendered(index), objects_of(index)
        for camera, order, masks in zip(
            record["camera"], record["order"], record["masks"], strict=True
        ):
            origin = np.array(cameras.camera_position(jnp.array(camera)))
            for k in np.flatnonzero(objects.present):
                cube = objects.kind[k] == sample.CUBE
                height = objects.radius[k] * (0.5**0.5 if cube else 1)
                centre = jnp.array([*objects.position[k], height])
                distance = np.linalg.norm(np.array(centre) - origin)
                np.testing.assert_allclose(order[k], -distance, rtol=1e-5)
                column, row, _ = cameras.project(SPEC, jnp.array(camera), centre)
                assert masks[k, int(row), int(column)] == 255
                checked += 1
    assert checked > 20


def test_where_shapes_overlap_the_nearer_one_is_seen():
    nearer = farther = 0
    for index in range(6):
        record = rendered(index)
        for order, masks, segment in zip(
            record["order"], record["masks"], record["segment"], strict=True
        ):
            for a, b in np.argwhere(order[:, None] > order[None]):
                both = (masks[a] == 255) & (masks[b] == 255)
                nearer += (segment[both] == a).sum()
                farther += (segment[both] == b).sum()
    # Centres decide for all but flat views of large objects behind small ones.
    assert nearer > 20 and nearer > 20 * farther


def test_same_seed_and_index_give_the_same_bytes_and_others_do_not():
    assert_same(rendered(), scenes.render(SPEC, seed=0, index=0))
    for other in (rendered(1), scenes.render(SPEC, seed=1, index=0)):
        for key in ("image", "masks", "camera"):
            assert (other[key] != rendered()[key]).any()


def test_a_batch_equals_its_scenes_one_by_one():
    batch = scenes.render_batch(SPEC, seed=0, indices=[2, 0])
    for i, index in enumerate((2, 0)):
        assert_same({key: value[i] for key, value in batch.items()}, rendered(index))


def test_the_first_views_stay_when_more_are_asked_for():
    more = scenes.render(dataclasses.replace(SPEC, num_views=11), seed=0, index=0)
    assert_same({key: value[:3] for key, value in more.items()}, rendered())
    assert len(np.unique(more["camera"], axis=0)) == 11


def test_sizes_share_scene_camera_and_framing():
    large = scenes.render(dataclasses.replace(SPEC, size=64), seed=0, index=0)
    np.testing.assert_array_equal(large["camera"], rendered()["camera"])
    np.testing.assert_array_equal(large["order"], rendered()["order"])
    image = large["image"].reshape(3, 32, 2, 32, 2, 3).mean((2, 4))
    assert np.abs(image - rendered()["image"]).mean() < 1.5
    masks = large["masks"].reshape(3, N + 1, 32, 2, 32, 2).mean((3, 5))
    assert np.abs(masks - rendered()["masks"]).mean() < 1.5


def test_shadows_fall_on_the_ground_away_from_the_key_light():
    without = scenes.render(dataclasses.replace(SPEC, shadows=False), 0, 1)
    record, objects = rendered(1), objects_of(1)
    assert_same(*({k: r[k] for k in ("masks", "camera")} for r in (record, without)))
    darker = without["image"].astype(int).mean(-1) - record["image"].mean(-1)
    ground = record["masks"][:, :N].max(1) == 0
    assert (darker[ground] >= -1).all() and (darker[ground] > 25).sum() > 30
    one_view = dataclasses.replace(SPEC, num_views=1)
    scene = renderer._start_scene(one_view, np.uint32(0), np.uint32(1))[1]
    key_light = np.array(lights.make_lights(scene.light_jitter)[0].toward)
    for view in range(SPEC.num_views):
        origin, rays = oracle.look(
            record["camera"][view], 32, 1, SPEC.field_of_view, TARGET_HEIGHT
        )
        rays = rays[:, :, 0]
        points = origin - rays * (origin[2] / rays[..., 2:])
        dark = points[(darker[view] > 25) & ground[view]][:, :2]
        centres = np.asarray(objects.position)[np.asarray(objects.present)]
        away = dark[:, None] - centres[None]
        away = away[np.arange(len(dark)), np.linalg.norm(away, axis=-1).argmin(-1)]
        assert (away @ key_light[:2]).mean() < -0.1


def facing_pair(metal: bool, other: tuple[float, float, float]) -> sample.Scene:
    """A sphere next to a large one of the colour `other`."""
    one_view = dataclasses.replace(SPEC, num_views=1)
    scene = renderer._start_scene(one_view, np.uint32(0), np.uint32(0))[1]
    objects = sample.Objects(
        position=jnp.array([[0.0, -0.9], [0.0, 0.9], [0.0, 0.0], [0.0, 0.0]]),
        radius=jnp.array([0.7, 0.7, 0.7, 0.7]),
        yaw=jnp.zeros(4),
        kind=jnp.full(4, sample.SPHERE),
        colour=jnp.array([(0.5, 0.5, 0.5), other, other, other]),
        metal=jnp.array([metal, False, False, False]),
        present=jnp.array([True, True, False, False]),
    )
    return scene._replace(objects=objects)


@pytest.mark.parametrize("metal", [True, False])
def test_metal_and_only_metal_mirrors_its_neighbour(metal: bool):
    camera = jnp.array([0.0, 0.5, 10.5])
    view = jax.jit(renderer.render_view, static_argnums=0)
    red, blue = (
        jax.device_get(view(SPEC, facing_pair(metal, colour), camera))
        for colour in ((0.9, 0.05, 0.05), (0.05, 0.05, 0.9))
    )
    changed = np.abs(red["image"].astype(int) - blue["image"]).max(-1)
    inside = changed[(red["masks"][0] == 255)]
    assert len(inside) > 30
    assert ((inside > 40).sum() > 3) == metal
    assert (changed[red["masks"][1] == 255] > 40).all()
    assert (changed[red["masks"][:2].max(0) == 0] == 0).all()


def test_mirror_rays_are_all_traced(monkeypatch):
    """Blocks far smaller than the metal area give the same picture."""
    camera, scene = jnp.array([0.0, 0.5, 10.5]), facing_pair(True, (0.9, 0.1, 0.1))
    whole = jax.device_get(renderer.render_view(SPEC, scene, camera))
    monkeypatch.setattr(tracer, "_BLOCK", 100)
    blocks = jax.device_get(renderer.render_view(SPEC, scene, camera))
    difference = np.abs(whole["image"].astype(int) - blocks["image"])
    assert difference.max() <= 1


@pytest.mark.parametrize("background", ["textured", "sky"])
def test_backgrounds_differ_between_scenes_but_labels_do_not(background: str):
    spec = dataclasses.replace(
        SPEC, background=background, size=15, samples=9, max_objects=2, num_views=2
    )
    first, second = (scenes.render(spec, 0, index) for index in (0, 1))
    assert first["image"].shape == (2, 15, 15, 3)
    colours = [
        record["image"][record["segment"] == 2].astype(float)
        for record in (first, second)
    ]
    spread = [np.ptp(colour, axis=-1).max() for colour in colours]
    assert max(spread) > 15  # not grey
    assert np.abs(colours[0].mean(0) - colours[1].mean(0)).max() > 3
    ninths = np.round(np.arange(10) / 9 * 255)
    assert set(np.unique(first["masks"])) <= set(ninths)


def test_pictures_use_the_range_without_clipping():
    images = np.stack([rendered(index)["image"] for index in range(6)])
    assert 90 < images.mean() < 170
    assert images.min() < 60 and (images == 255).mean() < 0.01


@pytest.mark.parametrize(
    ("seed", "indices", "message"),
    [(0, [], "empty"), (0, [-1], "index=-1"), (2**32, [0], "seed=4294967296")],
)
def test_bad_names_of_scenes_are_refused(seed, indices, message):
    with pytest.raises(ValueError, match=message):
        scenes.render_batch(SPEC, seed, indices)
