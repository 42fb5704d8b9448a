"""The training loop of one stage: step, log, validate, save, in this order."""

import dataclasses
import functools
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import optax

from ocloc_jax import (
    blackbox,
    data,
    distributed,
    health,
    inference,
    logs,
    optimizers,
    outcomes,
    over_seeds,
    programs,
    schedules,
    train,
    validation,
)
from ocloc_jax import seeds as seeds_lib
from ocloc_jax.checkpoints import Checkpoints
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.seeds import Seeds

Splits = dict[str, data.Scenes]


class Stopped(SystemExit):
    """The run was asked to stop and saved its state; the same command goes on."""


class AllDead(SystemExit):
    """No seed of a stage is worth going on with."""


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
    optimizer: str = "adam"
    accumulate: int = 1
    images_at_a_time: int = 0  # that the decoder sees; all
    num_iterations: int | None = None  # T while training, if not the model's
    figure_every: int = 0  # never
    wandb: str = ""
    num_seeds: int = 1
    over_seeds: str = "auto"
    stop_dead: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict(after=0, patience=0)
    )
    success_ari_o: float = 0.8

    @property
    def num_steps(self) -> int:
        """Updates until the end of the stage."""
        return self.learning_rate["num_steps"]

    def is_due(self, step: int, every: int) -> bool:
        """Whether something done every so many steps is done after this one."""
        return every > 0 and (step % every == 0 or step == self.num_steps)

    def make_optimizer(self) -> optax.GradientTransformation:
        """What turns gradients into updates."""
        return optimizers.make(self.learning_rate, self.clip_norm, self.optimizer)

    def make_seeds(self) -> Seeds:
        """The seeds on the devices that there are."""
        patience = self.stop_dead["patience"]
        options = dict(way=self.over_seeds, patience=patience)
        return seeds_lib.make(self.seed, self.num_seeds, **options)


def run_stage(
    name: str,
    plan: Plan,
    model: Ocloc,
    params: Sequence[Any],
    splits: Splits,
    directory: pathlib.Path,
) -> outcomes.Bests:
    """Trains one stage from where it stopped to its end; returns its best weights.

    Args:
      name: Of the stage.
      plan: What it does.
      model: What is trained.
      params: What each seed starts from.
      splits: Scenes of the splits `train` and `validation`.
      directory: Where its files go.
    """
    seeds = plan.make_seeds()
    optimizer = plan.make_optimizer()
    pipeline, validating = make_pipelines(plan, splits)
    make_batches = functools.partial(pipeline.batches, sharding=seeds.batch_sharding)
    validate = make_validation(plan, model, validating)
    draw = inference.Picture(model, validating, plan.objective.num_slots)
    directory.mkdir(parents=True, exist_ok=True)
    best = outcomes.Bests(directory, seeds.numbers, plan.objective.num_slots)
    # On all devices before the first step, whose program then serves every step.
    host = distributed.to_host(params)
    fresh = functools.partial(seeds.create_state, host, optimizer)
    distributed.wait(f"start of {directory}")  # gloo waits 30 s only
    with (
        Checkpoints(directory / "checkpoints") as checkpoints,
        _signals() as asked,
        programs.background() as pool,
        ExitStack() as stack,
    ):
        start, state = checkpoints.restore(fresh())
        file = directory / "metrics.jsonl"
        log = logs.StageLog(name, file, start, plan.num_steps, plan.wandb)
        stack.callback(log.close)
        step_fn = over_seeds.jit_step(make_step(plan, model, optimizer), seeds)
        if seeds.is_one_program:
            ahead = programs.upcoming(pipeline, start, plan.num_steps)
            step_fn = programs.Programs(step_fn, state, ahead, pool, log.say)
        recorder = blackbox.Recorder(
            stage=name,
            seeds=seeds,
            directory=directory,
            checkpoints=checkpoints,
            fresh=fresh,
            step=step_fn,
            observed=make_step(plan, model, blackbox.observed(optimizer)),
            batches=make_batches,
        )
        guard = blackbox.Guard(name, recorder, plan.num_seeds)
        duties = _Duties(plan, model, seeds, log, guard, best, validate, draw)
        vote = distributed.Vote(seeds.sharding("data"))
        frozen = seeds.frozen(state)
        for step, batch in enumerate(make_batches(start, plan.num_steps), start + 1):
            if frozen.all():
                raise AllDead(_obituary(name, step - 1, plan, directory))
            state, metrics = step_fn(state, batch)
            if step == start + 1:  # not before: the first step comes first
                duties.prepare(pool, state.params)
            guard.watch(step, metrics, frozen)
            stop = vote(bool(asked))
            state, frozen = duties.after(step, state, metrics, frozen)
            if plan.is_due(step, plan.checkpoint_every) or stop or frozen.all():
                guard.settle(step, state)
                checkpoints.save(step, state)
            checkpoints.check()
            log.advance()
            if stop:
                raise Stopped(f"Stopped after step {step} of {name}; state saved.")
        if vote.result(bool(asked)):
            raise Stopped(f"Stopped at the end of {name}; state saved.")
        if best.is_missing:  # a file was damaged after the last validation
            duties.validate_at(plan.num_steps, state)
    distributed.wait(f"end of {directory}")
    return best


@dataclasses.dataclass(frozen=True)
class _Duties:
    """What is done after some steps, besides saving: log, judge, validate, draw."""

    plan: Plan
    model: Ocloc
    seeds: Seeds
    log: logs.StageLog
    guard: blackbox.Guard
    best: outcomes.Bests
    validate: validation.Validation
    draw: inference.Picture

    def prepare(self, pool: futures.Executor, params: Any) -> None:
        """Has programs made in the background, or training would wait for them."""
        if self.plan.validate_every:
            self.validate.prepare(pool, params)
        if self.plan.figure_every:
            self.draw.prepare(pool, next(self.seeds.parts(params)))

    def after(
        self, step: int, state: train.TrainState, metrics: Any, frozen: np.ndarray
    ) -> tuple[train.TrainState, np.ndarray]:
        """Does what is due; returns the state, and which seeds have stopped."""
        plan, seeds = self.plan, self.seeds
        if plan.is_due(step, plan.log_every):
            rows = seeds.rows(metrics, frozen)
            _log(self.log.train, step, rows, plan.num_seeds)
            self.log.verdicts(map(health.verdict, rows.values()))
            state = _judge(plan, step, seeds, state, rows)
            frozen = seeds.frozen(state)
        if plan.is_due(step, plan.validate_every):
            self.guard.settle(step)
            self.validate_at(step, state)
        if plan.is_due(step, plan.figure_every):
            self.log.picture(step, self.draw(next(seeds.parts(state.params))))
        return state, frozen

    def validate_at(self, step: int, state: train.TrainState) -> None:
        """Scores every seed and keeps the weights of those that got better."""
        scores = self.validate(state.params)
        self.best.update(scores, step, self.model, self.seeds.parts(state.params))
        _log(self.log.validation, step, scores, self.plan.num_seeds)


def _log(
    write: Callable[..., None], step: int, rows: validation.Rows, num_seeds: int
) -> None:
    """Logs the numbers of every seed, and their mean as those of the run."""
    if num_seeds > 1:
        for seed, row in rows.items():
            write(step, row, seed=seed)
    first = next(iter(rows.values()))
    write(step, {k: np.mean([row[k] for row in rows.values()]) for k in first})


def _judge(
    plan: Plan, step: int, seeds: Seeds, state: train.TrainState, rows: validation.Rows
) -> train.TrainState:
    """Counts at how many logs in a row a seed was dead, if dead ones are stopped."""
    if not seeds.patience or step <= plan.stop_dead["after"]:
        return state
    dead = [seed in rows and health.is_dead(rows[seed]) for seed in seeds.numbers]
    return seeds.count_dead(state, dead)


def _obituary(name: str, step: int, plan: Plan, directory: pathlib.Path) -> str:
    return (
        f"Stage {name} was given up after step {step}: by its collapse meter every "
        f"seed was dead at {plan.stop_dead['patience']} logs in a row. "
        f"{directory / 'metrics.jsonl'} shows how; change the recipe or the seed, or "
        "set stop_dead.patience to 0, in another --workdir."
    )


def make_step(
    plan: Plan, model: Ocloc, optimizer: optax.GradientTransformation
) -> train.TrainStep:
    """The training step of a stage, to be compiled."""
    if plan.num_iterations:
        model = model.clone(num_iterations=plan.num_iterations)
    return train.make_train_step(
        model,
        optimizer,
        plan.coefficients,
        plan.objective,
        plan.accumulate,
        plan.images_at_a_time,
    )


def make_pipelines(
    plan: Plan, splits: Splits
) -> tuple[data.TrainPipeline | data.SeedsPipeline, data.EvalPipeline]:
    """Batches for training and validation; impossible plans fail here."""
    split = splits["validation"]
    labels = {"segment", "overlap"}
    keys = ("image", *sorted(labels)) if labels <= set(split.keys) else ("image",)
    num_views = plan.views["max_views"] if plan.views["stage"] == "multi" else 1
    return (
        _train_pipeline(plan, splits["train"]),
        data.EvalPipeline(split, plan.batch_size, keys=keys, num_views=num_views),
    )


def _train_pipeline(
    plan: Plan, scenes: data.Scenes
) -> data.TrainPipeline | data.SeedsPipeline:
    size, views = plan.batch_size, plan.views
    if plan.num_seeds == 1:
        return data.TrainPipeline(scenes, size, seed=plan.seed, **views)
    seeds = plan.make_seeds()
    return data.stack_seeds(scenes, size, seeds.numbers, seeds.batch_sharding, **views)


def make_validation(
    plan: Plan, model: Ocloc, pipeline: data.EvalPipeline
) -> validation.Validation:
    """The objective is that of the end of the stage, whenever it is asked for."""
    final = schedules.coefficients(plan.coefficients, plan.num_steps)
    step = train.make_eval_step(model, final, plan.objective)
    return validation.Validation(step, plan.make_seeds(), pipeline)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects requests to stop, which the loop heeds after the present step."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        if number == signal.SIGINT and asked:
            raise KeyboardInterrupt  # somebody is in a hurry
        asked.append(number)

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
