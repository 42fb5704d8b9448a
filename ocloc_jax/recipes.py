"""The published training recipes as schedule tables (see `ocloc_jax.schedules`).

Breakpoints scale with the length of a stage, so a shorter run anneals alike.
"""

from typing import Any

Table = dict[str, dict[str, Any]]

# What the two families of datasets set differently.
FAMILIES = {
    "blender": dict(  # CLEVR and SHOP
        single_steps=100_000,
        single_learning_rate=5e-4,
        reg_bck=0.2,
        reg_bck_until=0.25,
        ratio_imp_sdw=0.7,
        ratio_mixture=0.3,
    ),
    "kubric": dict(  # GSO and ShapeNet
        single_steps=200_000,
        single_learning_rate=1e-4,
        reg_bck=0.01,
        reg_bck_until=0.125,
        ratio_imp_sdw=0.5,
        ratio_mixture=0.5,
    ),
}
FAMILY_OF = {
    "clevr": "blender",
    "shop": "blender",
    "gso": "kubric",
    "shapenet": "kubric",
}

MULTI_STEPS = 500_000
MULTI_LEARNING_RATE = 1e-4


def coefficients(family: str, stage: str, num_steps: int | None = None) -> Table:
    """The table of a stage ("single" or "multi") for a family of datasets."""
    values = FAMILIES[family]
    if stage == "single":
        return _single(num_steps or values["single_steps"], values)
    if stage == "multi":
        return _multi(num_steps or MULTI_STEPS, values)
    raise ValueError(f"Unknown stage {stage!r}; use 'single' or 'multi'.")


def learning_rate(
    family: str, stage: str, num_steps: int | None = None
) -> dict[str, Any]:
    """Keyword arguments of `ocloc_jax.schedules.learning_rate` for a stage."""
    if stage == "multi":
        num_steps = num_steps or MULTI_STEPS
        base, decay, warmup = MULTI_LEARNING_RATE, 0.5, 0
    else:
        published = FAMILIES[family]["single_steps"]
        num_steps = num_steps or published
        base, decay = FAMILIES[family]["single_learning_rate"], 0.1
        warmup = num_steps * 10_000 // published
    return dict(base=base, num_steps=num_steps, decay=decay, warmup_steps=warmup)


def elbo() -> Table:
    """The paper's objective: nothing is annealed, the ELBO from step 0."""
    return dict(temp_pres=_constant(1.0))


def _constant(value: float) -> dict[str, Any]:
    return dict(steps=(1,), values=(value,), scale="linear")


def _curve(*knots: tuple[int, float], scale: str = "linear") -> dict[str, Any]:
    """A schedule from (step, value) pairs; of knots that coincide the last counts."""
    unique = {max(1, step): value for step, value in knots}
    return dict(steps=tuple(unique), values=tuple(unique.values()), scale=scale)


def _single(end: int, values: dict[str, Any]) -> Table:
    half, quarter = end // 2, end // 4
    bck_end = int(end * values["reg_bck_until"])
    return dict(
        temp_pres=_curve((1, 10.0), (end, 5.0), scale="log"),
        temp_shp=_curve((1, 10.0), (end, 5.0), scale="log"),
        noise_scale=_curve((1, 0.01), (end, 0.05)),
        noise_min=_curve((1, 0.0), (quarter, 0.05), (end, 0.0)),
        noise_max=_curve((1, 0.0), (quarter, 1.0)),
        ratio_imp_sdw=_curve((half, 0.99), (end, 0.0)),
        ratio_mixture=_curve((half, 0.01), (end, 1.0)),
        ratio_stick_breaking=_curve((half, 0.01), (end, 1.0)),
        reg_bck=_curve((1, values["reg_bck"]), (bck_end, 0.0)),
        reg_pres=_curve((1, 0.0), (half, 1e-4)),
        reg_shp=_curve((1, 0.0), (half, 1e-4)),
        reg_sdw=_curve((1, 0.0), (half, 1e-4)),
        reg_sdw_ratio=_curve((1, 0.0), (half, 1e-4), (end, 1e-2)),
        sched_kld=_curve((1, 0.0), (half, 1.0)),
    )


def _multi(end: int, values: dict[str, Any]) -> Table:
    def at(share: float) -> int:
        return round(end * share)

    start, late = at(0.2), at(0.8)
    imp, mixture = values["ratio_imp_sdw"], values["ratio_mixture"]
    return dict(
        temp_pres=_curve((1, 10.0), (end, 1.0), scale="log"),
        temp_shp=_curve((1, 10.0), (end, 1.0), scale="log"),
        noise_scale=_curve((1, 0.01), (end, 0.05)),
        noise_min=_curve((1, 0.0), (start, 0.08), (late, 0.08), (end, 0.05)),
        noise_max=_curve((1, 0.0), (start, 0.2), (end, 0.1)),
        ratio_imp_sdw=_curve((start, 0.99), (late, imp), (end, 0.0)),
        ratio_mixture=_curve((start, 0.01), (late, mixture), (end, 1.0)),
        ratio_stick_breaking=_curve((start, 0.01), (end, 1.0)),
        reg_bck=_curve((1, 0.01), (at(0.05), 0.0)),
        reg_pres=_curve((1, 0.0), (start, 1e-4)),
        reg_shp=_curve((1, 1e-4), (start, 0.0)),
        reg_sdw=_curve((1, 1e-4), (start, 0.0)),
        reg_sdw_ratio=_curve((1, 0.0), (start, 1e-2)),
        sched_kld=_curve((1, 0.0), (start, 1.0)),
        ratio_dec=_curve((start, 1e-3), (at(0.3), 1.0), scale="log"),
    )
