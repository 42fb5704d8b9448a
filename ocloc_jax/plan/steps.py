"""The training step of each number of views, compiled for a target."""

import dataclasses
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from ocloc_jax import experiment, loop, programs, train
from ocloc_jax.models.initial import init
from ocloc_jax.plan import flops
from ocloc_jax.plan.targets import Target

_IMAGE_SIZE = 128  # of the four published datasets
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Program:
    """A training step for one number of views; None where nobody can know it here.

    Attributes:
      views: Number of views of a batch.
      flops: Operations of a step on all devices, recomputation included.
      compiler_flops: Of a step on each device, as the compiler counts them.
      bytes: Moved to and from the memory of each device in a step, by the compiler.
      memory: Peak of each device, in bytes.
      fits: Whether that is there.
      compile_seconds: How long it took here.
    """

    views: int
    flops: int
    compiler_flops: float | None = None
    bytes: float | None = None
    memory: int | None = None
    fits: bool | None = None
    compile_seconds: float | None = None


def plan_stage(
    config: ml_collections.ConfigDict,
    stage: str,
    target: Target,
    views: Sequence[int] = (),
) -> list[Program]:
    """Plans a step for each number of views of a stage, or only for some of them.

    Operations of the smallest and the largest number are counted in any case.
    """
    step, state = abstract_step(config, stage, target)
    counts = experiment.view_counts(config.stages[stage])
    chosen = [m for m in counts if not views or m in views]
    planned = []
    for m in sorted({*chosen, counts[0], counts[-1]}):
        batch = batch_of(config, stage, m)
        program = Program(m, flops.count(step, state, batch))
        if m in chosen:
            print(f"{stage}: {m} views for {target.name} ...", file=sys.stderr)
            program = _compiled(program, step, (state, batch), target)
        planned.append(program)
    return planned


def abstract_step(
    config: ml_collections.ConfigDict, stage: str, target: Target
) -> tuple[Any, train.TrainState]:
    """The jitted step that a stage trains with, and the shapes of its state."""
    model = experiment.make_model(config)
    plan = experiment.make_plan(config, config.stages[stage])
    optimizer = plan.make_optimizer()

    def create(key: jax.Array) -> train.TrainState:
        return train.create_state(init(model, key), optimizer, plan.seed)

    state = jax.eval_shape(create, jax.random.key(0))
    step = loop.make_step(plan, model, optimizer)
    return train.jit_data_parallel(step, target.split), state


def batch_of(config: ml_collections.ConfigDict, stage: str, num_views: int) -> Any:
    """Shapes of a batch; the images of datasets on disk are as large as published."""
    scenes = config.data.get("scenes", {})
    size = scenes.get("size", config.data.get("size", _IMAGE_SIZE))
    batch = (config.stages[stage].batch_size,)
    return programs.batch_shapes(batch, num_views, (size, size))


def _compiled(program: Program, step: Any, args: tuple, target: Target) -> Program:
    if not target.compiles:
        _lower_for_cuda(step, args)
        return program
    start, lowered = time.monotonic(), step.lower(*args)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        memory = _memory_wanted(str(error))
        return dataclasses.replace(program, memory=memory, fits=False)
    memory, cost = _peak(compiled.memory_analysis()), compiled.cost_analysis()
    available = target.accelerator and 2**30 * target.accelerator.memory
    return dataclasses.replace(
        program,
        compiler_flops=cost["flops"],
        bytes=cost["bytes accessed"],
        memory=memory,
        fits=memory <= available if available else None,
        compile_seconds=round(time.monotonic() - start, 1),
    )


def _lower_for_cuda(step: Any, args: tuple) -> None:
    """Stops at an operation that has no form for CUDA."""
    try:
        jax.export.export(step, platforms=["cuda"])(*args)
    except NotImplementedError as error:
        raise ValueError(f"The step cannot be lowered for CUDA: {error}") from error


def _peak(stats: Any) -> int:
    """Arguments, results, what is needed in between, and the program itself."""
    return (
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes
        + stats.generated_code_size_in_bytes
    )


def _memory_wanted(message: str) -> int:
    """From the compiler's complaint that a program is too large for a chip."""
    found = re.search(r"Used ([\d.]+)([KMG]) of [\d.]+[KMG] hbm", message)
    if "RESOURCE_EXHAUSTED" not in message or not found:
        raise ValueError(f"The step cannot be compiled: {message}")
    return int(float(found[1]) * _UNITS[found[2]])
