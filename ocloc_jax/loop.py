"""The training loop of one stage: step, log, validate, save, in this order."""

import dataclasses
import pathlib
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from ocloc_jax import data, inference, logs, programs, schedules, train
from ocloc_jax.checkpoints import Best, Checkpoints
from ocloc_jax.models.ocloc import Ocloc

Splits = dict[str, data.Scenes]


class Stopped(SystemExit):
    """The run was asked to stop and saved its state; the same command goes on."""


class NotFinite(FloatingPointError):
    """The loss is no number any more."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a stage does, as plain values; see `configs/` for their meaning."""

    seed: int
    batch_size: int
    views: dict[str, Any]
    learning_rate: dict[str, Any]
    clip_norm: float
    coefficients: dict[str, Any]
    objective: train.Objective
    log_every: int
    validate_every: int
    checkpoint_every: int
    accumulate: int = 1
    figure_every: int = 0  # never
    wandb: str = ""

    @property
    def num_steps(self) -> int:
        """Updates until the end of the stage."""
        return self.learning_rate["num_steps"]

    def is_due(self, step: int, every: int) -> bool:
        """Whether something done every so many steps is done after this one."""
        return every > 0 and (step % every == 0 or step == self.num_steps)


def run_stage(
    name: str,
    plan: Plan,
    model: Ocloc,
    params: Any,
    splits: Splits,
    directory: pathlib.Path,
) -> pathlib.Path:
    """Trains one stage from where it stopped to its end; returns its best weights."""
    optimizer = train.make_optimizer(plan.learning_rate, plan.clip_norm)
    split = data.data_sharding()
    step_fn = train.jit_data_parallel(make_step(plan, model, optimizer), split)
    pipeline, validation = make_pipelines(plan, splits)
    validate = make_validation(plan, model, validation)
    draw = inference.make_picture(model, validation, plan.objective.num_slots)
    directory.mkdir(parents=True, exist_ok=True)
    best = Best(directory, plan.objective.num_slots)
    with (
        Checkpoints(directory / "checkpoints") as checkpoints,
        _signals() as asked,
        ExitStack() as stack,
    ):
        state = train.create_state(params, optimizer, plan.seed)
        # On all devices before the first step, whose program then serves every step.
        whole = NamedSharding(split.mesh, PartitionSpec())
        state = checkpoints.restore(jax.device_put(state, whole))
        start = int(state.step)
        rows = directory / "metrics.jsonl"
        log = logs.StageLog(name, rows, start, plan.num_steps, plan.wandb)
        stack.callback(log.close)
        ahead = programs.upcoming(pipeline, start, plan.num_steps)
        step_fn = stack.enter_context(programs.Programs(step_fn, state, ahead, log.say))
        batches = pipeline.batches(start, plan.num_steps, sharding=split)
        for step, batch in enumerate(batches, start + 1):
            state, metrics = step_fn(state, batch)
            if plan.is_due(step, plan.log_every):
                log.train(step, metrics)
                _check_finite(name, step, metrics)
            if plan.is_due(step, plan.validate_every):
                scores = validate(state.params)
                best.update(scores["loss"], step, model, state.params)
                log.validation(step, scores)
            if plan.is_due(step, plan.figure_every):
                log.picture(step, draw(state.params))
            if plan.is_due(step, plan.checkpoint_every) or asked:
                checkpoints.save(state)
            log.advance()
            if asked and step < plan.num_steps:
                raise Stopped(f"Stopped after step {step} of {name}; state saved.")
    return best.weights


def _check_finite(name: str, step: int, metrics: train.Metrics) -> None:
    bad = [key for key, value in metrics.items() if not np.isfinite(value)]
    if bad:
        raise NotFinite(f"Step {step} of stage {name} gave no number for {bad}.")


def make_step(
    plan: Plan, model: Ocloc, optimizer: optax.GradientTransformation
) -> train.TrainStep:
    """The training step of a stage, to be compiled."""
    return train.make_train_step(
        model, optimizer, plan.coefficients, plan.objective, plan.accumulate
    )


def make_pipelines(
    plan: Plan, splits: Splits
) -> tuple[data.TrainPipeline, data.EvalPipeline]:
    """Batches for training and validation; impossible plans fail here."""
    train_split, split = splits["train"], splits["validation"]
    labels = {"segment", "overlap"}
    keys = ("image", *sorted(labels)) if labels <= set(split.keys) else ("image",)
    num_views = plan.views["max_views"] if plan.views["stage"] == "multi" else 1
    return (
        data.TrainPipeline(train_split, plan.batch_size, seed=plan.seed, **plan.views),
        data.EvalPipeline(split, plan.batch_size, keys=keys, num_views=num_views),
    )


def make_validation(
    plan: Plan, model: Ocloc, pipeline: data.EvalPipeline
) -> Callable[[Any], dict[str, float]]:
    """A function of the parameters: mean objective and scores of a split.

    The objective is that of the end of the stage, whenever it is asked for.
    """
    final = schedules.coefficients(plan.coefficients, plan.num_steps)
    step = jax.jit(train.make_eval_step(model, final, plan.objective))

    def validate(params: Any) -> dict[str, float]:
        rows = []
        for i, batch in enumerate(pipeline.batches()):
            key = jax.random.fold_in(jax.random.key(plan.seed), i)
            valid = np.asarray(batch.pop("valid"))
            numbers = step(params, batch, key)
            rows.append({k: np.asarray(v)[valid] for k, v in numbers.items()})
        return {k: float(np.concatenate([r[k] for r in rows]).mean()) for k in rows[0]}

    return validate


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects requests to stop, which the loop heeds after the present step."""
    asked: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {n: signal.signal(n, lambda s, _: asked.append(s)) for n in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
