"""Rays against a float64 derivation of every primitive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scene_oracle as oracle

from ocloc_jax.scenes import sample, shapes
from ocloc_jax.scenes.vector import Vector

KINDS = [sample.CUBE, sample.SPHERE, sample.CYLINDER]


def make_objects(kinds, seed: int = 0) -> sample.Objects:
    n, rng = len(kinds), np.random.default_rng(seed)
    return sample.Objects(
        position=jnp.array(rng.uniform(-2, 2, (n, 2)), jnp.float32),
        radius=jnp.array(rng.uniform(0.3, 0.8, n), jnp.float32),
        yaw=jnp.array(rng.uniform(0, 6, n), jnp.float32),
        kind=jnp.array(kinds, jnp.int32),
        colour=jnp.ones((n, 3)),
        metal=jnp.zeros(n, bool),
        present=jnp.ones(n, bool),
    )


def random_rays(seed: int, count: int = 20000) -> tuple[np.ndarray, np.ndarray]:
    """Rays from above the ground and outside of objects to points around them."""
    rng = np.random.default_rng(seed)
    angle, height = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.1, 9, count)
    origin = np.stack([6 * np.cos(angle), 6 * np.sin(angle), height], axis=-1)
    target = rng.uniform([-2.8, -2.8, -0.5], [2.8, 2.8, 1.8], (count, 3))
    rays = target - origin
    return origin, rays / np.linalg.norm(rays, axis=-1, keepdims=True)


def as_vector(values: np.ndarray) -> Vector:
    return Vector(*(jnp.array(values[..., i], jnp.float32)[None] for i in range(3)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_rays_enter_where_the_faces_say(kind: int, seed: int):
    objects = make_objects([kind], seed)
    origin, rays = random_rays(seed)
    solid = jax.tree.map(lambda x: x[0], shapes.make_solids(objects))
    found = jax.jit(shapes.intersect)(as_vector(origin), as_vector(rays), solid)[0]
    true = oracle.enter(objects, 0, origin, rays)
    hit = np.isfinite(true)
    assert 300 < hit.sum() < 15000  # the rays do test both answers
    agree = hit == (found < shapes.FAR)
    assert agree.mean() > 0.9995  # float32 may differ on grazing rays
    np.testing.assert_allclose(found[hit & agree], true[hit & agree], atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_rays_along_axes_have_no_division_by_zero(kind: int):
    objects = make_objects([kind])._replace(
        position=jnp.zeros((1, 2)), radius=jnp.array([0.7]), yaw=jnp.zeros(1)
    )
    half = 0.7 * (0.5**0.5 if kind == sample.CUBE else 1)
    origin = np.array([[0, 0, 5], [0.9, 0, 5], [5, 0, half], [0, -5, half], [5, 0, 3]])
    rays = np.array([[0, 0, -1], [0, 0, -1], [-1, 0, 0], [0, 1, 0], [-1, 0, 0]])
    solid = jax.tree.map(lambda x: x[0], shapes.make_solids(objects))
    found = shapes.intersect(as_vector(origin), as_vector(rays), solid)[0]
    expected = [5 - 2 * half, shapes.FAR, 5 - half, 5 - half, shapes.FAR]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_normals_point_out_of_faces(kind: int):
    objects = make_objects([kind], seed=3)
    origin, rays = random_rays(7)
    true = oracle.enter(objects, 0, origin, rays)
    hit = np.isfinite(true)
    point = origin[hit] + true[hit, None] * rays[hit]
    solid = jax.tree.map(lambda x: x[0], shapes.make_solids(objects))
    normal = np.stack(shapes.surface_normal(as_vector(point), solid), axis=-1)[0]
    np.testing.assert_allclose(np.linalg.norm(normal, axis=-1), 1, atol=1e-5)
    assert ((normal * rays[hit]).sum(-1) < 0).mean() > 0.97  # rounded edges may not
    # Moving outwards along the normal leaves the object: it is not entered again.
    away = oracle.enter(objects, 0, point + 1e-3 * normal, normal)
    assert np.isinf(away).all()
    top = point[:, 2] > 2 * float(solid.z) - 1e-4
    inner = np.hypot(*(point[:, :2] - np.asarray(objects.position[0])).T)
    if kind != sample.SPHERE:
        flat = top & (inner < 0.5 * float(objects.radius[0]))
        assert flat.sum() > 20
        np.testing.assert_allclose(normal[flat], [[0, 0, 1]] * flat.sum(), atol=1e-5)


def test_the_nearest_solid_wins_and_coverage_counts_hidden_ones():
    objects = make_objects(KINDS * 2, seed=5)
    origin, rays = random_rays(11)
    found = jax.jit(shapes.nearest)(
        as_vector(origin), as_vector(rays), shapes.make_solids(objects)
    )
    each = np.stack([oracle.enter(objects, k, origin, rays) for k in range(6)])
    owner = np.where(np.isfinite(each.min(0)), each.argmin(0), 6)
    assert (np.asarray(found[1][0]) == owner).mean() > 0.999
    assert (np.asarray(found[2]) == np.isfinite(each)).mean() > 0.9995
    assert (np.isfinite(each).sum(0) > 1).sum() > 100  # some are hidden


def test_absent_and_skipped_solids_are_not_hit():
    objects = make_objects(KINDS, seed=1)
    origin, rays = (as_vector(values) for values in random_rays(2))
    absent = objects._replace(present=jnp.array([True, False, True]))
    _, owner, coverage = shapes.nearest(origin, rays, shapes.make_solids(absent))
    assert not (owner == 1).any() and not coverage[1].any()
    _, owner, _ = shapes.nearest(
        origin, rays, shapes.make_solids(objects), skip=jnp.full((1, 20000), 2)
    )
    assert not (owner == 2).any() and (owner == 1).any()
