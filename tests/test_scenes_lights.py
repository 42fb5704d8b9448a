"""Shadows against rays from points to the lamps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scene_oracle as oracle
from test_scenes_shapes import KINDS, as_vector, make_objects

from ocloc_jax.scenes import lights, shapes
from ocloc_jax.scenes.vector import Vector


def ground_points(count: int = 20000) -> np.ndarray:
    points = np.random.default_rng(0).uniform(-4, 4, (count, 3))
    points[:, 2] = 0
    return points


@jax.jit
def _shade(objects, points, softness, owner):
    lamps = [
        lamp._replace(softness=softness)
        for lamp in lights.make_lights(jnp.array([[0.3, -0.2], [0.1, 0.5]]))
    ]
    up = Vector(*(jnp.full(points.x.shape, z) for z in (0.0, 0.0, 1.0)))
    owners = jnp.full(points.x.shape, owner)
    solids = shapes.make_solids(objects)
    shares, open_ = lights.shade(lamps, points, up, owners, solids)
    return [lamp.toward for lamp in lamps], shares, open_


def shade(objects, points: np.ndarray, softness: float, owner: int = 99):
    towards, shares, open_ = _shade(objects, as_vector(points), softness, owner)
    towards = [np.array(toward, np.float64) for toward in towards]
    return towards, [np.asarray(share[0]) for share in shares], np.asarray(open_[0])


@pytest.mark.parametrize("kind", KINDS)
def test_shadow_outline_is_where_rays_to_the_lamp_are_blocked(kind: int):
    objects, points = make_objects([kind], seed=4), ground_points()
    offset = points[:, :2] - np.asarray(objects.position[0])
    beside = np.hypot(*offset.T) > objects.radius[0]  # not underneath
    towards, shares, _ = shade(objects, points, softness=0.0)
    for toward, share in zip(towards, shares, strict=True):
        rays = np.broadcast_to(toward, points.shape)
        blocked = beside & np.isfinite(oracle.enter(objects, 0, points, rays))
        assert blocked.sum() > 50
        # Edges are 0.02 soft even then: half light is the outline.
        assert ((share < 0.5) == blocked)[beside].mean() > 0.998
        away = points[blocked][:, :2].mean(0) - np.asarray(objects.position[0])
        assert away @ toward[:2] < 0  # the shadow lies away from the lamp


@pytest.mark.parametrize("kind", KINDS)
def test_shadow_edges_are_soft_and_soften_with_distance(kind: int):
    objects, points = make_objects([kind], seed=4), ground_points()
    _, (share, _), _ = shade(objects, points, softness=0.16)
    _, (crisp, _), _ = shade(objects, points, softness=0.0)
    grey = (share > 0.1) & (share < 0.9)
    assert grey.sum() > 2 * ((crisp > 0.1) & (crisp < 0.9)).sum()
    assert share.min() >= 0 and share.max() == 1


def test_objects_do_not_shade_themselves_or_lamps_below_them():
    objects, points = make_objects(KINDS[:1], seed=4), ground_points()
    _, shares, open_ = shade(objects, points, softness=0.1, owner=0)
    assert (np.array(shares) == 1).all() and (open_ == 1).all()
    points[:, 2] = 5.0  # above everything
    _, shares, _ = shade(objects, points, softness=0.1)
    assert (np.array(shares) == 1).all()


def test_ground_close_to_an_object_gets_less_of_the_sky():
    objects = make_objects(KINDS[1:2])
    x, y = np.asarray(objects.position[0])
    points = ground_points()
    points[:4, :2] = [[x + step, y] for step in (0.3, 0.8, 1.5, 4.0)]
    open_ = shade(objects, points, softness=0.1)[2][:4]
    assert (np.diff(open_) > 0).all() and open_[0] < 0.75 and open_[-1] > 0.98


def test_shadows_can_be_switched_off():
    objects, points = make_objects(KINDS), as_vector(ground_points(500))
    lamps = lights.make_lights(jnp.zeros((2, 2)))
    up = jax.tree.map(jnp.ones_like, points)
    owner = jnp.full((1, 500), 3)
    shares, open_ = lights.shade(
        lamps, points, up, owner, shapes.make_solids(objects), shadows=False
    )
    assert all((share == 1).all() for share in (*shares, open_))
