"""A stand-in for the ray tracer with the same interface and made-up pictures.

It lets the builders be tested in milliseconds. Run as a script it is the command line
of `tfds_builders` with this module in place of the ray tracer, also in its workers.
"""

import dataclasses
import os
import sys
import time

import numpy as np


@dataclasses.dataclass(frozen=True)
class SceneSpec:
    """The fields that the builders use."""

    size: int = 128
    num_views: int = 60
    min_objects: int = 3
    max_objects: int = 6
    background: str = "plain"


def render(spec, seed=0, index=0):
    """Returns disks whose places follow from (spec, seed, index)."""
    time.sleep(float(os.environ.get("FAKE_SCENES_SECONDS", "0")))
    rng = np.random.default_rng([seed, index])
    num_objects = rng.integers(spec.min_objects, spec.max_objects + 1)
    grid = np.stack(np.mgrid[: spec.size, : spec.size], -1) / spec.size
    shape = (spec.num_views, spec.max_objects)
    centres = rng.uniform(0.2, 0.8, (*shape, 1, 1, 2))
    inside = ((grid[None, None] - centres) ** 2).sum(-1) < 0.15**2
    inside[:, num_objects:] = False
    order = np.where(
        np.arange(shape[1]) < num_objects, -rng.uniform(9, 12, shape), -1e9
    )
    return _record(spec, rng, inside, order.astype(np.float32))


def _record(spec, rng, inside, order):
    depth = np.where(inside, order[:, :, None, None], -np.inf)
    covered = inside.any(1)
    segment = np.where(covered, depth.argmax(1), spec.max_objects).astype(np.uint8)
    colours = rng.integers(0, 256, (spec.max_objects + 1, 3), np.uint8)
    background = np.ones_like(segment)[:, None] * np.uint8(255)
    return {
        "image": colours[segment],
        "segment": segment,
        "overlap": inside.sum(1).astype(np.uint8),
        "masks": np.concatenate([inside * np.uint8(255), background], 1),
        "order": order,
        "camera": rng.uniform(0, 1, (spec.num_views, 3)).astype(np.float32),
    }


def install():
    """Puts this module in place of `ocloc_jax.scenes`."""
    import ocloc_jax

    module = sys.modules.get("fake_scenes") or sys.modules[__name__]
    sys.modules["ocloc_jax.scenes"] = ocloc_jax.scenes = module


if __name__ == "__main__" or __name__ == "__mp_main__":
    import fake_scenes

    fake_scenes.install()

if __name__ == "__main__":
    from tfds_builders import __main__

    sys.exit(__main__.main())
