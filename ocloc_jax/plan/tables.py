"""A plan as Markdown."""

from collections.abc import Sequence
from typing import Any

Plan = dict[str, Any]


def markdown(plan: Plan) -> str:
    """Parameters, programs, cost on the target and elsewhere, and what is assumed."""
    sections = [
        f"# Plan for {plan['target']} ({plan['devices']} device(s))",
        ", ".join(f"{name}: {value}" for name, value in plan["model"].items()),
        "## Parameters",
        _parameters(plan["parameters"]),
        "## One training step",
        _programs(plan),
        "## The whole run",
        _stages(plan),
        "## Elsewhere, on one device",
        _elsewhere(plan["elsewhere"]),
        "## What is assumed",
        _assumptions(plan),
    ]
    return "\n\n".join(sections) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, all others are numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def _parameters(counts: dict[str, int]) -> str:
    rows = [(name, f"{count:,}") for name, count in counts.items()]
    return table(["part", "parameters"], [*rows, ("all", f"{sum(counts.values()):,}")])


def _programs(plan: Plan) -> str:
    header = [
        "stage",
        "views",
        "batch",
        "GFLOP",
        "GFLOP per device, by its compiler",
        "GB moved per device",
        "peak GiB per device",
        "fits",
    ]
    rows = [
        (
            stage["name"],
            str(program["views"]),
            str(stage["batch_size"]),
            _number(program["flops"], 1e9),
            _number(program["compiler_flops"], 1e9),
            _number(program["bytes"], 1e9, 2),
            _number(program["memory"], 2**30, 2),
            {True: "yes", False: "NO", None: "?"}[program["fits"]],
        )
        for stage in plan["stages"]
        for program in stage["programs"]
    ]
    return table(header, rows)


def _stages(plan: Plan) -> str:
    header = ["stage", "steps", "PFLOP", "ms per step", "limited by", "hours"]
    rows = [
        (
            stage["name"],
            f"{stage['num_steps']:,}",
            _number(stage["flops"], 1e15),
            _number(stage.get("step_seconds"), 1e-3, 1),
            stage.get("limit", "?"),
            _number(stage.get("hours"), 1, 1),
        )
        for stage in plan["stages"]
    ]
    return table(header, rows)


def _elsewhere(rows: Sequence[dict[str, Any]]) -> str:
    header = ["accelerator", "memory, GiB", "peak, TFLOP/s", "hours"]
    cells = [
        (row["name"], f"{row['memory']:g}", f"{row['peak']:g}", f"{row['hours']:.1f}")
        for row in rows
    ]
    return table(header, cells)


def _assumptions(plan: Plan) -> str:
    share = f"{plan['utilisation']:.0%}"
    lines = [
        f"Operations run at {share} of the peak rate (`config.plan.utilisation`), "
        "memory traffic at the full bandwidth; the longer of the two counts. Peaks are "
        "data-sheet values for dense products in the precision that JAX takes by "
        "default.",
        "Elsewhere only operations count. This model has few channels and large maps, "
        "so memory traffic may well be what limits: read these hours as lower bounds.",
        "Validation, checkpoints, figures and input are not in it.",
        "Operations are those of matrix products and convolutions, two for each "
        "multiplication and addition, loops as often as they run. Compilers count a "
        "loop once, and elementwise operations too.",
    ]
    if plan["target"].startswith("cuda"):
        lines.append(
            "For CUDA the step was lowered, not compiled: its memory and time are not "
            "known without a card. A plan for `tpu:v5e` shows what another compiler "
            "makes of the same step."
        )
    return "\n".join(f"* {line}" for line in lines)


def _number(value: float | int | None, unit: float | int, digits: int = 0) -> str:
    return "?" if value is None else f"{value / unit:,.{digits}f}"
