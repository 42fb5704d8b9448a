"""What training will take, before it starts: operations, memory, time.

The step that is planned is the one that is trained with, compiled for hardware that
need not be here: see `config.plan.target` and docs/planning.md. No data is needed.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

import ml_collections

from ocloc_jax import checks, experiment, parameters
from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.plan import costs, hardware, steps, tables, targets

DEFAULTS = {"target": "here", "utilisation": 0.3, "views": ()}


def run(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> dict[str, Any]:
    """Writes plan.json and plan.md to `workdir`, and prints the latter."""
    options = {**DEFAULTS, **config.get("plan", {})}
    target = targets.find(options["target"])
    checks.check(config, target.num_devices)
    shapes = parameter_shapes(experiment.make_model(config))
    stages = []
    for name in experiment.stage_names(config):
        programs = steps.plan_stage(config, name, target, options["views"])
        stages.append(costs.of_stage(config, name, programs, target, options))
    plan = {
        "target": target.name,
        "devices": target.num_devices,
        "accelerator": target.accelerator and dataclasses.asdict(target.accelerator),
        "model": {k: config.model[k] for k in ("dtype", "remat", "mode", "shadows")},
        "utilisation": options["utilisation"],
        "parameters": parameters.by_module(shapes),
        "stages": stages,
        "elsewhere": costs.elsewhere(
            stages, config.model.dtype, options["utilisation"], hardware.ACCELERATORS
        ),
    }
    text = tables.markdown(plan)
    workdir.mkdir(parents=True, exist_ok=True)
    _write(workdir / "plan.json", json.dumps(plan, indent=2) + "\n")
    _write(workdir / "plan.md", text)
    print(text)
    return plan


def _write(path: pathlib.Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
