"""`--mode=replay`: runs the step of a black box again and says what went wrong."""

import json
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from ocloc_jax import blackbox, data, experiment, loop, nonfinite, start, train
from ocloc_jax.checkpoints import Checkpoints

Config = ml_collections.ConfigDict


def run(config: Config, workdir: pathlib.Path) -> list[nonfinite.Operation]:
    """Replays the latest black box of a run; prints and returns guilty operations."""
    box = latest(workdir)
    experiment.claim(workdir, config)  # the box is of no use to another config
    record = json.loads((box / "box.json").read_text())
    seed = record["seed"]
    print(f"{box}: stage {record['stage']}, step {record['step']}, seed {seed}")
    print(f"scenes {record['index']}, views {record['views']}")
    model = experiment.make_model(config)
    plan = experiment.make_plan(config, config.stages[record["stage"]])
    optimizer = plan.make_optimizer()
    (params,) = start.fresh(model, range(seed, seed + 1))
    like = train.create_state(params, optimizer, seed)
    state, batch = load(box, record["step"] - 1, like)
    step = loop.make_step(plan, model, blackbox.observed(optimizer))
    state = blackbox.observable(state)
    (after, metrics), guilty = nonfinite.find(step, state, batch)
    print(describe(state, after, metrics, guilty))
    return guilty


def latest(workdir: pathlib.Path) -> pathlib.Path:
    """The black box that was written last."""
    records = list(workdir.glob("*/blackbox/step_*/box.json"))
    if not records:
        raise ValueError(
            f"There is no black box in {workdir}. One is written when a loss or "
            "gradient is not finite; give the --workdir of such a run."
        )
    return max(records, key=lambda path: path.stat().st_mtime).parent


def load(box: pathlib.Path, step: int, like: Any) -> tuple[Any, data.Batch]:
    """The state before the step, and its batch."""
    with Checkpoints(box / "state") as checkpoints:
        state = checkpoints.load(step, like)
    with np.load(box / "batch.npz") as arrays:
        return state, jax.device_put(dict(arrays))


def describe(
    before: Any, after: Any, metrics: train.Metrics, guilty: list[nonfinite.Operation]
) -> str:
    """What a person wants to know of a step that went wrong."""
    bad = [name for name, value in metrics.items() if not np.isfinite(value).all()]
    lines = ["", "not finite in the result:   " + (", ".join(bad) or "nothing")]
    for text, tree in (
        ("parameters before the step", before.params),
        ("gradients", after.opt_state[1]),
        ("parameters after the step", after.params),
    ):
        names = list(blackbox.not_finite(tree))
        lines.append(f"not finite, {text}: {_some(names)}")
    lines += ["", f"{'module':<34}{'parameters':>14}{'gradients':>14}"]
    for name, module in blackbox.norms(before.params, after.opt_state[1]).items():
        numbers = f"{module['parameters']:>14.4g}{module['gradients']:>14.4g}"
        lines.append(f"{name:<34}{numbers}")
    lines += ["", "operations that made NaN or infinity out of finite numbers:"]
    lines += [_line(operation) for operation in guilty[:10]] or ["  none"]
    return "\n".join(lines)


def _line(operation: nonfinite.Operation) -> str:
    here = f"{pathlib.Path.cwd()}/"
    where = operation.source.removeprefix(here)
    return f"  {operation.name} in {operation.module or 'the step'}, {where}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more if names else "none"
