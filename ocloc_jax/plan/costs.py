"""From operations and bytes to hours, with every assumption stated.

A step takes at least as long as its operations at a share of the peak rate, and as
its memory traffic at the full bandwidth; the longer of the two is reported.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections

from ocloc_jax.plan.hardware import Accelerator
from ocloc_jax.plan.steps import Program
from ocloc_jax.plan.targets import Target

Stage = dict[str, Any]


def of_stage(
    config: ml_collections.ConfigDict,
    name: str,
    programs: Sequence[Program],
    target: Target,
    options: Mapping[str, Any],
) -> Stage:
    """What a stage takes on a target.

    All numbers of views are equally likely and operations grow linearly with them, so
    the mean over steps is that of the smallest and the largest number.
    """
    num_steps = config.stages[name].learning_rate.num_steps
    mean = (programs[0].flops + programs[-1].flops) / 2
    stage = {
        "name": name,
        "batch_size": config.stages[name].batch_size,
        "accumulate": config.stages[name].get("accumulate", 1),
        "images_at_a_time": config.stages[name].get("images_at_a_time", 0),
        "num_steps": num_steps,
        "flops": mean * num_steps,
        "programs": [dataclasses.asdict(program) for program in programs],
    }
    if target.accelerator:
        share = mean / target.num_devices
        compute = target.accelerator.seconds(
            share, config.model.dtype, options["utilisation"]
        )
        bandwidth = 1e9 * (target.accelerator.bandwidth or math.inf)
        traffic = _mean_bytes(programs, mean) / bandwidth
        seconds = max(compute, traffic)
        stage |= {"step_seconds": seconds, "hours": seconds * num_steps / 3600}
        stage["limit"] = "operations" if seconds == compute else "memory traffic"
    return stage


def _mean_bytes(programs: Sequence[Program], mean_flops: float) -> float:
    """Traffic of a mean step: in proportion to operations."""
    known = [p for p in programs if p.bytes is not None]
    if not known:
        return 0.0
    return sum(p.bytes for p in known) / sum(p.flops for p in known) * mean_flops


def elsewhere(
    stages: Sequence[Stage],
    dtype: str,
    utilisation: float,
    accelerators: Sequence[Accelerator],
) -> list[dict[str, Any]]:
    """Hours of a whole run on one of each accelerator, by operations alone."""
    total = sum(stage["flops"] for stage in stages)
    return [
        {
            "name": a.name,
            "memory": a.memory,
            "peak": getattr(a, dtype),
            "hours": a.seconds(total, dtype, utilisation) / 3600,
        }
        for a in accelerators
    ]
