"""A few images at a time: the gradient of all of them, in less memory."""

import chex
import jax
import numpy as np
import pytest
import small

from ocloc_jax import gradients, health, losses, train
from ocloc_jax.schedules import Coefficients

OBJECTIVE = losses.Objective(num_slots=4)
ANNEALED = Coefficients(
    temp_pres=2.0, temp_shp=2.0, noise_scale=0.3, noise_min=0.05, noise_max=0.4,
    ratio_imp_sdw=0.3, ratio_mixture=0.4, ratio_stick_breaking=0.5, sched_kld=0.7,
    reg_bck=0.1, reg_pres=1e-2, reg_shp=1e-2, reg_sdw=1e-2, reg_sdw_ratio=1e-2,
)  # fmt: skip


def found(model, coefficients, noise, at_a_time: int):
    """The gradient as training takes it, and what it logs."""
    arguments = small.images(), noise, coefficients, OBJECTIVE, at_a_time
    function = jax.jit(lambda p: gradients.gradient(model, p, *arguments))
    return function(small.params(model))


def expected(model, coefficients, noise):
    """What JAX makes of the objective of all images."""

    def loss(params):
        arguments = small.images(), noise, coefficients, OBJECTIVE
        loss, terms, outputs = train.evaluate(model, params, *arguments)
        used = health.usage(outputs.scene)
        numbers = health.measure(used, outputs.posterior, outputs.latents)
        numbers |= {name: term.mean() for name, term in terms.items()}
        return loss.mean(), numbers | {"loss": loss.mean()}

    return jax.jit(jax.grad(loss, has_aux=True))(small.params(model))


@pytest.mark.parametrize(
    ("options", "coefficients", "training"),
    [
        ({}, ANNEALED, True),
        ({"mode": "paper"}, Coefficients(), False),
        ({"shadows": False}, ANNEALED, True),
        ({"remat": "all", "num_parts": 2}, ANNEALED, True),
    ],
    ids=["released", "paper", "no shadows", "computed again, in parts"],
)
def test_gradient_and_numbers_are_those_of_all_images(options, coefficients, training):
    """Two scenes of three views: all together, one by one, two, and four as three."""
    model = small.model(**options)
    noise = small.noise(training=training, shadows=model.shadows)
    grads, numbers = expected(model, coefficients, noise)
    largest = float(max(abs(g).max() for g in jax.tree.leaves(grads)))
    for at_a_time in (0, 1, 2, 4):
        ours, others = found(model, coefficients, noise, at_a_time)
        # Some are zero but for the rounding of others.
        chex.assert_trees_all_close(ours, grads, rtol=1e-4, atol=1e-5 * largest)
        assert set(others) == set(numbers)
        for name, value in numbers.items():
            np.testing.assert_allclose(others[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("at_a_time", "num_chunks"),
    [(0, 1), (1, 6), (2, 3), (3, 2), (4, 2), (5, 2), (9, 1)],
)
def test_chunks_are_equal_and_no_larger_than_asked(at_a_time: int, num_chunks: int):
    assert gradients._num_chunks(6, at_a_time) == num_chunks


def test_memory_hardly_grows_with_views():
    """Twelve views more, one at a time, take less than two more all together."""

    def memory(num_views: int, at_a_time: int) -> int:
        model = small.model()
        images, noise = (
            make(num_views=num_views) for make in (small.images, small.noise)
        )
        arguments = images, noise, ANNEALED, OBJECTIVE, at_a_time
        function = jax.jit(lambda p: gradients.gradient(model, p, *arguments)[0])
        compiled = function.lower(small.params(model)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    one_by_one = memory(14, 1) - memory(2, 1)
    assert one_by_one < memory(4, 0) - memory(2, 0)
