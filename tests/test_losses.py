"""Closed forms against numerical integration in float64, stability, weighting."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from scipy import integrate, stats

from ocloc_jax import losses
from ocloc_jax.schedules import Coefficients


@pytest.mark.parametrize(("mean", "log_var"), [(0.0, 0.0), (1.5, -2.0), (-0.3, 1.0)])
def test_kl_normal_by_integration(mean: float, log_var: float):
    posterior = stats.norm(mean, np.exp(0.5 * log_var))

    def integrand(x):
        return posterior.pdf(x) * (posterior.logpdf(x) - stats.norm.logpdf(x))

    expected, _ = integrate.quad(integrand, -20, 20, limit=200)
    found = losses.kl_normal(jnp.array([mean]), jnp.array([log_var]))
    assert float(found) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("tau", [(1.0, 1.0), (2.5, 0.7), (0.6, 3.0), (8.0, 12.0)])
def test_kl_rho_by_integration(tau: tuple[float, float]):
    alpha, num_slots = 4.5, 3
    posterior, prior = stats.beta(*tau), stats.beta(alpha / num_slots, 1)

    def integrand(x):
        return posterior.pdf(x) * (posterior.logpdf(x) - prior.logpdf(x))

    expected, _ = integrate.quad(integrand, 0, 1, limit=500)
    found = losses.kl_rho(jnp.tile(jnp.array(tau), (num_slots, 1)), alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("logit", [-3.0, 0.2, 4.0])
def test_kl_presence_by_monte_carlo(logit: float):
    tau = (2.5, 1.7)
    rho = np.random.default_rng(0).beta(*tau, size=400_000)
    kappa = 1 / (1 + np.exp(-logit))
    sample = kappa * np.log(kappa / rho) + (1 - kappa) * np.log((1 - kappa) / (1 - rho))
    error = sample.std() / np.sqrt(sample.size)
    found = losses.kl_presence(jnp.array([tau]), jnp.array([logit]))
    assert abs(float(found[0]) - sample.mean()) < 5 * error


def float64_kl(tau, logit, alpha):
    """The paper's expressions in float64, with log(1 - kappa) from the logit."""
    from scipy.special import digamma, expit, gammaln, log_expit

    t1, t2 = tau[..., 0], tau[..., 1]
    prior, total = alpha / tau.shape[-2], t1 + t2
    rho = gammaln(total) - gammaln(t1) - gammaln(t2) - np.log(prior)
    rho += (t1 - prior) * digamma(t1) + (t2 - 1) * digamma(t2)
    rho -= (total - prior - 1) * digamma(total)
    presence = digamma(total) + expit(logit) * (log_expit(logit) - digamma(t1))
    return rho + presence + expit(-logit) * (log_expit(-logit) - digamma(t2))


@pytest.mark.parametrize("logit", [-80.0, -20.0, 0.0, 20.0, 80.0])
@pytest.mark.parametrize("low", [1e-6, 1e-3, 1.0, 50.0])
def test_presence_terms_are_stable_and_accurate(logit: float, low: float):
    tau = np.array([[low, 1.3], [0.8, low], [low, low]])
    expected = float64_kl(tau, np.full(3, logit), alpha=4.5)

    def total(tau, logit):
        return losses.kl_rho(tau, 4.5) + losses.kl_presence(tau, logit)

    args = jnp.asarray(tau, jnp.float32), jnp.full(3, logit)
    np.testing.assert_allclose(total(*args), expected, rtol=2e-5, atol=2e-4)
    gradients = jax.grad(lambda *a: total(*a).sum(), (0, 1))(*args)
    assert all(np.isfinite(g).all() for g in gradients)


def forward(mode: str = "released", shadows: bool = True, coefficients=None, **options):
    model = small.model(mode=mode, shadows=shadows)
    noise = small.noise(shadows=shadows, **options)
    coefficients = coefficients or Coefficients()
    variables = {"params": small.params(model)}
    return jax.jit(model.apply)(variables, small.images(), noise, coefficients)


def terms_of(outputs, coefficients=None, mode="released"):
    coefficients = coefficients or Coefficients()
    options = dict(sigma_x=0.2, alpha=4.5, mode=mode)
    return losses.loss_terms(outputs, small.images(), coefficients, **options)


def test_every_term_is_per_scene_and_weighted_once():
    coefficients = Coefficients(
        sched_kld=0.5, reg_bck=0.1, reg_pres=0.2, reg_shp=0.3, reg_sdw=0.4,
        reg_sdw_ratio=0.5, ratio_imp_sdw=0.3,
    )  # fmt: skip
    terms = terms_of(forward(coefficients=coefficients), coefficients)
    assert set(terms) == {"nll", *losses.KL_TERMS, *losses.REGULARISERS}
    assert all(value.shape == (2,) for value in terms.values())
    expected = terms["nll"] + 0.5 * (
        terms["kl_view"] + 2 * terms["kl_bck"] + terms["kl_obj"] + terms["kl_pres"]
    )
    for weight, name in enumerate(losses.REGULARISERS, start=1):
        expected = expected + 0.1 * weight * terms[name]
    np.testing.assert_allclose(losses.weigh(terms, coefficients), expected, rtol=1e-6)


def test_mixture_of_one_opaque_layer_is_a_squared_error():
    scene = forward(training=False).scene
    masks = jnp.zeros_like(scene.mask_obj).at[..., 1, :, :].set(1.0)
    scene = scene.replace(mask_obj=masks, mask_bck=jnp.zeros_like(scene.mask_bck))
    # Appearances far from each other: the layers with mask 1e-5 do not reach.
    apart = scene.appearance.at[..., 0, :, :, :].add(9).at[..., 2:, :, :, :].add(9)
    scene = scene.replace(appearance=apart, background=scene.background + 9)
    images = apart[..., 1, :, :, :] + 0.1
    found = losses.mixture_nll(scene, images, precision=3.125)
    np.testing.assert_allclose(found, 3.125 * 0.03 - np.log(1 - 1e-5), rtol=1e-3)


def test_modes_meet_at_the_end_of_the_schedule():
    """Without shadows only the weights of nll and kl_bck tell them apart."""
    outputs = {m: forward(m, shadows=False) for m in ("released", "paper")}
    found = {m: terms_of(o, mode=m) for m, o in outputs.items()}
    np.testing.assert_allclose(
        found["released"]["nll"], 3 * found["paper"]["nll"], rtol=1e-6
    )
    for name in losses.KL_TERMS:
        np.testing.assert_array_equal(found["released"][name], found["paper"][name])
    elbo = losses.weigh(found["paper"], Coefficients(), "paper")
    np.testing.assert_allclose(elbo, sum(found["paper"].values()), rtol=1e-6)


def test_released_nll_blends_the_three_reconstructions():
    names = dict(ratio_mixture=(0.0, 1.0), ratio_imp_sdw=(0.0, 1.0))
    corners = {}
    base = Coefficients(noise_min=0.1, noise_max=0.3, ratio_stick_breaking=0.5)
    outputs = forward(coefficients=base)
    for mixture in names["ratio_mixture"]:
        for imp in names["ratio_imp_sdw"]:
            change = dict(ratio_mixture=mixture, ratio_imp_sdw=imp)
            corner = dataclasses.replace(base, **change)
            corners[mixture, imp] = terms_of(outputs, corner)["nll"]
    error = losses.squared_error(outputs.scene.recon_aux, small.images(), 3.125)
    np.testing.assert_allclose(corners[0.0, 0.0], error, rtol=1e-6)
    np.testing.assert_allclose(corners[1.0, 0.0], corners[1.0, 1.0], rtol=1e-6)
    middle = dataclasses.replace(base, ratio_mixture=0.25, ratio_imp_sdw=0.5)
    expected = 0.25 * corners[1.0, 0.0] + 0.375 * (
        corners[0.0, 0.0] + corners[0.0, 1.0]
    )
    np.testing.assert_allclose(terms_of(outputs, middle)["nll"], expected, rtol=1e-5)


def test_shadow_gate_carries_no_gradient():
    scene = forward().scene
    gradient = jax.grad(
        lambda s: losses.mostly_shadow(scene.replace(shape_imp=s)).sum()
    )(scene.shape_imp)
    np.testing.assert_array_equal(gradient, 0)


def test_what_nothing_weighs_is_left_out_without_a_difference():
    """Zeros of no schedule against zeros that one holds; also their gradients."""
    model, noise = small.model(), small.noise()
    table = dict(ratio_mixture=0.4, ratio_stick_breaking=0.3, sched_kld=0.5)
    zeros = dict.fromkeys(("ratio_imp_sdw", *losses.REGULARISERS), 0.0)

    def loss(params, coefficients):
        args = small.images(), noise, coefficients
        outputs = model.apply({"params": params}, *args)
        return losses.weigh(terms_of(outputs, coefficients), coefficients).sum()

    never = Coefficients(**table)
    left_out = jax.jit(jax.value_and_grad(lambda p: loss(p, never)))
    held = jax.jit(jax.value_and_grad(loss))
    params = small.params(model)
    chex.assert_trees_all_close(
        left_out(params), held(params, Coefficients(**table, **zeros)), rtol=1e-4
    )
