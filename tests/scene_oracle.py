"""Slow float64 geometry, derived face by face and apart from the package's own."""

import numpy as np

CUBE, SPHERE, CYLINDER = 0, 1, 2


def _first(candidates: list[np.ndarray]) -> np.ndarray:
    return np.min(candidates, axis=0)


def _sphere(start: np.ndarray, along: np.ndarray, radius: float) -> np.ndarray:
    b = (start * along).sum(-1)
    inside = b**2 - (start**2).sum(-1) + radius**2
    distance = -b - np.sqrt(np.where(inside > 0, inside, np.nan))
    return np.where(distance > 0, distance, np.inf)


def _plane(start, along, axis: int, at: float, inside) -> np.ndarray:
    """Distance to the plane where coordinate `axis` is `at`, if `inside` its face."""
    distance = (at - start[..., axis]) / along[..., axis]
    point = start + distance[..., None] * along
    return np.where((distance > 0) & inside(point), distance, np.inf)


def _cube(start: np.ndarray, along: np.ndarray, half: float) -> np.ndarray:
    faces = []
    for axis in range(3):
        others = [i for i in range(3) if i != axis]

        def inside(point, others=others):
            return (np.abs(point[..., others]) <= half).all(-1)

        faces += [_plane(start, along, axis, at, inside) for at in (-half, half)]
    return _first(faces)


def _cylinder(start: np.ndarray, along: np.ndarray, radius: float) -> np.ndarray:
    def on_cap(point):
        return np.hypot(point[..., 0], point[..., 1]) <= radius

    caps = [_plane(start, along, 2, at, on_cap) for at in (-radius, radius)]
    a = (along[..., :2] ** 2).sum(-1)
    b = (start[..., :2] * along[..., :2]).sum(-1)
    c = (start[..., :2] ** 2).sum(-1) - radius**2
    inside = b**2 - a * c
    distance = (-b - np.sqrt(np.where(inside > 0, inside, np.nan))) / a
    height = start[..., 2] + distance * along[..., 2]
    side = np.where((distance > 0) & (np.abs(height) <= radius), distance, np.inf)
    return _first([*caps, side])


def enter(objects, k: int, origin: np.ndarray, rays: np.ndarray) -> np.ndarray:
    """Returns where rays [..., 3] enter object k, infinity where they miss it."""
    radius, yaw = float(objects.radius[k]), float(objects.yaw[k])
    kind = int(objects.kind[k])
    half = radius / np.sqrt(2) if kind == CUBE else radius
    centre = np.array([*np.asarray(objects.position[k], np.float64), half])
    cos, sin = np.cos(yaw), np.sin(yaw)
    to_local = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
    start, along = (origin - centre) @ to_local.T, rays @ to_local.T
    start = np.broadcast_to(start, along.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        if kind == SPHERE:
            return _sphere(start, along, radius)
        return (_cube if kind == CUBE else _cylinder)(start, along, half)


def look(camera: np.ndarray, size: int, side: int, fov: float, target: float):
    """Returns origin [3] and rays [size, size, side * side, 3] of a camera."""
    azimuth, elevation, distance = np.asarray(camera, np.float64)
    back = np.array(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ]
    )
    origin = np.array([0, 0, target]) + distance * back
    right = np.cross([0, 0, 1.0], back)
    right /= np.linalg.norm(right)
    up = np.cross(back, right)
    at = (np.arange(size * side) + 0.5) / (size * side) * 2 - 1
    row, column = np.meshgrid(at, at, indexing="ij")
    rays = -back + np.tan(fov / 2) * (column[..., None] * right - row[..., None] * up)
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    rays = rays.reshape(size, side, size, side, 3).swapaxes(1, 2)
    return origin, rays.reshape(size, size, side * side, 3)
