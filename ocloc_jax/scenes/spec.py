"""What a ray-traced dataset looks like: plain values, checked once."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

BACKGROUNDS = ("plain", "textured", "sky")
# CLEVR's two sizes: radius of spheres and cylinders, half diagonal of cubes.
SIZES = (0.35, 0.7)
# CLEVR's eight colours.
COLOURS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
# The point all cameras look at.
TARGET_HEIGHT = 0.35


@dataclasses.dataclass(frozen=True)
class SceneSpec:
    """A family of scenes; scene `index` of a seed is a function of this spec.

    Attributes:
      size: Height and width of an image in pixels; does not change the framing.
      num_views: Images of each scene.
      min_objects: Fewest objects in a scene.
      max_objects: Most objects in a scene, and the index of the background.
      samples: Rays for each pixel, a square number (4 is a 2 x 2 grid).
      background: `plain` grey ground, `textured` ground with a random pattern and
        random colours, or `sky` where the ground fades into a coloured horizon.
      azimuth: Range of the camera's azimuth, radians.
      elevation: Range of the camera's elevation, radians.
      distance: Range of the camera's distance to the scene centre.
      arc: All views of a scene lie within this many radians of a random azimuth of
        that scene; None spreads them over the whole of `azimuth`.
      distinct_colours: No two objects of a scene share a colour.
      object_scale: Multiplies the size of every object.
      shadows: Whether objects cast shadows.
      field_of_view: Full angle of the square image, radians.
    """

    size: int = 128
    num_views: int = 60
    min_objects: int = 3
    max_objects: int = 6
    samples: int = 4
    background: str = "plain"
    azimuth: Sequence[float] = (0.0, 2 * math.pi)
    elevation: Sequence[float] = (0.15 * math.pi, 0.3 * math.pi)
    distance: Sequence[float] = (10.5, 12.0)
    arc: float | None = None
    distinct_colours: bool = False
    object_scale: float = 1.0
    shadows: bool = True
    field_of_view: float = 0.57

    def __post_init__(self):
        for name in ("azimuth", "elevation", "distance"):
            # Lists come out of configs and JSON; a static jit argument must hash.
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for message in self._faults():
            raise ValueError(f"SceneSpec: {message}")

    def _faults(self):
        yield from self._count_faults()
        yield from self._camera_faults()
        if self.background not in BACKGROUNDS:
            yield f"background={self.background!r}; use one of {BACKGROUNDS}."
        if self.object_scale <= 0:
            yield f"object_scale={self.object_scale}; use a positive number."
        if min(placement_radii(self)) <= 0:
            yield (
                f"objects of scale {self.object_scale} do not fit into the view; "
                "lower object_scale, or raise field_of_view or distance."
            )

    def _count_faults(self):
        for name in ("size", "num_views", "samples"):
            if getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)}; use 1 or more."
        if not 0 <= self.min_objects <= self.max_objects:
            counts = f"min_objects={self.min_objects}, max_objects={self.max_objects}"
            yield f"{counts}; use 0 <= min_objects <= max_objects."
        if not 1 <= self.max_objects <= 254:
            yield f"max_objects={self.max_objects}; segments are uint8, use 1 to 254."
        if math.isqrt(self.samples) ** 2 != self.samples:
            yield f"samples={self.samples}; use a square number such as 1, 4 or 9."
        if self.distinct_colours and self.max_objects > len(COLOURS):
            yield (
                f"distinct_colours with max_objects={self.max_objects}, but there "
                f"are {len(COLOURS)} colours."
            )

    def _camera_faults(self):
        for name in ("azimuth", "elevation", "distance"):
            bounds = getattr(self, name)
            if len(bounds) != 2 or bounds[0] > bounds[1]:
                yield f"{name}={bounds}; use (lowest, highest)."
        # Straight from above the azimuth has no meaning; from below there is ground.
        if self.elevation[0] < 0.05 or self.elevation[1] > 1.55:
            yield f"elevation={self.elevation}; stay within [0.05, 1.55] radians."
        if self.arc is not None and self.arc < 0:
            yield f"arc={self.arc}; use None or a number >= 0."
        if not 0 < self.field_of_view < 3:
            yield f"field_of_view={self.field_of_view}; use radians in (0, 3)."


def placement_radii(spec: SceneSpec) -> tuple[float, ...]:
    """How far from the centre objects of each size stay wholly in every view.

    Every object fits into an upright cylinder as high as it is wide, and is in view
    when that cylinder is inside the four planes of the nearest camera's pyramid.
    """
    half = spec.field_of_view / 2
    elevation = np.linspace(*spec.elevation, 65)
    zero, one = np.zeros(65), np.ones(65)
    backward = np.stack([np.cos(elevation), zero, np.sin(elevation)])
    upward = np.stack([-np.sin(elevation), zero, np.cos(elevation)])
    sides = np.stack([np.stack([zero, one, zero]), upward, -upward])
    normals = sides * np.cos(half) + backward[None] * np.sin(half)
    flat, rise = np.hypot(normals[:, 0], normals[:, 1]) + 1e-9, normals[:, 2]
    room = spec.distance[0] * np.sin(half)
    limits = []
    for size in SIZES:
        radius = size * spec.object_scale
        height = (radius - TARGET_HEIGHT) * rise + radius * abs(rise)
        limits.append(float(np.min((room - height) / flat) - radius))
    return tuple(limits)
