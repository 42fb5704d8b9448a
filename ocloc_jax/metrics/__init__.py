"""Scores of object-centric models on multi-view scenes; no model needed.

```python
from ocloc_jax import metrics

result = metrics.evaluate(
    segment=..., overlap=..., masks=...,  # the truth
    mask=..., shape=..., presence=..., order=...,  # the prediction
)
result["pooled"]["ari_o"], result["per_scene"]["iou"], result["scenes"]["ooa"]
```

Conventions:

- **Scenes.** All views of a scene are one partition: a slot that changes its object
  between views is wrong. Scores do not depend on the order of views or slots.
- **Background.** The last layer of `mask` and `masks`; in `segment` the index `n`,
  the largest number of objects of the split.
- **ARI-A, AMI-A** use all pixels and the arg-max over all layers. **ARI-O, AMI-O** use
  pixels with `overlap >= 1` and the arg-max over object slots only. Ties of the arg-max
  go to the first layer. AMI is exact, with the arithmetic mean as normaliser.
- **Empty scenes** (no object pixels) score ARI-O = AMI-O = 1; IoU, F1 and OOA are nan.
- **Matching.** One slot per object, by the largest sum of the soft predicted mask over
  the object's visible pixels in all views; at least as many slots as objects.
- **IoU, F1** compare complete soft shapes by sums of min and max over all views. An
  object counts if its true complete shape is not empty, also if it is **hidden** in
  all views.
- **OCA** compares the number of slots with presence >= 0.5 with the number of indices
  that occur in `segment`, so an object hidden in all views does not count here.
- **OOA** weighs each pair in each view by the overlap of the true complete shapes. The
  object that owns more of the overlap is truly in front. A true tie is "in front", a
  predicted tie "behind". Without any overlap the score is nan.
- **`pooled` and `per_scene`.** `pooled`, as in the published tables, is a mean over
  scenes for ARI, AMI and OCA, over all objects of all scenes for IoU and F1, one ratio
  of sums for OOA and MSE. `per_scene`, as in the formulas of the paper, averages what
  each scene scores alone, without the scenes whose score is nan.
- **MSE, PSNR** are for values in [0, 1].
"""

from ocloc_jax.metrics import constancy, probe, published
from ocloc_jax.metrics.scoring import (
    METRICS,
    SceneScores,
    evaluate,
    evaluate_scenes,
    mean_and_deviation,
    score_scene,
    score_scenes,
    summarize,
)
from ocloc_jax.metrics.training import training_metrics

__all__ = [
    "METRICS",
    "SceneScores",
    "constancy",
    "evaluate",
    "evaluate_scenes",
    "mean_and_deviation",
    "probe",
    "published",
    "score_scene",
    "score_scenes",
    "summarize",
    "training_metrics",
]
