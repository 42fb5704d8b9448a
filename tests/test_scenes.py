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
from ocloc_jax.scenes.shading import Surface
from ocloc_jax.scenes.spec import TARGET_HEIGHT
from ocloc_jax.scenes.vector import Vector

SPEC = scenes.SceneSpec(size=32, num_views=3, min_objects=2, max_objects=4)
N = SPEC.max_objects


@functools.cache
def rendered(index: int = 0) -> renderer.Record:
    return scenes.render(SPEC, seed=0, index=index)


def scene_of(index: int) -> sample.Scene:
    spec = renderer.layout_spec(SPEC)
    return renderer.sample_scene(spec, np.uint32(0), np.uint32(index))[1]


def objects_of(index: int) -> sample.Objects:
    return scene_of(index).objects


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


def test_same_seed_and_index_give_the_same_bytes_and_others_do_not():
    assert_same(rendered(), scenes.render(SPEC, seed=0, index=0))
    for other in (rendered(1), scenes.render(SPEC, seed=1, index=0)):
        for key in ("image", "masks", "camera"):
            assert (other[key] != rendered()[key]).any()


def test_a_batch_equals_its_scenes_one_by_one():
    batch = scenes.render_batch(SPEC, seed=0, indices=[2, 0])
    for i, index in enumerate((2, 0)):
        assert_same({key: value[i] for key, value in batch.items()}, rendered(index))


def test_own_cameras_show_the_same_scene():
    turned = {key: value[::-1] for key, value in rendered().items()}
    assert_same(scenes.render_cameras(SPEC, 0, 0, turned["camera"]), turned)
    with pytest.raises(ValueError, match="cameras is empty"):
        scenes.render_cameras(SPEC, 0, 0, turned["camera"][:0])


def test_the_first_views_stay_when_more_are_asked_for():
    more = scenes.render(dataclasses.replace(SPEC, num_views=11), seed=0, index=0)
    assert_same({key: value[:3] for key, value in more.items()}, rendered())
    assert len(np.unique(more["camera"], axis=0)) == 11


def test_counts_and_arcs_share_one_compiled_program():
    rendered()
    before = renderer.render_view._cache_size()
    other = dataclasses.replace(SPEC, num_views=1, min_objects=0, arc=0.1)
    scenes.render(other, seed=0, index=0)
    assert renderer.render_view._cache_size() == before


def test_sizes_share_scene_camera_and_framing():
    small = scenes.render(dataclasses.replace(SPEC, size=16), seed=0, index=0)
    np.testing.assert_array_equal(small["camera"], rendered()["camera"])
    np.testing.assert_array_equal(small["order"], rendered()["order"])
    image = rendered()["image"].reshape(3, 16, 2, 16, 2, 3).mean((2, 4))
    assert np.abs(image - small["image"]).mean() < 2
    masks = rendered()["masks"].reshape(3, N + 1, 16, 2, 16, 2).mean((3, 5))
    assert np.abs(masks - small["masks"]).mean() < 2


def test_shadows_fall_on_the_ground_away_from_the_key_light():
    without = scenes.render(dataclasses.replace(SPEC, shadows=False), 0, 1)
    record, objects = rendered(1), objects_of(1)
    assert_same(*({k: r[k] for k in ("masks", "camera")} for r in (record, without)))
    darker = without["image"].astype(int).mean(-1) - record["image"].mean(-1)
    ground = record["masks"][:, :N].max(1) == 0
    assert (darker[ground] >= -1).all() and (darker[ground] > 25).sum() > 30
    key_light = np.array(lights.make_lights(scene_of(1).light_jitter)[0].toward)
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
    objects = sample.Objects(
        position=jnp.array([[0.0, -0.9], [0.0, 0.9], [0.0, 0.0], [0.0, 0.0]]),
        radius=jnp.array([0.7, 0.7, 0.7, 0.7]),
        yaw=jnp.zeros(4),
        kind=jnp.full(4, sample.SPHERE),
        colour=jnp.array([(0.5, 0.5, 0.5), other, other, other]),
        metal=jnp.array([metal, False, False, False]),
        present=jnp.array([True, True, False, False]),
    )
    like = objects_of(0)
    # Keeps types as they are, so that the program is not compiled again.
    objects = jax.tree.map(lambda new, old: old.at[...].set(new), objects, like)
    return scene_of(0)._replace(objects=objects)


@pytest.mark.parametrize(("azimuth", "near"), [(-np.pi / 2, 0), (np.pi / 2, 1)])
def test_where_shapes_overlap_the_nearer_one_is_seen(azimuth: float, near: int):
    camera, pair = jnp.array([azimuth, 0.2, 10.5]), facing_pair(False, (0.9, 0, 0))
    spec = renderer.picture_spec(SPEC)
    view = jax.device_get(renderer.render_view(spec, pair, camera))
    assert view["order"].argmax() == near
    both = (view["masks"][:2] == 255).all(axis=0)
    assert both.sum() > 10
    assert (view["overlap"][both] == 2).all()
    assert (view["segment"][both] == near).all()


@pytest.mark.parametrize("metal", [True, False])
def test_metal_and_only_metal_mirrors_its_neighbour(metal: bool):
    camera = jnp.array([0.0, 0.5, 10.5])
    spec = renderer.picture_spec(SPEC)
    red, blue = (
        jax.device_get(renderer.render_view(spec, facing_pair(metal, colour), camera))
        for colour in ((0.9, 0.05, 0.05), (0.05, 0.05, 0.9))
    )
    changed = np.abs(red["image"].astype(int) - blue["image"]).max(-1)
    inside = changed[(red["masks"][0] == 255)]
    assert len(inside) > 30
    assert ((inside > 15).sum() > 3) == metal
    assert (changed[red["masks"][1] == 255] > 40).all()
    assert (changed[red["masks"][:2].max(0) == 0] == 0).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_metal_rays_move_to_the_front_and_back(share: float):
    wanted = np.random.default_rng(0).random(1000) < share
    rank, order, count = tracer._compact(jnp.array(wanted))
    assert count == wanted.sum()
    np.testing.assert_array_equal(order[:count], np.flatnonzero(wanted))
    np.testing.assert_array_equal(order[rank][wanted], np.arange(1000)[wanted])


def test_mirror_rays_are_traced_in_as_many_blocks_as_there_are(monkeypatch):
    """Stands in for the tracing of a block; see what goes in and comes out."""
    monkeypatch.setattr(tracer, "_BLOCK", 64)
    monkeypatch.setattr(
        tracer, "_reflect", lambda world, start, owner: Vector(*start[:3])
    )
    rng = np.random.default_rng(0)
    point = Vector(*jnp.array(rng.random((3, 2, 500)), jnp.float32))
    metal = jnp.array(rng.random((2, 500)) < 0.4)
    surface = Surface(point, point, point, metal.astype(jnp.int32), metal, metal)
    seen = tracer.mirror(renderer.make_world(SPEC, scene_of(0)), surface, point)
    for found, given in zip(seen, point, strict=True):
        np.testing.assert_array_equal(found, jnp.where(metal, given, 0.0))


@pytest.mark.parametrize("background", ["textured", "sky"])
def test_backgrounds_are_coloured_and_differ_between_scenes(background: str):
    spec = dataclasses.replace(
        SPEC, background=background, size=15, samples=9, num_views=2
    )
    first, second = (scenes.render(spec, 0, index) for index in (0, 1))
    assert first["image"].shape == (2, 15, 15, 3)
    vivid = []
    for record in (first, second):
        ground = record["image"][record["masks"][:, :N].max(1) == 0].astype(int)
        vivid.append(ground[np.ptp(ground, axis=-1).argmax()])
    assert np.ptp(vivid[0]) > 15  # not grey
    assert np.abs(vivid[0] - vivid[1]).max() > 10
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
