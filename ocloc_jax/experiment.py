"""An experiment from its config: data, model, and its stages one after another."""

import json
import pathlib
from typing import Any

import ml_collections

from ocloc_jax import (
    checks,
    data,
    distributed,
    files,
    loop,
    outcomes,
    parameters,
    run_figures,
    scenes,
    start,
    train,
)
from ocloc_jax.models import sizes
from ocloc_jax.models.ocloc import Ocloc

Config = ml_collections.ConfigDict

# What may change in a directory, because the weights do not depend on it.
NOT_TRAINING = ("eval", "render", "plan", "wandb", "cpu_devices")
SPLITS = ("train", "validation", "test", "test_general")


def make_model(config: Config) -> Ocloc:
    """The model of a config."""
    options = config.model.to_dict()
    return Ocloc(sizes.from_dict(options.pop("sizes")), **options)


def load_scenes(config: Config, split: str) -> data.Scenes:
    """Scenes of a split: of a built dataset, or ray-traced when they are read."""
    if "name" in config.data:
        return data.open_dataset(config.data.name, split, config.data.get("data_dir"))
    return data.RenderedScenes(
        scene_spec(config, split),
        split_seed(config, split),
        config.data.num_scenes[split],
    )


def scene_spec(config: Config, split: str) -> scenes.SceneSpec:
    """What ray-traced scenes of a split look like; Test 2 may have more objects."""
    if split not in config.data.num_scenes:
        raise ValueError(
            f"data.num_scenes has no split {split!r}, only "
            f"{sorted(config.data.num_scenes)}; say how many scenes it has."
        )
    fields = config.data.scenes.to_dict()
    if split == "test_general":
        fields |= config.data.get("general", {})
    return scenes.SceneSpec(**fields)


def split_seed(config: Config, split: str) -> int:
    """A seed for each split, so that no scene is in two of them."""
    return config.data.seed + SPLITS.index(split)


def run(config: Config, workdir: pathlib.Path) -> pathlib.Path:
    """Trains all stages, resuming where an earlier run stopped; the best weights."""
    from ocloc_jax import evaluate  # which loads its scenes with this module

    checks.check(config)
    if evaluate.is_asked_for(config):
        evaluate.check(config)  # rather now than after a week of training
    model, plans = make_model(config), make_plans(config)
    params = first_params(config, model, next(iter(plans.values())))
    claim(workdir, config)
    if distributed.is_main():
        shapes = parameters.shapes(params[0])
        (workdir / "parameters.txt").write_text(parameters.table(shapes))
        print(parameters.summary(shapes))
    splits = {split: load_scenes(config, split) for split in ("train", "validation")}
    checks.check_scenes(config, splits)
    for plan in plans.values():
        loop.make_pipelines(plan, splits)  # so that the last stage's faults show now
    best = None
    for name, plan in plans.items():
        if best is not None:
            params = next_params(config, model, plan, best)
        best = loop.run_stage(name, plan, model, params, splits, workdir / name)
        if plan.num_seeds > 1:
            outcomes.write(workdir / name, plan.success_ari_o)
    if distributed.is_main():
        run_figures.draw(workdir, splits["validation"], config.objective.num_slots)
        if evaluate.is_asked_for(config):
            evaluate.run(config, workdir)
        print(f"best weights: {best.weights}")
    distributed.wait(f"end of {workdir}")
    return best.weights


def make_plans(config: Config) -> dict[str, loop.Plan]:
    """The stages that are run, in their order."""
    only = config.get("only_stage")
    names = [only] if only else stage_names(config)
    return {name: make_plan(config, config.stages[name]) for name in names}


def stage_names(config: Config) -> list[str]:
    """In the order of training; a ConfigDict keeps its keys in that of the alphabet."""
    return [stage for stage in checks.STAGES if stage in config.stages]


def view_counts(stage: Config) -> range:
    """Every number of views that a batch of a stage can have."""
    if stage.views.stage == "single":
        return range(1, 2)
    return range(stage.views.get("min_views", 1), stage.views.max_views + 1)


def make_plan(config: Config, stage: Config) -> loop.Plan:
    """What one stage does, as plain values."""
    options = {k: config[k] for k in ("over_seeds", "success_ari_o") if k in config}
    if "stop_dead" in config:
        options["stop_dead"] = config.stop_dead.to_dict()
    return loop.Plan(
        seed=config.seed,
        num_seeds=checks.num_seeds(config, stage),
        batch_size=stage.batch_size,
        views=stage.views.to_dict(),
        learning_rate=stage.learning_rate.to_dict(),
        clip_norm=stage.clip_norm,
        coefficients=stage.coefficients.to_dict(),
        objective=train.Objective(**config.objective),
        log_every=config.log_every,
        validate_every=config.validate_every,
        checkpoint_every=config.checkpoint_every,
        optimizer=stage.get("optimizer", "adam"),
        accumulate=stage.get("accumulate", 1),
        images_at_a_time=stage.get("images_at_a_time", 0),
        num_iterations=stage.get("num_iterations"),
        figure_every=config.get("figure_every", 0),
        wandb=config.get("wandb", ""),
        **options,
    )


def first_params(config: Config, model: Ocloc, plan: loop.Plan) -> list[Any]:
    """What each seed of the first stage starts from."""
    numbers = range(plan.seed, plan.seed + plan.num_seeds)
    if not config.get("init_from"):
        return start.fresh(model, numbers, config.get("initial", "released"))
    each = config.get("select") == "each"
    return start.read(config.init_from, model, numbers, each=each)


def next_params(
    config: Config, model: Ocloc, plan: loop.Plan, before: outcomes.Bests
) -> list[Any]:
    """What each seed of a later stage starts from: the best of all, or its own."""
    each = config.get("select") == "each"
    paths = before.of_each if each else plan.num_seeds * [before.weights]
    return [start.read_weights(path, model) for path in paths]


def claim(workdir: pathlib.Path, config: Config) -> None:
    """Writes the config into a new directory, or checks it against an old one's."""
    workdir.mkdir(parents=True, exist_ok=True)
    path, ours = workdir / "config.json", json.loads(config.to_json())
    if distributed.is_main() and not path.exists():
        with files.written_whole(path) as partial:
            partial.write_text(json.dumps(ours, indent=2) + "\n")
    distributed.wait(f"config of {workdir}")
    theirs = _flatten(json.loads(path.read_text()))
    flat = _flatten(ours)
    changed = [
        key
        for key in {**theirs, **flat}
        if theirs.get(key) != flat.get(key) and key.split(".")[0] not in NOT_TRAINING
    ]
    if changed:
        lines = [f"  {k}: {theirs.get(k)} -> {flat.get(k)}" for k in sorted(changed)]
        raise ValueError(
            f"{workdir} was made with another config; choose another --workdir, or "
            "take back:\n" + "\n".join(lines)
        )


def _flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}.{key}" if prefix else key)
    return flat
