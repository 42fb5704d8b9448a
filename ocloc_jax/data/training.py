"""Training batches: shuffled scenes, a random number of random views."""

import dataclasses
import functools
import sys
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from ocloc_jax.data import pipeline, schedule


@dataclasses.dataclass(frozen=True)
class TrainPipeline(pipeline.Pipeline):
    """Endless shuffled batches in which every example comes once per epoch.

    Attributes:
      stage: `single`: each view of each scene is an example of its own. `multi`: each
        scene is an example, of which as many views are drawn as the batch has.
      seed: With the step, it decides scenes, number of views and views.
      min_views: Smallest number of views of a batch in stage `multi`.
      max_views: Largest number; it is uniform between the two.
      views_seed: Decides the number of views in place of `seed`, for runs of several
        seeds that are to see as many views as one another at every step.
      view_window: In stage `multi`, draw views near one another: at most this far
        from a random one. `dict(steps=(0, 1000), values=(0.4, 3.2))` is a
        curriculum, linear between steps.
      window_by: What `view_window` measures: places in the order of capture (`index`),
        or the angle between camera directions in radians (`azimuth`).
    """

    stage: Literal["single", "multi"] = "multi"
    seed: int = 0
    min_views: int = 1
    max_views: int = 8
    views_seed: int | None = None
    view_window: schedule.Window = None
    window_by: Literal["index", "azimuth"] = "index"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage not in ("single", "multi"):
            raise ValueError(f"stage is {self.stage!r}; use 'single' or 'multi'.")
        if self.window_by not in ("index", "azimuth"):
            raise ValueError(
                f"window_by is {self.window_by!r}; use 'index' or 'azimuth'."
            )
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it cannot be negative.")
        if self.stage == "multi":
            self._check_num_views(self.max_views, "max_views")
            if not 1 <= self.min_views <= self.max_views:
                raise ValueError(
                    f"min_views is {self.min_views}; choose 1 to {self.max_views}."
                )
        if self.view_window is not None and self.window_by == "azimuth":
            self._check_keys(("camera",))
        schedule.window_at(self.view_window, 0)  # says what is wrong with it

    @property
    def num_steps(self) -> int:
        """Training does not end by itself."""
        return sys.maxsize

    @property
    def num_examples(self) -> int:
        """Examples in an epoch: scenes, or all their views in stage `single`."""
        return len(self.scenes) if self.stage == "multi" else int(self._ends[-1])

    @functools.cached_property
    def _ends(self) -> Int[np.ndarray, " s"]:
        return np.cumsum(self.scenes.view_counts)

    @property
    def view_counts(self) -> range:
        """Every number of views that a batch can have."""
        if self.stage == "single":
            return range(1, 2)
        return range(self.min_views, self.max_views + 1)

    def num_views_at(self, step: int) -> int:
        """Number of views of a step's batch."""
        first, last = self.view_counts[0], self.view_counts[-1]
        seed = self.seed if self.views_seed is None else self.views_seed
        return schedule.num_views_at(seed, step, first, last)

    def plan(self, step: int, rows: pipeline.Rows | None = None) -> pipeline.Plan:
        """Says what rows of a step's global batch hold (this host's by default)."""
        rows = self.local_rows if rows is None else rows
        positions = step * self.batch_size + rows
        examples = schedule.examples_at(self.seed, self.num_examples, positions)
        num_views = self.num_views_at(step)
        if self.stage == "single":
            scenes = np.searchsorted(self._ends, examples, side="right")
            first = self._ends[scenes] - self.scenes.view_counts[scenes]
            return pipeline.Plan(scenes, (examples - first)[:, None])
        views = [
            self._views(step, row, scene, num_views)
            for row, scene in zip(rows.tolist(), examples.tolist(), strict=True)
        ]
        return pipeline.Plan(examples, np.stack(views))

    def _views(
        self, step: int, row: int, scene: int, num_views: int
    ) -> Int[np.ndarray, " m"]:
        available = int(self.scenes.view_counts[scene])
        azimuth, window = None, schedule.window_at(self.view_window, step)
        if window is not None and self.window_by == "azimuth":
            azimuth = self._azimuth(scene)
        key = (self.seed, step, row)
        return schedule.choose_views(key, num_views, available, window, azimuth)

    @functools.cached_property
    def _azimuths(self) -> dict[int, np.ndarray]:
        return {}

    def _azimuth(self, scene: int) -> Float[np.ndarray, " v"]:
        # Kept, so that only the first epoch fetches a record twice.
        if scene not in self._azimuths:
            views = range(int(self.scenes.view_counts[scene]))
            camera = self.scenes.decode(self.scenes[scene], views, ("camera",))
            self._azimuths[scene] = camera["camera"][:, 0]
        return self._azimuths[scene]
