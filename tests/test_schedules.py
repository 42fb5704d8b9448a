"""Schedules: knots, logarithms, bad tables; golden values are in test_parity."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax import recipes, schedules


def test_linear_and_log_between_knots_and_constant_outside():
    linear = dict(steps=(1, 11, 21), values=(0.0, 1.0, 0.5))
    log = dict(steps=(1, 101), values=(10.0, 0.1), scale="log")
    for step, expected in ((0, 0), (1, 0), (6, 0.5), (11, 1), (16, 0.75), (99, 0.5)):
        assert schedules.interpolate(**linear, step=step) == pytest.approx(expected)
    for step, expected in ((1, 10), (51, 1), (101, 0.1), (1000, 0.1)):
        assert schedules.interpolate(**log, step=step) == pytest.approx(expected)


def test_evaluates_inside_jit_with_one_compilation():
    table = recipes.coefficients("blender", "multi")
    traced = []

    @jax.jit
    def at(step):
        traced.append(step)
        return schedules.coefficients(table, step)

    assert float(at(1).sched_kld) == 0 and float(at(500_000).sched_kld) == 1
    assert len(traced) == 1


@pytest.mark.parametrize("family", ["blender", "kubric"])
@pytest.mark.parametrize("stage", ["single", "multi"])
def test_recipes_end_at_the_elbo(family: str, stage: str):
    table = recipes.coefficients(family, stage)
    end = schedules.coefficients(table, 10**6)
    assert (end.ratio_mixture, end.ratio_imp_sdw, end.ratio_stick_breaking) == (1, 0, 1)
    assert (end.sched_kld, end.ratio_dec) == (1, 1)


@pytest.mark.parametrize("num_steps", [2, 7, 100, 3000])
def test_short_recipes_are_valid_and_keep_their_shape(num_steps: int):
    for stage in ("single", "multi"):
        table = recipes.coefficients("blender", stage, num_steps)
        schedules.check_table(table)
        end = schedules.coefficients(table, num_steps)
        assert float(end.ratio_mixture) == pytest.approx(1)


def test_interpolation_equals_numpy_and_keeps_the_ends():
    steps, values = (10, 40, 45), (0.3, 1.0, 0.0)
    found = [
        float(schedules.interpolate(steps, values, step=step)) for step in range(60)
    ]
    np.testing.assert_allclose(found, np.interp(range(60), steps, values), atol=1e-6)
    assert found[-1] == 0 and found[0] == np.float32(0.3)


def test_coefficients_put_no_look_up_into_loops_over_pixels():
    def scale(x, step):
        return x * schedules.interpolate((1, 40, 45), (0.3, 1.0, 0.5), step=step)

    program = jax.jit(scale).lower(jnp.ones((64, 64)), jnp.int32(7)).compile()
    assert not re.search(r"dynamic-slice|gather|while", program.as_text())


def test_learning_rate_warms_up_from_zero_and_decays():
    rate = schedules.learning_rate(1e-3, num_steps=100, decay=0.1, warmup_steps=10)
    assert float(rate(0)) == 0
    np.testing.assert_allclose(rate(5), 0.5e-3 * 0.1**0.05, rtol=1e-5)
    np.testing.assert_allclose(rate(100), 1e-4, rtol=1e-5)


def test_learning_rate_in_a_straight_line():
    options = dict(num_steps=100, decay=0.1, warmup_steps=10, scale="linear")
    rate = schedules.learning_rate(1e-3, **options)
    found = [float(rate(step)) for step in (0, 5, 50, 100)]
    expected = [0, 0.5 * 0.955e-3, 0.55e-3, 1e-4]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"temp": dict(steps=(1,), values=(1.0,))}, "Unknown coefficient 'temp'"),
        ({"reg_bck": dict(steps=(1, 2), values=(1.0,))}, "2 steps and 1 values"),
        ({"reg_bck": dict(steps=(2, 1), values=(1.0, 2.0))}, "must increase"),
        ({"reg_bck": dict(steps=(1,), values=(1.0,), scale="cubic")}, "'cubic'"),
        ({"temp_shp": dict(steps=(1,), values=(0.0,), scale="log")}, "positive"),
    ],
)
def test_bad_tables_are_named(table, message: str):
    with pytest.raises(ValueError, match=message):
        schedules.check_table(table)
