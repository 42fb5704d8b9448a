"""What the four published configs share: the recipe of the paper's tables."""

import dataclasses

import ml_collections

from ocloc_jax import recipes
from ocloc_jax.models import sizes

VARIANTS = ("published", "no_shadow", "paper", "smoke")


def published(dataset: str, variant: str = "published") -> ml_collections.ConfigDict:
    """The two-stage recipe of a dataset, or one of its variants.

    Args:
      dataset: clevr, shop, gso or shapenet.
      variant: `no_shadow` is the paper's ablation; `paper` the model and objective as
        printed, without annealing; `smoke` a few steps on tiny scenes, for tests.
    """
    if variant not in VARIANTS:
        raise ValueError(f"Unknown variant {variant!r}; use one of {VARIANTS}.")
    config = ml_collections.ConfigDict()
    config.seed = 0
    config.init_from = ""
    config.model = dict(
        sizes=dataclasses.asdict(sizes.BY_DATASET[dataset]),
        shadows=variant != "no_shadow",
        mode="paper" if variant == "paper" else "released",
        num_iterations=3,
        remat=False,
        dtype="float32",
    )
    config.objective = dict(num_slots=7, sigma_x=0.2, alpha=4.5)
    config.data = dict(name=f"multiview_{dataset}/released", data_dir="data")
    config.report = dict(num_views=8, num_slots=7)
    config.render = dict(split="test", scenes=(0, 1, 2), num_views=4, num_slots=7)
    smoke = variant == "smoke"
    config.stages = dict(
        single=_stage(dataset, "single", 32, variant, 4 if smoke else None),
        multi=_stage(dataset, "multi", 8, variant, 4 if smoke else None),
    )
    config.log_every, config.validate_every, config.checkpoint_every = 100, 2000, 2000
    return _make_smoke(config) if smoke else config


def _stage(
    dataset: str, stage: str, batch_size: int, variant: str, num_steps: int | None
) -> dict:
    family = recipes.FAMILY_OF[dataset]
    table = recipes.coefficients(family, stage, num_steps)
    return dict(
        batch_size=batch_size,
        views=dict(stage=stage, max_views=8),
        learning_rate=recipes.learning_rate(family, stage, num_steps),
        clip_norm=5.0,
        coefficients=recipes.elbo() if variant == "paper" else table,
    )


def _make_smoke(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    config.data = dict(
        scenes=dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1),
        num_scenes=dict(train=16, validation=8),
        seed=0,
    )
    config.objective.num_slots = config.render.num_slots = 2
    config.render.split, config.render.num_views = "validation", 2
    for stage in config.stages.values():
        stage.batch_size, stage.views.max_views = 8, 2
    config.log_every, config.validate_every, config.checkpoint_every = 1, 2, 2
    return config
