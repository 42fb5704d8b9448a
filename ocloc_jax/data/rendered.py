"""Ray-traced scenes, rendered when they are first asked for."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ocloc_jax import scenes as ray_tracer
from ocloc_jax.data import sources


class RenderedScenes:
    """Scenes of `ocloc_jax.scenes`, of which nothing exists before it is needed.

    The read-ahead of the pipeline renders them, so training starts at once and a run
    that resumes renders only what it still needs. They are kept, but only what was
    asked for: training reads images, a third of what is rendered.
    """

    def __init__(self, spec: ray_tracer.SceneSpec, seed: int, num_scenes: int):
        """See `ocloc_jax.scenes.render_batch`."""
        if num_scenes < 1:
            raise ValueError(f"num_scenes is {num_scenes}; use 1 or more.")
        self._spec, self._seed = spec, seed
        self._kept: list[sources.Arrays] = [{} for _ in range(num_scenes)]
        self.keys = ray_tracer.KEYS
        self.view_counts = np.full(num_scenes, spec.num_views)
        self.metadata = {
            "dataset": "ray-traced",
            "num_objects": spec.max_objects,
            "image_size": (spec.size, spec.size),
            "seed": seed,
            "spec": dataclasses.asdict(spec),
        }

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, scene: int) -> int:
        return range(len(self))[scene]

    def decode(
        self, example: int, views: Sequence[int], keys: Sequence[str]
    ) -> sources.Arrays:
        kept = self._kept[example]
        if not set(keys) <= set(kept):
            record = ray_tracer.render(self._spec, self._seed, example)
            # Replaced, not changed: another thread may be reading the old one.
            kept = {key: record[key] for key in {*kept, *keys}}
            self._kept[example] = kept
        chosen = np.asarray(views, np.int64)
        return {key: kept[key][chosen] for key in keys}
