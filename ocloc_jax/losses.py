"""The objective: every term per scene and unweighted, weighted in one place."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import SHAPE_SHIFT
from ocloc_jax.models.latents import Posterior
from ocloc_jax.models.ocloc import Outputs
from ocloc_jax.models.pixels import max_slots, sum_slots, sum_square
from ocloc_jax.schedules import Coefficients, is_never

Terms = dict[str, Float[Array, "*b"]]

KL_TERMS = ("kl_view", "kl_bck", "kl_obj", "kl_pres")
REGULARISERS = ("reg_bck", "reg_pres", "reg_shp", "reg_sdw", "reg_sdw_ratio")

_SHADOW_PRESENT = 0.1  # shadow shapes above this count as shadow
_SHADOW_SHARE = 0.5  # objects with a larger share of shadow are regularised
_TAU_MIN = 1e-6  # below it softplus is about to underflow, and digamma to overflow


@dataclasses.dataclass(frozen=True)
class Objective:
    """What is optimised, apart from the schedule.

    Attributes:
      num_slots: K while training.
      sigma_x: Standard deviation of the likelihood, for images in [0, 1].
      alpha: Prior of the number of objects.
    """

    num_slots: int
    sigma_x: float = 0.2
    alpha: float = 4.5


def loss_terms(
    outputs: Outputs,
    images: Float[Array, "*b m h w 3"],
    coefficients: Coefficients,
    *,
    sigma_x: float,
    alpha: float,
    mode: str = "released",
) -> Terms:
    """All terms of the objective for each scene.

    Args:
      outputs: Of the model.
      images: In [-1, 1].
      coefficients: Of the schedule; some mix reconstructions inside a term.
      sigma_x: Standard deviation of the likelihood, for images in [0, 1].
      alpha: Prior of the number of objects.
      mode: "released" or "paper".
    """
    num_pixels = images.shape[-3] * images.shape[-2]
    return {
        **image_terms(outputs.scene, images, coefficients, sigma_x=sigma_x, mode=mode),
        **latent_terms(outputs.posterior, num_pixels, alpha=alpha, mode=mode),
    }


def image_terms(
    scene: Scene,
    images: Float[Array, "*b m h w 3"],
    coefficients: Coefficients,
    *,
    sigma_x: float,
    mode: str = "released",
) -> Terms:
    """The terms that look at images, each a sum over those of a scene."""
    precision = 0.125 / sigma_x**2  # 1 / (2 sigma^2), and images span 2 instead of 1
    nll = negative_log_likelihood(scene, images, coefficients, precision, mode)
    if mode == "paper":
        return {"nll": nll}
    return {
        "nll": nll,
        "reg_bck": squared_error(scene.background, images, precision),
        **shape_regularisers(scene, coefficients),
    }


def latent_terms(
    posterior: Posterior, num_pixels: int, *, alpha: float, mode: str = "released"
) -> Terms:
    """The terms that look at the posterior alone."""
    terms = kl_terms(posterior, alpha)
    if mode == "paper":
        return terms
    logit = posterior.presence_logit
    kappa = jax.lax.stop_gradient(jax.nn.sigmoid(logit))
    return {**terms, "reg_pres": num_pixels * (kappa * logit).sum(axis=-1)}


def weigh(
    terms: Terms, coefficients: Coefficients, mode: str = "released"
) -> Float[Array, "*b"]:
    """The objective of each scene: the one place where terms are weighted."""
    kl_weights = dict.fromkeys(KL_TERMS, 1.0)
    if mode == "released":
        kl_weights["kl_bck"] = 2.0
    weights = {name: coefficients.sched_kld * w for name, w in kl_weights.items()}
    weights |= {name: getattr(coefficients, name) for name in REGULARISERS}
    weights["nll"] = 1.0
    return sum(weights[k] * v for k, v in terms.items() if not is_never(weights[k]))


def negative_log_likelihood(
    scene: Scene,
    images: Float[Array, "*b m h w 3"],
    coefficients: Coefficients,
    precision: float,
    mode: str = "released",
) -> Float[Array, "*b"]:
    """The mixture of layers, blended in training with errors of auxiliary images."""
    mixture = mixture_nll(scene, images, precision).sum(axis=(-3, -2, -1))
    if mode == "paper":
        return mixture
    # The released program broadcasts the mixture over the three colours.
    mixture = 3 * mixture
    if scene.recon_aux is None:
        return mixture
    share_mixture, share_imp = coefficients.ratio_mixture, coefficients.ratio_imp_sdw
    auxiliary = squared_error(scene.recon_aux, images, precision)
    if scene.recon_aux_imp is not None:
        error_imp = squared_error(scene.recon_aux_imp, images, precision)
        auxiliary = share_imp * error_imp + (1 - share_imp) * auxiliary
    return share_mixture * mixture + (1 - share_mixture) * auxiliary


def mixture_nll(
    scene: Scene, images: Float[Array, "*b m h w 3"], precision: float
) -> Float[Array, "*b m h w"]:
    """Of every pixel under the mixture of K + 1 layers, without its constant."""
    slots = (*scene.appearance.shape[:-4], 1, *images.shape[-3:])
    errors_obj = sum_square(scene.appearance, images.reshape(slots))
    bck = _log_joint(scene.mask_bck, sum_square(scene.background, images), precision)
    obj = _log_joint(scene.mask_obj, errors_obj, precision)
    largest = jnp.maximum(jax.lax.stop_gradient(bck), max_slots(obj))
    odds = jnp.exp(bck - largest) + sum_slots(jnp.exp(obj - largest[..., None, :, :]))
    return -(largest + jnp.log(odds))


def _log_joint(
    mask: Float[Array, "*s"], error: Float[Array, "*s"], precision: float
) -> Float[Array, "*s"]:
    return jnp.log(mask * (1 - 2e-5) + 1e-5) - precision * error


def squared_error(
    recon: Float[Array, "*b m h w 3"],
    images: Float[Array, "*b m h w 3"],
    precision: float,
) -> Float[Array, "*b"]:
    """Weighted squared error, summed over viewpoints, pixels and colours."""
    return precision * sum_square(recon, images).sum(axis=(-3, -2, -1))


def kl_terms(posterior: Posterior, alpha: float) -> Terms:
    """KL divergences from the priors, in closed form."""
    view = kl_normal(posterior.view_mean, posterior.view_log_var)
    obj = kl_normal(posterior.obj_mean, posterior.obj_log_var)
    tau = jnp.maximum(posterior.tau, _TAU_MIN)
    pres = kl_rho(tau, alpha) + kl_presence(tau, posterior.presence_logit)
    return {
        "kl_view": view.sum(axis=-1),
        "kl_bck": kl_normal(posterior.bck_mean, posterior.bck_log_var),
        "kl_obj": obj.sum(axis=-1),
        "kl_pres": pres.sum(axis=-1),
    }


def kl_normal(
    mean: Float[Array, "*s d"], log_var: Float[Array, "*s d"]
) -> Float[Array, "*s"]:
    """From N(mean, exp(log_var)) to the standard normal."""
    return 0.5 * (jnp.square(mean) + jnp.exp(log_var) - log_var - 1).sum(axis=-1)


def kl_rho(tau: Float[Array, "*b k 2"], alpha: float) -> Float[Array, "*b k"]:
    """From Beta(tau) to the prior Beta(alpha / K, 1) of each object's probability."""
    prior = alpha / tau.shape[-2]
    taus = _with_sum(tau)
    (tau_1, tau_2, total), (psi_1, psi_2, psi_total) = taus, digamma(taus)
    log_1, log_2, log_total = gammaln(taus)
    return (
        log_total
        - log_1
        - log_2
        - jnp.log(prior)
        + (tau_1 - prior) * psi_1
        + (tau_2 - 1) * psi_2
        - (total - prior - 1) * psi_total
    )


def kl_presence(
    tau: Float[Array, "*b k 2"], logit: Float[Array, "*b k"]
) -> Float[Array, "*b k"]:
    """From Bernoulli(kappa) to Bernoulli(rho), expected over rho ~ Beta(tau)."""
    kappa, absent = jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)
    psi_1, psi_2, psi_total = digamma(_with_sum(tau))
    return (
        psi_total
        + kappa * (jax.nn.log_sigmoid(logit) - psi_1)
        + absent * (jax.nn.log_sigmoid(-logit) - psi_2)
    )


def _with_sum(tau: Float[Array, "*b k 2"]) -> Float[Array, "3 *b k"]:
    """Both and their sum as one array: every digamma is a dozen loops to compile."""
    return jnp.stack([tau[..., 0], tau[..., 1], tau.sum(axis=-1)])


def shape_regularisers(scene: Scene, coefficients: Coefficients) -> Terms:
    """What keeps shapes and shadows small while the released program anneals."""
    reg_shp = jnp.abs(scene.shape_logit + SHAPE_SHIFT).sum(axis=(-4, -3, -2, -1))
    if scene.shadow_shape_logit is None:
        # As in the released program: the shadow logits of a model without any are 0.
        constant = SHAPE_SHIFT * math.prod(scene.shape_logit.shape[-4:])
        reg_sdw, reg_sdw_ratio = jnp.full_like(reg_shp, constant), 0 * reg_shp
    else:
        deviation = jnp.abs(scene.shadow_shape_logit + SHAPE_SHIFT).sum(axis=(-2, -1))
        reg_sdw = deviation.sum(axis=(-2, -1))
        gated = mostly_shadow(scene) * deviation
        reg_sdw_ratio = (1 - coefficients.ratio_imp_sdw) * gated.sum(axis=(-2, -1))
    return {"reg_shp": reg_shp, "reg_sdw": reg_sdw, "reg_sdw_ratio": reg_sdw_ratio}


def mostly_shadow(scene: Scene) -> Float[Array, "*b m k"]:
    """1 for objects most of whose shape lies in their own shadow, without gradient."""
    in_shadow = scene.shadow_shape > _SHADOW_PRESENT
    area = scene.shape_imp.sum(axis=(-2, -1))
    shadow_area = (scene.shape_imp * in_shadow).sum(axis=(-2, -1))
    gate = shadow_area / jnp.maximum(area, 1e-12) > _SHADOW_SHARE
    return jax.lax.stop_gradient(gate.astype(jnp.float32))
