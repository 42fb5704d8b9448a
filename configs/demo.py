"""Ray-traced scenes of 32x32 and a small model: objects appear on a laptop.

python launch.py --config=configs/demo.py --workdir=runs/demo

Trains the single-view stage only. Its schedule is ours, not the paper's; see
`schedule` for what it changes and docs/results.md for what it reaches.
"""

import dataclasses

import ml_collections

from configs import common
from ocloc_jax.models import sizes

STEPS = 3000


def get_config(variant: str = "demo") -> ml_collections.ConfigDict:
    if variant not in ("demo", "smoke"):
        raise ValueError(f"Unknown variant {variant!r}; use 'demo' or 'smoke'.")
    steps = STEPS if variant == "demo" else 6
    config = ml_collections.ConfigDict(common.run_options())
    config.model = dict(
        sizes=dataclasses.asdict(small_sizes()),
        shadows=True,
        mode="released",
        num_iterations=3,
        remat="none",
        dtype="float32",
    )
    # The likelihood sums over pixels and the KL does not: sigma_x follows the size.
    config.objective = dict(num_slots=4, sigma_x=0.07, alpha=4.5)
    config.data = dict(
        scenes=dict(
            size=32,
            num_views=4,
            min_objects=2,
            max_objects=3,
            samples=4,
            object_scale=1.5,  # 5 to 10 pixels wide instead of 3 to 7
        ),
        # What differs in Test 2: more objects than were ever seen.
        general=dict(min_objects=4, max_objects=5),
        num_scenes=dict(train=1000, validation=64, test=100, test_general=100),
        seed=0,
    )
    config.render = dict(split="test", scenes=(0, 1, 2), num_views=4, num_slots=4)
    # One view each: without the multi-view stage slots do not agree across views.
    config.eval = common.evaluation(num_views=1, test=4, test_general=6)
    config.eval.batch_size, config.eval.constancy = 20, False
    config.stages = dict(
        single=dict(
            batch_size=16,
            accumulate=1,
            views=dict(stage="single", max_views=1),
            learning_rate=dict(
                base=1e-3, num_steps=steps, decay=0.5, warmup_steps=steps // 30
            ),
            clip_norm=5.0,
            coefficients=schedule(steps),
        )
    )
    config.log_every, config.validate_every, config.checkpoint_every = 25, 250, 250
    config.figure_every, config.wandb = 250, ""
    config.plan = dict(target="here", utilisation=0.3, views=())
    if variant == "smoke":
        config.data.num_scenes = dict(train=32, validation=16, test=16, test_general=16)
        config.log_every, config.validate_every, config.checkpoint_every = 1, 3, 3
        config.figure_every = 6
    return config


def small_sizes() -> sizes.ModelSizes:
    """A thirtieth of the published model."""
    image = sizes.ImageNetSizes(
        hidden=(128, 128),
        width=32,
        num_heads=4,
        mlp_hidden=64,
        channels=(24, 12),
        num_layers=1,
    )
    return sizes.ModelSizes(
        features=32,
        slot_view=8,
        slot_attr=64,
        key=32,
        update_hidden=64,
        latent_view=4,
        latent_bck=8,
        latent_obj=32,
        head_hidden=128,
        order_hidden=(128, 128),
        background=image,
        objects=image,
    )


def schedule(steps: int) -> dict:
    """What made objects appear in so few steps, where the published one does not.

    A third of the objective is the mixture likelihood from the start: each layer must
    explain a pixel by itself, so slots that all share every object lose early. The
    temperature of presence starts so high that no slot can be switched off before it
    has learnt to be useful, and that of shapes lets slots cover the image at first.
    The KL comes in when objects have formed, shadows and hard masks after them.
    """

    def line(*knots: tuple[float, float], scale: str = "linear") -> dict:
        at, values = zip(*knots, strict=True)
        whole = tuple(max(i + 1, round(share * steps)) for i, share in enumerate(at))
        return dict(steps=whole, values=values, scale=scale)

    return dict(
        temp_pres=line((0, 100.0), (0.4, 100.0), (0.8, 1.0), scale="log"),
        temp_shp=line((0, 4.0), (0.3, 2.0), (0.7, 1.0), scale="log"),
        ratio_stick_breaking=line((0.3, 0.01), (0.8, 1.0)),
        ratio_mixture=line((0.5, 0.3), (1, 1.0)),
        ratio_imp_sdw=line((0.5, 1.0), (0.9, 0.0)),
        reg_bck=line((0.6, 0.2), (0.9, 0.0)),
        sched_kld=line((0.3, 0.0), (0.8, 1.0)),
    )
