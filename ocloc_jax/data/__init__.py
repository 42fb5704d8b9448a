"""Input pipeline: scenes to batches on the device, a function of (seed, step).

```python
scenes = data.open_dataset("multiview_clevr/raytraced_64", "train")
train = data.TrainPipeline(scenes, batch_size=8, stage="multi", seed=0)
for step, batch in enumerate(train.batches(start_step), start_step):
    image = data.to_model_range(batch["image"])  # uint8 until here
```
"""

from ocloc_jax.data.datasets import open_dataset, unpack
from ocloc_jax.data.evaluation import EvalPipeline
from ocloc_jax.data.pipeline import Pipeline, Plan
from ocloc_jax.data.placement import Batch, data_sharding, place, to_model_range
from ocloc_jax.data.rendered import RenderedScenes
from ocloc_jax.data.seeds import SeedsPipeline, stack_seeds
from ocloc_jax.data.sources import ArrayScenes, RecordScenes, Scenes
from ocloc_jax.data.training import TrainPipeline

__all__ = [
    "ArrayScenes",
    "Batch",
    "EvalPipeline",
    "Pipeline",
    "Plan",
    "RecordScenes",
    "RenderedScenes",
    "Scenes",
    "SeedsPipeline",
    "TrainPipeline",
    "data_sharding",
    "open_dataset",
    "place",
    "stack_seeds",
    "to_model_range",
    "unpack",
]
