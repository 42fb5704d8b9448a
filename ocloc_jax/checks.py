"""What cannot be meant in a config, found before any work, each in one sentence."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import ml_collections

from ocloc_jax import data, logs, optimizers, scenes, schedules, seeds, train
from ocloc_jax.models import compose, initial, ocloc, sizes

Config = ml_collections.ConfigDict

STAGES = ("single", "multi")
SELECT = ("best", "each")
DTYPES = ("float32", "bfloat16")
_OTHER = ("parent", "name")  # fields that every Flax module has
_INTERVALS = {"log_every": 1, "validate_every": 1, "checkpoint_every": 1}
_INTERVALS |= {"figure_every": 0}  # 0 is never


def _fields(*classes: Any) -> tuple[str, ...]:
    own, *inherited = ([f.name for f in dataclasses.fields(c)] for c in classes)
    return tuple(n for n in own if n not in [*sum(inherited, []), *_OTHER])


# The keys that each part of a config may have; * stands for the name of a stage.
KEYS = {
    "": (
        *("seed", "initial", "init_from", "model", "objective", "data", "stages"),
        *(*_INTERVALS, "wandb", "plan", "eval", "render"),
        *("num_seeds", "select", "over_seeds", "stop_dead", "success_ari_o"),
        *("only_stage", "cpu_devices"),
    ),
    "model": _fields(ocloc.Ocloc),
    "model.sizes": _fields(sizes.ModelSizes),
    "model.sizes.background": _fields(sizes.ImageNetSizes),
    "model.sizes.objects": _fields(sizes.ImageNetSizes),
    "objective": _fields(train.Objective),
    "data": ("name", "data_dir", "size", "scenes", "general", "num_scenes", "seed"),
    "data.scenes": _fields(scenes.SceneSpec),
    "data.general": _fields(scenes.SceneSpec),
    "plan": ("target", "utilisation", "views"),
    "stages": STAGES,
    "stages.*": (
        *("batch_size", "accumulate", "images_at_a_time", "views", "learning_rate"),
        *("clip_norm", "optimizer", "coefficients", "num_seeds", "num_iterations"),
    ),
    "stages.*.views": _fields(data.TrainPipeline, data.Pipeline),
    "stages.*.learning_rate": (
        *("base", "num_steps", "decay", "warmup_steps", "scale"),
    ),
    "stages.*.coefficients": schedules.NAMES,
}


def check(config: Config, num_devices: int | None = None) -> None:
    """Stops at values that cannot be meant, with a line about each of them.

    Args:
      config: Of an experiment.
      num_devices: That share a batch; by default those that are here.
    """
    num_devices = num_devices or jax.device_count()
    faults = list(_unknown_keys(config)) or list(_seed_faults(config))
    faults = faults or list(_faults(config, num_devices))
    if faults:
        raise ValueError("\n".join(faults))


def check_scenes(config: Config, splits: Mapping[str, data.Scenes]) -> None:
    """Stops at scenes that the config has too few slots for."""
    for split, found in splits.items():
        most = found.metadata.get("num_objects")
        if most is not None and config.objective.num_slots < most:
            raise ValueError(
                f"objective.num_slots is {config.objective.num_slots}, but scenes of "
                f"{split} have up to {most} objects; give at least as many slots."
            )


def unknown_key(path: str, known: Any) -> str:
    """A sentence about a key that does not exist, with those that were meant."""
    parent, _, key = path.rpartition(".")
    close = difflib.get_close_matches(key, known, n=3)
    where = f"config.{parent}" if parent else "config"
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    listed = ", ".join(sorted(known))
    return f"There is no key {key!r} in {where}.{meant} It has: {listed}."


def unknown_override(config: Config, path: str) -> str | None:
    """As `unknown_key`, for `--config.PATH=value`; None if there is such a key."""
    node, walked = config, []
    for key in path.split("."):
        walked.append(key)
        if not isinstance(node, ml_collections.ConfigDict):
            return f"config.{'.'.join(walked[:-1])} is a value and has no keys."
        if key not in node:
            return unknown_key(".".join(walked), list(node))
        node = node[key]
    return None


def _unknown_keys(config: Config, path: str = "") -> Iterator[str]:
    known = KEYS.get(_pattern(path))
    for key, value in config.items():
        inner = f"{path}.{key}" if path else key
        if known is not None and key not in known:
            yield unknown_key(inner, known)
        elif isinstance(value, ml_collections.ConfigDict):
            yield from _unknown_keys(value, inner)


def _pattern(path: str) -> str:
    parts = path.split(".")
    if parts[0] == "stages" and len(parts) > 1:
        parts[1] = "*"
    return ".".join(parts)


def _faults(config: Config, num_devices: int) -> Iterator[str]:
    if config.seed < 0:
        yield f"seed is {config.seed}; choose 0 or more."
    for name, least in _INTERVALS.items():
        if config.get(name, least) < least:
            yield f"{name} is {config[name]}; choose {least} or more."
    yield from _model_faults(config)
    yield from _data_faults(config)
    if not config.stages:
        yield f"stages is empty; name at least one of {STAGES}."
    for name, stage in config.stages.items():
        num_shares = _batch_shares(config, stage, num_devices)
        yield from (f"stages.{name}.{x}" for x in _stage_faults(stage, num_shares))
        yield from _view_faults(config, name)
    if not 0 < config.get("plan", {}).get("utilisation", 0.3) <= 1:
        yield "plan.utilisation is a share of the peak rate: choose 0.3, say."
    if config.get("wandb"):
        yield from _caught(logs.import_wandb)


def num_seeds(config: Config, stage: Config) -> int:
    """How many seeds a stage trains: its own number, or that of the config."""
    own = stage.get("num_seeds")
    return config.get("num_seeds", 1) if own is None else own


def _batch_shares(config: Config, stage: Config, num_devices: int) -> int:
    """Over how many devices the batch of one seed is split."""
    way = config.get("over_seeds", "auto")
    way = seeds.choose_way(jax.default_backend()) if way == "auto" else way
    count = num_seeds(config, stage)
    if count == 1 or way == "loop":
        return num_devices
    return seeds.mesh_shape(count, num_devices)[1]


def _seed_faults(config: Config) -> Iterator[str]:
    """What is wrong with how stages and seeds follow one another."""
    names = [name for name in STAGES if name in config.stages]
    counts = {name: num_seeds(config, config.stages[name]) for name in names}
    yield from (
        f"num_seeds of stage {name} is {count}; choose 1 or more."
        for name, count in counts.items()
        if count < 1
    )
    if jax.process_count() > 1 and max(counts.values()) > 1:
        yield (
            f"num_seeds is {counts}, but several seeds are trained in one process (on "
            "all its devices); start a run of its own for each seed."
        )
    select, way = config.get("select", "best"), config.get("over_seeds", "auto")
    if select not in SELECT:
        yield f"select is {select!r}; use 'best' or 'each'."
    if select == "each" and len(set(counts.values())) > 1:
        yield (
            f"select is 'each', so every seed goes on, but the stages have {counts} "
            "seeds; give them equal numbers, or use select='best'."
        )
    if way not in seeds.WAYS:
        yield f"over_seeds is {way!r}; use one of {seeds.WAYS}."
    if config.get("stop_dead", {}).get("patience", 0) < 0:
        yield "stop_dead.patience cannot be negative; 0 turns it off."
    yield from _only_stage_faults(config)


def _only_stage_faults(config: Config) -> Iterator[str]:
    only = config.get("only_stage")
    if only and only not in config.stages:
        known = " or ".join(repr(stage) for stage in config.stages)
        yield f"only_stage is {only!r}; choose {known}, or leave it empty."
    elif only == "multi" and not config.get("init_from"):
        yield (
            "only_stage is 'multi', which starts from single-view weights: name them, "
            "as in --config.init_from=runs/clevr/single. (To train it from nothing, "
            "leave stages.single out of the config instead.)"
        )


def _model_faults(config: Config) -> Iterator[str]:
    model, objective = config.model, config.objective
    choices = {"mode": compose.MODES, "remat": ocloc.REMAT, "dtype": DTYPES}
    for name, known in choices.items():
        if model[name] not in known:
            yield f"model.{name} is {model[name]!r}; use one of {known}."
    if model.num_iterations < 1:
        yield f"model.num_iterations (T) is {model.num_iterations}; choose 1 or more."
    style = config.get("initial", "released")
    if style not in initial.STYLES:
        yield f"initial is {style!r}; use one of {initial.STYLES}."
    for name in ("background", "objects"):
        net = model.sizes[name]
        if net.width % net.num_heads:
            yield (
                f"model.sizes.{name}.width is {net.width}, which {net.num_heads} heads "
                "cannot share; choose a multiple."
            )
    if objective.num_slots < 1:
        yield f"objective.num_slots (K) is {objective.num_slots}; choose 1 or more."
    for name in ("sigma_x", "alpha"):
        if not objective[name] > 0:
            yield f"objective.{name} is {objective[name]}; it must be positive."


def _data_faults(config: Config) -> Iterator[str]:
    spec = config.data.get("scenes")
    if ("name" in config.data) == (spec is not None):
        yield "data needs either a name (of a built dataset) or scenes (to ray-trace)."
    if spec is None:
        return
    yield from _caught(lambda: scenes.SceneSpec(**spec.to_dict()))
    network = sizes.from_dict(config.model.sizes.to_dict())
    size = spec.get("size", scenes.SceneSpec.size)
    yield from _caught(lambda: sizes.check_image_size(network, size, size))
    for split in ("train", "validation"):
        if config.data.get("num_scenes", {}).get(split, 0) < 1:
            yield f"data.num_scenes.{split} is missing or 0; choose 1 or more."
    most = spec.get("max_objects", scenes.SceneSpec.max_objects)
    if config.objective.num_slots < most:
        yield (
            f"objective.num_slots is {config.objective.num_slots}, but scenes have up "
            f"to {most} objects; give at least as many slots."
        )


def _stage_faults(stage: Config, num_devices: int) -> Iterator[str]:
    size, parts = stage.batch_size, stage.get("accumulate", 1)
    if parts < 1:
        yield f"accumulate is {parts}; choose 1 or more."
    elif size < 1 or size % (num_devices * parts):
        shares = f"{num_devices} devices" + (f" in {parts} parts" if parts > 1 else "")
        yield (
            f"batch_size is {size}, which cannot be split over {shares}; choose a "
            f"multiple of {num_devices * parts}."
        )
    if (at_a_time := stage.get("images_at_a_time", 0)) < 0:
        yield f"images_at_a_time is {at_a_time}; choose 1 or more, or 0 for all."
    if (stage.get("num_iterations") or 1) < 1:
        yield f"num_iterations (T) is {stage.num_iterations}; choose 1 or more."
    if not stage.clip_norm > 0:
        yield f"clip_norm is {stage.clip_norm}; it must be positive."
    if stage.get("optimizer", "adam") not in optimizers.KINDS:
        yield f"optimizer is {stage.optimizer!r}; choose one of {optimizers.KINDS}."
    rate = stage.learning_rate
    if rate.num_steps < 1:
        yield f"learning_rate.num_steps is {rate.num_steps}; choose 1 or more."
    if rate.warmup_steps < 0:
        yield f"learning_rate.warmup_steps is {rate.warmup_steps}; choose 0 or more."
    for name in ("base", "decay"):
        if not rate[name] > 0:
            yield f"learning_rate.{name} is {rate[name]}; it must be positive."
    if rate.get("scale", "log") not in schedules.SCALES:
        yield f"learning_rate.scale is {rate.scale!r}; use one of {schedules.SCALES}."
    table = stage.coefficients.to_dict()
    yield from (f"coefficients: {x}" for x in _caught(schedules.check_table, table))


def _view_faults(config: Config, name: str) -> Iterator[str]:
    views, spec = config.stages[name].views, config.data.get("scenes")
    where = f"stages.{name}.views"
    if views.stage not in STAGES:
        yield f"{where}.stage is {views.stage!r}; use one of {STAGES}."
    least, most = views.get("min_views", 1), views.max_views
    if not 1 <= least <= most:
        yield f"{where} asks for {least} to {most} views; choose 1 <= min <= max."
    available = spec.get("num_views", scenes.SceneSpec.num_views) if spec else most
    if views.stage == "multi" and most > available:
        yield (
            f"{where}.max_views is {most}, but data.scenes.num_views gives a scene "
            f"{available} views; lower one or raise the other."
        )


def _caught(call: Any, *args: Any) -> Iterator[str]:
    try:
        call(*args)
    except (ValueError, TypeError) as error:
        yield str(error)
