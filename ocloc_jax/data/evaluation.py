"""Evaluation batches: every scene once, its first views, in order."""

import dataclasses

import numpy as np

from ocloc_jax.data import pipeline


@dataclasses.dataclass(frozen=True)
class EvalPipeline(pipeline.Pipeline):
    """Every scene once and in order, seen from its first views.

    The last batch is filled up by repeating the last scene; `valid` is false there.

    Attributes:
      num_views: How many views, from the first.
    """

    num_views: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_num_views(self.num_views, "num_views")

    @property
    def num_steps(self) -> int:
        """Number of batches that hold all scenes."""
        return -(-len(self.scenes) // self.batch_size)

    def plan(self, step: int, rows: pipeline.Rows | None = None) -> pipeline.Plan:
        """Says what rows of a step's global batch hold (this host's by default)."""
        rows = self.local_rows if rows is None else rows
        positions = step * self.batch_size + rows
        scenes = np.minimum(positions, len(self.scenes) - 1)
        views = np.tile(np.arange(self.num_views), (len(rows), 1))
        return pipeline.Plan(scenes, views, positions < len(self.scenes))
