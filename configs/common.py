r"""What the four published configs share: the recipe of the paper's tables.

The tables stand for the best of 10 single-view runs, from which 5 multi-view runs
start, of which the best counts; best is by validation objective. Either as one run,

    python launch.py --config=configs/clevr.py --workdir=runs/clevr \
        --config.stages.single.num_seeds=10 --config.stages.multi.num_seeds=5

or as 15 runs, which `sweep` yields and `python -m configs.sweep` prints as commands.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_collections
from ml_collections import config_dict

from ocloc_jax import recipes
from ocloc_jax.models import sizes

VARIANTS = ("published", "no_shadow", "paper", "smoke")


def run_options() -> dict[str, Any]:
    """Which runs are made, and where they start; see docs/seeds.md."""
    return dict(
        seed=0,
        num_seeds=1,  # so many runs at once, with the seeds that follow `seed`
        select="best",  # the best seed starts the next stage; or "each" its own
        over_seeds="auto",  # "vmap" or "loop"; by default what the platform likes
        success_ari_o=0.8,  # a seed that reaches it in validation has succeeded
        stop_dead=dict(after=0, patience=0),  # after a step, so many bad logs; 0: off
        cpu_devices=1,  # into so many parts a CPU is split; see docs/performance.md
        only_stage="",  # "single" or "multi" to run that one alone
        initial="released",  # parameters; "scaled" is ours, for short training
        init_from="",  # weights, a stage's directory, or its checkpoints
    )


def published(dataset: str, variant: str = "published") -> ml_collections.ConfigDict:
    """The two-stage recipe of a dataset, or one of its variants.

    Args:
      dataset: clevr, shop, gso or shapenet.
      variant: `no_shadow` is the paper's ablation; `paper` the model and objective as
        printed, without annealing; `smoke` both stages in a minute, to see that all
        works: every layer an eighth as wide, images of 16x16, 2 views, 2 slots, 4
        steps a stage; depth, schedules and objective are those of the recipe.
    """
    if variant not in VARIANTS:
        raise ValueError(f"Unknown variant {variant!r}; use one of {VARIANTS}.")
    config = ml_collections.ConfigDict(run_options())
    config.model = dict(
        sizes=dataclasses.asdict(sizes.BY_DATASET[dataset]),
        shadows=variant != "no_shadow",
        mode="paper" if variant == "paper" else "released",
        num_iterations=3,
        remat="none",
        dtype="float32",
        num_parts=1,  # 4 on a CPU, for its threads; see docs/performance.md
    )
    config.objective = dict(num_slots=7, sigma_x=0.2, alpha=4.5)
    config.data = dict(name=f"multiview_{dataset}/released", data_dir="data")
    config.render = dict(split="test", scenes=(0, 1, 2), num_views=4, num_slots=7)
    config.eval = evaluation(num_views=8, test=7, test_general=11)
    smoke = variant == "smoke"
    config.stages = dict(
        single=_stage(dataset, "single", 32, variant, 4 if smoke else None),
        multi=_stage(dataset, "multi", 8, variant, 4 if smoke else None),
    )
    config.log_every, config.validate_every, config.checkpoint_every = 100, 2000, 2000
    config.figure_every, config.wandb = 10_000, ""
    config.plan = dict(target="here", utilisation=0.3, views=())
    return _make_smoke(config) if smoke else config


def evaluation(num_views: int, **num_slots: int) -> dict:
    """What `--mode=eval` and the end of a training run score; docs/evaluation.md.

    Args:
      num_views: M, from the first view of a scene.
      **num_slots: K for each split; a split with 0 slots is left out.
    """
    splits = dict(test=0, test_general=0, train=0, validation=0) | num_slots
    return dict(
        splits={split: dict(num_slots=k) for split, k in splits.items()},
        num_views=num_views,
        num_passes=5,
        batch_size=2,
        constancy=True,
    )


def _stage(
    dataset: str, stage: str, batch_size: int, variant: str, num_steps: int | None
) -> dict:
    family = recipes.FAMILY_OF[dataset]
    table = recipes.coefficients(family, stage, num_steps)
    return dict(
        num_seeds=config_dict.placeholder(int),  # in place of config.num_seeds
        batch_size=batch_size,
        accumulate=1,  # parts of a batch, one after another; more need less memory
        images_at_a_time=0,  # that are decoded, 0 for all; fewer need less memory
        views=dict(stage=stage, max_views=8, views_seed=config_dict.placeholder(int)),
        learning_rate=recipes.learning_rate(family, stage, num_steps),
        clip_norm=5.0,
        optimizer="adam",  # "muon" is ours, for short training
        coefficients=recipes.elbo() if variant == "paper" else table,
    )


def _make_smoke(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    config.data = dict(
        scenes=dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1),
        num_scenes=dict(train=16, validation=8, test=4),
        seed=0,
    )
    narrow = sizes.narrow(sizes.from_dict(config.model.sizes.to_dict()), 8)
    config.model.sizes = dataclasses.asdict(narrow)
    config.objective.num_slots = config.render.num_slots = 2
    config.render.split, config.render.num_views = "validation", 2
    config.eval = evaluation(num_views=2, test=2)
    config.eval.num_passes, config.eval.constancy = 2, False
    for stage in config.stages.values():
        stage.batch_size, stage.views.max_views = 8, 2
    config.log_every, config.validate_every, config.checkpoint_every = 1, 2, 2
    config.figure_every = 4
    return config


def sweep(workdir: str) -> Iterator[dict[str, Any]]:
    """The published protocol as overrides of a config, one for each run.

    Args:
      workdir: Above those of the runs, which are called `single_0` to `multi_4`.
    """
    for seed in range(10):
        yield dict(only_stage="single", seed=seed)
    # The best of all that match, by validation objective.
    best = f"{workdir}/single_*/single"
    for seed in range(5):
        yield dict(only_stage="multi", seed=seed, init_from=best)
