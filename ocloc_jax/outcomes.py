"""What the seeds of a stage reached: the best weights of each, and a comparison."""

import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ocloc_jax import files, logs
from ocloc_jax.checkpoints import Best
from ocloc_jax.models.ocloc import Ocloc

ARI_O = "ari_obj_m"
# What the table shows, where it was measured.
_COLUMNS = {"loss": "objective", "ari_all_m": "ARI-A", ARI_O: "ARI-O", "mse": "MSE"}


class Bests:
    """The weights with the lowest validation objective, of all seeds and of each.

    Those of all seeds are `best.safetensors`; with several seeds those of each are
    `seeds/SEED/best.safetensors`.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        numbers: Sequence[int],
        num_slots: int | None = None,
    ):
        """Reads what an earlier part of the run left.

        Args:
          directory: Of the stage.
          numbers: The seeds.
          num_slots: K of the training, which the weights tell.
        """
        self._overall = Best(directory, num_slots)
        self._each = {numbers[0]: self._overall}
        if len(numbers) > 1:
            places = {seed: directory / "seeds" / str(seed) for seed in numbers}
            self._each = {seed: Best(at, num_slots) for seed, at in places.items()}

    @property
    def weights(self) -> pathlib.Path:
        """The best weights of all."""
        return self._overall.weights

    @property
    def of_each(self) -> list[pathlib.Path]:
        """The best weights of each seed."""
        return [best.weights for best in self._each.values()]

    @property
    def is_missing(self) -> bool:
        """Whether some of the weights are not there."""
        return any(b.step < 0 for b in (self._overall, *self._each.values()))

    def update(
        self,
        scores: Mapping[int, Mapping[str, float]],
        step: int,
        model: Ocloc,
        params: Iterable[Any],
    ) -> None:
        """Keeps the weights of seeds that are better than before.

        Args:
          scores: Of each seed; `loss` decides.
          step: After which they were measured.
          model: What the weights belong to.
          params: Of each seed, in the same order.
        """
        for (seed, best), own in zip(self._each.items(), params, strict=True):
            loss = scores[seed]["loss"]
            best.update(loss, step, model, own)
            if best is not self._overall:
                self._overall.update(loss, step, model, own)


def write(directory: pathlib.Path, threshold: float) -> dict[str, Any]:
    """Compares the seeds of a stage by its metrics.jsonl: seeds.json and a table."""
    rows = logs.read_json_lines(directory / "metrics.jsonl")
    result = compare(rows, threshold)
    # JSON has no nan.
    plain = jax.tree.map(lambda x: None if x != x else x, result)
    with files.written_whole(directory / "seeds.json") as partial:
        partial.write_text(json.dumps(plain, indent=2) + "\n")
    print(table(result), flush=True)
    return result


def compare(rows: Sequence[Mapping[str, Any]], threshold: float) -> dict[str, Any]:
    """Each seed at its best validation, mean and deviation, and the success rate.

    Args:
      rows: Of a metrics.jsonl.
      threshold: A seed succeeds whose ARI-O is at least this, at its best objective.

    Returns:
      `seeds`: of each seed its scores, the `step` they are from, and the `last_step`
      that was trained. `mean` and `sd` (of the sample) over seeds. `best_seed`: by
      objective. `success`: the threshold, the seeds that reach it, and their share;
      None without labels.
    """
    numbers = sorted({row["seed"] for row in rows if "seed" in row})
    seeds = {
        seed: _best_of([r for r in rows if r.get("seed") == seed]) for seed in numbers
    }
    names = [k for k in seeds[numbers[0]] if k not in ("step", "last_step")]
    values = {k: [seed[k] for seed in seeds.values()] for k in names}
    return {
        "seeds": seeds,
        "mean": {k: float(np.mean(v)) for k, v in values.items()},
        "sd": {k: float(np.std(v, ddof=1)) for k, v in values.items()},
        "best_seed": min(seeds, key=lambda seed: seeds[seed]["loss"]),
        "success": _success(seeds, threshold) if ARI_O in names else None,
    }


def _best_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The scores of a seed's validation with the lowest objective."""
    validations = [
        {
            k.removeprefix("validation/"): math.nan if v is None else v
            for k, v in row.items()
        }
        for row in rows
        if "validation/loss" in row
    ]
    best = min(validations, key=lambda row: np.nan_to_num(row["loss"], nan=math.inf))
    scores = {k: v for k, v in best.items() if k not in ("step", "time", "seed")}
    trained = [row["step"] for row in rows if "train/loss" in row]
    return {"step": best["step"], "last_step": max(trained), **scores}


def _success(seeds: Mapping[int, Mapping[str, Any]], threshold: float) -> dict:
    reached = [seed for seed, scores in seeds.items() if scores[ARI_O] >= threshold]
    return {"ari_o": threshold, "seeds": reached, "rate": len(reached) / len(seeds)}


def table(result: Mapping[str, Any]) -> str:
    """A comparison as Markdown, and a sentence about success."""
    shown = [key for key in _COLUMNS if key in result["mean"]]
    lines = [
        ["seed", "best step", *(_COLUMNS[key] for key in shown)],
        ["---:"] * (len(shown) + 2),
    ]
    for seed, scores in result["seeds"].items():
        lines.append([seed, scores["step"], *(_cell(k, scores[k]) for k in shown)])
    spread = [
        f"{_cell(k, result['mean'][k])} ± {_cell(k, result['sd'][k])}" for k in shown
    ]
    lines.append(["mean ± sd", "", *spread])
    text = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    success = result["success"]
    if success is None:
        return text
    return (
        f"{text}\n{len(success['seeds'])} of {len(result['seeds'])} seeds "
        f"({success['rate']:.0%}) reach ARI-O {success['ari_o']:.2f} in validation."
    )


def _cell(key: str, value: float) -> str:
    return f"{value:.1f}" if key == "loss" else f"{value:.3f}"
