"""Layouts, cameras and the checks of a spec."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax.scenes import SceneSpec, camera, sample
from ocloc_jax.scenes.spec import COLOURS, SIZES, TARGET_HEIGHT


@functools.cache
def sample_many(spec: SceneSpec, count: int = 500) -> sample.Objects:
    keys = jax.random.split(jax.random.key(1), count)
    draw = jax.vmap(lambda key: sample.sample_scene(spec, key).objects)
    return jax.tree.map(np.asarray, jax.jit(draw)(keys))


def smallest_gap(objects: sample.Objects) -> float:
    offset = objects.position[:, :, None] - objects.position[:, None]
    gap = np.linalg.norm(offset, axis=-1)
    gap = gap - objects.radius[:, :, None] - objects.radius[:, None]
    both = objects.present[:, :, None] & objects.present[:, None]
    return gap[both & ~np.eye(gap.shape[-1], dtype=bool)].min()


@functools.partial(jax.jit, static_argnums=0)
def _project(spec: SceneSpec, camera_: jax.Array, points: jax.Array) -> jax.Array:
    return jax.vmap(lambda point: camera.project(spec, camera_, point))(points)


def extent(objects: sample.Objects, camera_: np.ndarray, spec: SceneSpec) -> float:
    """Largest image coordinate of any object's bounding cylinder, 1 is the border."""
    angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    radius = objects.radius[objects.present][:, None]
    centre = objects.position[objects.present][:, None]
    ring = centre + radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    points = [
        np.concatenate([ring, np.broadcast_to(z[..., None], (*ring.shape[:2], 1))], -1)
        for z in (0 * radius, 2 * radius)
    ]
    points = jnp.array(np.concatenate(points).reshape(-1, 3), jnp.float32)
    pixels = np.asarray(_project(spec, jnp.array(camera_), points))
    assert (pixels[:, 2] > 0).all()
    return np.abs(pixels[:, :2] / spec.size * 2 - 1).max()


@pytest.mark.parametrize("counts", [(3, 6), (7, 10)])
def test_objects_are_apart_and_in_view_of_the_closest_cameras(counts):
    spec = SceneSpec(min_objects=counts[0], max_objects=counts[1])
    objects = sample_many(spec)
    assert smallest_gap(objects) >= 0.99 * sample.GAP * 0.6
    number = objects.present.sum(axis=-1)
    assert set(number) == set(range(counts[0], counts[1] + 1))
    cameras = [
        np.array([a, e, spec.distance[0]], np.float32)
        for a in np.linspace(0, 6, 7)
        for e in spec.elevation
    ]
    worst = max(extent(objects, camera_, spec) for camera_ in cameras)
    assert 0.9 < worst <= 1.0 + 1e-4  # in view, and the view is used


def test_usual_scenes_keep_the_two_sizes():
    objects = sample_many(SceneSpec())
    known = np.isclose(objects.radius[..., None], SIZES, rtol=1e-5).any(axis=-1)
    assert known.mean() > 0.99
    crowded = sample_many(SceneSpec(min_objects=7, max_objects=10))
    known = np.isclose(crowded.radius[..., None], SIZES, rtol=1e-5).any(axis=-1)
    assert known.mean() > 0.85


def test_a_scene_too_crowded_shrinks_its_objects_until_they_fit():
    spec = SceneSpec(min_objects=24, max_objects=24, object_scale=1.5)
    objects = sample_many(spec, 50)
    assert smallest_gap(objects) > 0
    ratio = objects.radius / (np.array(SIZES) * 1.5)[:, None, None]
    assert (objects.radius > 0.1).all() and (ratio < 1).any()
    # All objects of a scene shrink alike: two sizes remain.
    spread = objects.radius.max(axis=1) / objects.radius.min(axis=1)
    assert np.isclose(spread[:, None], [1, 2], rtol=1e-4).any(axis=1).all()


def test_kinds_materials_and_colours_all_occur():
    objects = sample_many(SceneSpec())
    assert np.allclose(np.bincount(objects.kind.ravel()) / 3000, 1 / 3, atol=0.05)
    assert abs(objects.metal.mean() - 0.5) < 0.05
    colours, counts = np.unique(
        objects.colour.reshape(-1, 3), axis=0, return_counts=True
    )
    assert len(colours) == len(COLOURS)
    assert np.allclose(counts / 3000, 1 / 8, atol=0.03)


def test_distinct_colours():
    objects = sample_many(SceneSpec(max_objects=8, distinct_colours=True), 100)
    for colours in objects.colour:
        assert len(np.unique(colours, axis=0)) == 8


@functools.partial(jax.jit, static_argnums=0)
def _draw_cameras(spec: SceneSpec, key: jax.Array, views: jax.Array) -> jax.Array:
    return jax.vmap(lambda view: camera.sample_camera(spec, key, view))(views)


def draw_cameras(spec: SceneSpec, views: int, scene: int = 0) -> np.ndarray:
    return np.asarray(_draw_cameras(spec, jax.random.key(scene), jnp.arange(views)))


def test_cameras_fill_their_ranges():
    spec = SceneSpec()
    drawn = draw_cameras(spec, 2000)
    for values, (low, high) in zip(
        drawn.T, (spec.azimuth, spec.elevation, spec.distance), strict=True
    ):
        assert low <= values.min() and values.max() <= high
        counts = np.histogram(values, 8, (low, high))[0]
        assert (np.abs(counts - 250) < 80).all()


def test_arc_keeps_the_views_of_a_scene_together_but_not_the_scenes():
    spec = SceneSpec(arc=0.3)
    drawn = [draw_cameras(spec, 200, scene)[:, 0] for scene in range(6)]
    assert all(0.5 < np.ptp(azimuth) <= 0.6 for azimuth in drawn)
    assert np.ptp([azimuth.mean() for azimuth in drawn]) > 1
    single = draw_cameras(dataclasses.replace(spec, arc=0.0), 3)[:, 0]
    assert (single == single[0]).all()


def test_camera_looks_at_the_scene_centre_and_rays_pass_through_their_pixels():
    spec = SceneSpec(size=8, samples=1)
    drawn = jnp.array([0.7, 0.6, 11.0])
    centre = camera.project(spec, drawn, jnp.array([0.0, 0.0, TARGET_HEIGHT]))
    np.testing.assert_allclose(centre, [4, 4, 11], rtol=1e-5)
    rays = np.stack(camera.camera_rays(spec, drawn), axis=-1)[0]
    points = np.array(camera.camera_position(drawn)) + 9 * rays
    pixels = np.array([camera.project(spec, drawn, jnp.array(p)) for p in points])
    rows, columns = np.divmod(np.arange(64), 8)
    np.testing.assert_allclose(pixels[:, 0], columns + 0.5, atol=1e-3)
    np.testing.assert_allclose(pixels[:, 1], rows + 0.5, atol=1e-3)
    higher = camera.project(spec, drawn, jnp.array([0.0, 0.0, 2.0]))
    assert higher[1] < centre[1]  # up is up


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"samples": 3}, "square number"),
        ({"size": 0}, "size=0"),
        ({"num_views": 0}, "num_views=0"),
        ({"min_objects": 7}, "min_objects <= max_objects"),
        ({"max_objects": 255}, "uint8"),
        ({"background": "city"}, "textured"),
        ({"elevation": (0.9, 0.5)}, "lowest, highest"),
        ({"elevation": (-0.2, 0.5)}, "0.05"),
        ({"distance": (2.0, 3.0)}, "do not fit"),
        ({"object_scale": 5.0}, "do not fit"),
        ({"object_scale": -1.0}, "positive"),
        ({"arc": -0.1}, "arc=-0.1"),
        ({"field_of_view": 4.0}, "field_of_view"),
        ({"max_objects": 9, "distinct_colours": True}, "8 colours"),
    ],
    ids=str,
)
def test_a_bad_spec_says_what_to_do(values, message):
    with pytest.raises(ValueError, match=message):
        SceneSpec(**values)


def test_lists_from_configs_are_accepted():
    assert SceneSpec(distance=[10.5, 12.0]) == SceneSpec()
    hash(SceneSpec(azimuth=[0.0, 1.0]))
