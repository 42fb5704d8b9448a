"""Views from the whole circle around a scene, where the demo ends: 32x32, then 64x64.

python launch.py --config=configs/circle.py --workdir=runs/circle
python launch.py --config=configs/circle.py:large --workdir=runs/circle64

The demo's networks fit any size of images and any number of slots, so each run goes on
from the weights of the one before (`weights/`). Training begins with views near one
another, and the window from which they are drawn widens (`view_window`): that is ours
and not the paper's, and needs nothing but data ordered by how far views lie apart.
"""

import math

import ml_collections

from configs import common, demo

VARIANTS = ("small", "large", "smoke")
STEPS = dict(small=12_000, large=30_000, smoke=6)


def get_config(variant: str = "small") -> ml_collections.ConfigDict:
    """One of the two runs.

    Args:
      variant: `small` has the demo's scenes of 2 or 3 objects, `large` those of 64x64
        with 3 to 6 objects; `smoke` is the latter, over in three minutes.
    """
    if variant not in VARIANTS:
        raise ValueError(f"Unknown variant {variant!r}; use one of {VARIANTS}.")
    config = demo.get_config("smoke" if variant == "smoke" else "demo")
    config.data.scenes.update(arc=None, num_views=12)
    if variant == "small":
        config.init_from = "weights/demo.safetensors"
        config.stages = dict(multi=_small(STEPS[variant]))
    else:
        config.init_from = "weights/circle.safetensors"
        config.stages = dict(multi=_large(STEPS[variant]))
        _enlarge(config)
    if variant != "smoke":
        config.data.num_scenes.train = 8000
    return config


def _enlarge(config: ml_collections.ConfigDict) -> None:
    # 0.1 keeps the published balance of likelihood and KL at this size.
    config.objective.update(num_slots=7, sigma_x=0.1)
    # Objects are as large as CLEVR's: about as many pixels as in the demo.
    size = dict(size=64, min_objects=3, max_objects=6, object_scale=1.0)
    config.data.scenes.update(size)
    config.data.general = dict(min_objects=7, max_objects=8)
    config.render.num_slots = 7
    config.eval = common.evaluation(num_views=4, test=7, test_general=10)
    config.eval.batch_size = 5


def _small(steps: int) -> dict:
    return demo.stage(
        batch_size=4,
        views=_views((0.02 * steps, demo.ARC), (0.6 * steps, math.pi)),
        rate=dict(base=1e-3, num_steps=steps, decay=0.02),
        coefficients=demo.multi_schedule(steps),
    )


def _large(steps: int) -> dict:
    """The demo's schedule; regularisers weigh less, as they count more pixels."""
    schedule = demo.multi_schedule(steps) | dict(
        reg_sdw_ratio=demo.line(steps, (0, 5e-3)),
        reg_pres=demo.line(steps, (0, 2.5e-3)),
    )
    return demo.stage(
        batch_size=2,
        views=_views((0, 0.8), (0.3 * steps, math.pi)),
        rate=dict(base=7e-4, num_steps=steps, decay=0.02),
        coefficients=schedule,
    )


def _views(*window: tuple[float, float]) -> dict:
    """Four views out of a window, in radians, that grows with the steps."""
    steps, values = zip(*window, strict=True)
    return dict(
        stage="multi",
        min_views=4,
        max_views=4,
        view_window=dict(steps=steps, values=values),
        window_by="azimuth",
    )
