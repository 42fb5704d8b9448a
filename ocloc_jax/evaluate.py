"""`--mode=eval`: scores of weights on any dataset, beside the published ones."""

import dataclasses
import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import ml_collections
from jaxtyping import PyTree

from ocloc_jax import experiment, metrics
from ocloc_jax import weights as weights_lib
from ocloc_jax.evaluation import constancy, passes, provenance, store, tables
from ocloc_jax.models.ocloc import Ocloc

Config = ml_collections.ConfigDict
SPLITS = ("test", "test_general", "validation", "train")  # in the order of the tables


@dataclasses.dataclass(frozen=True)
class Options:
    """What is evaluated, and how: `config.eval`.

    Attributes:
      splits: For each split a dict with its `num_slots`, K; 0 leaves it out.
      num_views: M, from the first view of a scene.
      num_passes: Inference passes, with seeds 0, 1, ... of the initial slots.
      batch_size: Scenes in work at a time.
      constancy: Whether the first split is also examined for object constancy.
    """

    splits: dict[str, dict[str, int]]
    num_views: int = 8
    num_passes: int = 5
    batch_size: int = 2
    constancy: bool = True

    def __post_init__(self) -> None:
        """Stops at values that cannot be meant."""
        unknown = sorted(set(self.splits) - set(SPLITS))
        if unknown or not self.num_slots:
            raise ValueError(
                f"eval.splits asks for {unknown or 'nothing'}; give num_slots for some "
                f"of {list(SPLITS)}."
            )
        for name in ("num_views", "num_passes", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"eval.{name} is {getattr(self, name)}; use 1 or more."
                )

    @property
    def num_slots(self) -> dict[str, int]:
        """K of each split that is asked for, in order."""
        asked = {
            name: self.splits[name]["num_slots"]
            for name in SPLITS
            if name in self.splits
        }
        return {name: count for name, count in asked.items() if count}


def options_of(config: Config) -> Options:
    """`config.eval`, checked."""
    if not config.get("eval"):
        raise ValueError("The config has no `eval`; see docs/evaluation.md.")
    return Options(**config.eval.to_dict())


def is_asked_for(config: Config) -> bool:
    """Whether a training run is to end with an evaluation."""
    splits = (config.get("eval") or {}).get("splits", {})
    return any(options["num_slots"] for options in splits.values())


def check(config: Config) -> None:
    """Stops at what would fail after training, without rendering a scene."""
    options = options_of(config)
    for name, num_slots in options.num_slots.items():
        if "name" in config.data:
            _open(config, options, name)
            continue
        spec = experiment.scene_spec(config, name)
        passes.check_views(name, options.num_views, spec.num_views)
        passes.check_slots(name, num_slots, spec.max_objects)


def run(
    config: Config,
    workdir: pathlib.Path,
    weights: str | pathlib.Path | None = None,
) -> dict[str, Any]:
    """Evaluates the best weights of `workdir`, or others, and writes what it found.

    Args:
      config: Its `data` says which dataset, its `eval` what is evaluated; the model
        comes with the weights.
      workdir: Results go to its directory `eval`.
      weights: A file, or the directory of another run.

    Returns:
      What is in `results.json`; nothing in processes other than the first, which
      have nothing to do.
    """
    if jax.process_index() > 0:
        return {}
    check(config)
    started, options = time.monotonic(), options_of(config)
    path = weights_lib.find(weights or workdir)
    model, params = weights_lib.load(path)
    splits = [_open(config, options, name) for name in options.num_slots]
    results = {
        **provenance.describe(config, path),
        "num_iterations": model.num_iterations,
        "seeds": list(range(options.num_passes)),
        "averages": tables.KINDS,
        "splits": {},
    }
    for i, split in enumerate(splits):
        result, done = evaluate_split(model, params, split, options.num_passes)
        results["splits"][split.name] = result
        if options.constancy and i == 0:
            results["constancy"] = constancy.measure(model, params, split, done)
    results["seconds"] = round(time.monotonic() - started, 1)
    return store.write(workdir / "eval", results, config)


def _open(config: Config, options: Options, name: str) -> passes.Split:
    return passes.Split(
        name=name,
        scenes=experiment.load_scenes(config, name),
        num_views=options.num_views,
        num_slots=options.num_slots[name],
        batch_size=options.batch_size,
    )


def evaluate_split(
    model: Ocloc, params: PyTree, split: passes.Split, num_passes: int
) -> tuple[dict[str, Any], list[passes.Pass]]:
    """Scores a split several times; what is stored of it, and the passes."""
    started, fingerprint, done = time.monotonic(), passes.Fingerprint(), []
    with passes.progress(split.name, num_passes * len(split.scenes)) as bar:
        for seed in range(num_passes):
            bar.set_postfix({"pass": f"{seed + 1}/{num_passes}"}, refresh=False)
            watch = [lambda _: bar.update(), *([fingerprint] if seed == 0 else [])]
            done.append(passes.run(model, params, split, seed, watch))
    spread = {
        kind: metrics.mean_and_deviation([p.averages[kind] for p in done])
        for kind in passes.KINDS
    }
    result = {
        "dataset": {**split.scenes.metadata, "sha256_of_scored": str(fingerprint)},
        "num_scenes": len(split.scenes),
        "num_views": split.num_views,
        "num_slots": split.num_slots,
        "num_objects": split.num_objects,
        **{
            part: {k: {n: v[part] for n, v in spread[k].items()} for k in spread}
            for part in ("mean", "sd")
        },
        "not_scored": not_scored(split, done[0].averages["pooled"]),
        "notes": _notes(split),
        "passes": [{"seed": p.seed, **p.averages} for p in done],
        "seconds": round(time.monotonic() - started, 1),
    }
    return result, done


def not_scored(split: passes.Split, scores: Mapping[str, float]) -> dict[str, str]:
    """Why scores are no numbers."""
    found = {}
    for name, value in scores.items():
        if math.isfinite(value):
            continue
        if not split.is_labelled and name in metrics.METRICS:
            found[name] = "the dataset has no `segment`"
        elif name in ("iou", "f1", "ooa") and "masks" not in split.scenes.keys:
            found[name] = "the dataset has no complete shapes (`masks`)"
        elif name == "ooa":
            found[name] = "no two objects of a scene overlap"
        elif name in ("iou", "f1"):
            found[name] = "no scene has an object"
        else:
            found[name] = f"it is {value}"
    return found


def _notes(split: passes.Split) -> list[str]:
    if split.is_labelled and "overlap" not in split.scenes.keys:
        return [
            "The dataset has no `overlap`: the object pixels of ARI-O and AMI-O are "
            "those with an object in `segment`"
        ]
    return []
