"""Speed of the ray tracer, beside plain NumPy doing the same intersections.

python -m benchmarks.scenes [--size 128] [--objects 6] [--scenes 4] [--views 30]
"""

import argparse
import resource
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax import scenes
from ocloc_jax.scenes import camera as cameras
from ocloc_jax.scenes import renderer, shapes
from ocloc_jax.scenes.sample import CUBE, SPHERE, Objects


def enter_numpy(objects: Objects, k: int, origin: np.ndarray, rays: np.ndarray):
    """Returns where rays [n, 3] enter object k: one branch for each kind of object."""
    radius, kind = objects.radius[k], objects.kind[k]
    half = radius / np.sqrt(2) if kind == CUBE else radius
    start = origin - np.array([*objects.position[k], half])
    if kind == CUBE:
        cos, sin = np.cos(objects.yaw[k]), np.sin(objects.yaw[k])
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], rays.dtype)
        return _slabs(start @ turn, rays @ turn, half, (0, 1, 2))
    axes = slice(0, 3 if kind == SPHERE else 2)
    a = (rays[:, axes] ** 2).sum(-1)
    b = (rays[:, axes] * start[axes]).sum(-1)
    root = b**2 - a * ((start[axes] ** 2).sum() - radius**2)
    root = np.sqrt(np.where(root > 0, root, np.nan))
    near, far = (-b - root) / a, (-b + root) / a
    if kind != SPHERE:
        height, top = half * np.sign(rays[:, 2]), start[2] / rays[:, 2]
        near = np.maximum(near, -height / rays[:, 2] - top)
        far = np.minimum(far, height / rays[:, 2] - top)
    return np.where(near < far, near, np.inf)


def _slabs(start, rays, half, axes):
    middle, reach = -start / rays, np.abs(half / rays)
    near, far = (middle - reach).max(-1), (middle + reach).min(-1)
    return np.where(near < far, near, np.inf)


def nearest_numpy(objects: Objects, origin: np.ndarray, rays: np.ndarray):
    with np.errstate(all="ignore"):
        each = [enter_numpy(objects, k, origin, rays) for k in range(len(objects.kind))]
    each = np.stack(each)
    return each.min(axis=0), each.argmin(axis=0)


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Returns the median time of a call, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare_intersections(spec: scenes.SceneSpec) -> None:
    key, scene = renderer.sample_scene(
        renderer.layout_spec(spec), np.uint32(0), np.uint32(0)
    )
    camera = cameras.sample_camera(spec, key, jnp.int32(0))
    origin, rays = cameras.camera_position(camera), cameras.camera_rays(spec, camera)
    solids = shapes.make_solids(scene.objects)
    fast = jax.jit(shapes.nearest)
    ours = seconds(lambda: jax.block_until_ready(fast(origin, rays, solids)))
    objects = jax.tree.map(np.asarray, scene.objects)
    flat = np.stack(rays, axis=-1).reshape(-1, 3)
    point = np.array(origin)
    plain = seconds(lambda: nearest_numpy(objects, point, flat), 3)
    few = flat[:: len(flat) // 100]
    one_by_one = seconds(
        lambda: [nearest_numpy(objects, point, ray[None]) for ray in few], 1
    )
    one_by_one *= len(flat) / len(few)
    found = np.asarray(fast(origin, rays, solids)[0]).reshape(-1)
    true = np.minimum(nearest_numpy(objects, point, flat)[0], shapes.FAR)
    agree = np.isclose(found, true, atol=1e-2)
    print(
        f"first hits of {len(flat)} rays, {spec.max_objects} objects (agree on "
        f"{agree.mean():.2%}):"
    )
    print(f"  jitted                 {ours * 1e3:10.2f} ms")
    print(f"  NumPy, all rays at once {plain * 1e3:9.2f} ms  {plain / ours:8.1f} x")
    print(
        f"  NumPy, ray by ray      {one_by_one * 1e3:10.0f} ms"
        f"  {one_by_one / ours:8.0f} x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--objects", type=int, default=6)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--scenes", type=int, default=4)
    parser.add_argument("--views", type=int, default=30)
    args = parser.parse_args()
    spec = scenes.SceneSpec(
        size=args.size,
        num_views=args.views,
        min_objects=args.objects,
        max_objects=args.objects,
        samples=args.samples,
    )
    start = time.perf_counter()
    scenes.render(spec, seed=0, index=0)
    print(f"first scene, with compilation: {time.perf_counter() - start:.1f} s")
    start, busy = time.perf_counter(), time.process_time()
    scenes.render_batch(spec, seed=0, indices=range(args.scenes))
    elapsed, busy = time.perf_counter() - start, time.process_time() - busy
    images = args.scenes * args.views
    print(
        f"{images} images of {args.size} x {args.size}, {args.objects} objects, "
        f"{args.samples} samples per pixel: {images / elapsed:.1f} images/s "
        f"({busy / images * 1e3:.1f} ms of processor time each)"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory {peak:.2f} GB")
    compare_intersections(spec)


if __name__ == "__main__":
    main()
