"""Our counterparts of the values that a model case stores, by their golden keys."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ocloc_jax import gradients, losses
from ocloc_jax.metrics.training import training_metrics
from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import SHAPE_SHIFT, Layers
from ocloc_jax.models.ocloc import Outputs
from ocloc_jax.parity.golden import Case

_LOSSES = {"kl_view": "kld_view", "kl_bck": "kld_bck"}
_LOSSES |= {"kl_obj": "kld_obj", "kl_pres": "kld_pres"}


def run(case: Case) -> dict[str, Any]:
    """Runs the model on a case: values by golden key."""
    images, coefficients = jnp.asarray(case.images), case.coefficients

    def forward(params: Any) -> tuple[Any, ...]:
        variables = {"params": params}
        outputs = case.model.apply(variables, images, case.noise, coefficients)
        terms = losses.loss_terms(outputs, images, coefficients, **_priors(case))
        loss = losses.weigh(terms, coefficients).mean()
        features = case.model.apply(variables, images, method="features")
        return loss, outputs, terms, features

    loss, outputs, terms, features = _in_float32(forward, case.params)
    values = encoder_values(outputs, features) | decoder_values(outputs)
    values |= {f"loss/{_LOSSES.get(k, k)}": v.mean() for k, v in terms.items()}
    return values | {"loss/opt": loss} | metric_values(outputs, case)


def gradient(case: Case, images_at_a_time: int = 0) -> Any:
    """The gradient of a case as training takes it."""
    objective = losses.Objective(case.meta["K"], **_priors(case))
    arguments = jnp.asarray(case.images), case.noise, case.coefficients, objective
    return _in_float32(
        lambda params: gradients.gradient(
            case.model, params, *arguments, images_at_a_time
        )[0],
        case.params,
    )


def _priors(case: Case) -> dict[str, float]:
    return dict(sigma_x=case.meta["normal_scale"], alpha=case.meta["pres_alpha"])


def _in_float32(fn: Callable[[Any], Any], params: Any) -> Any:
    """Whatever the hardware: the golden numbers are float32 products."""
    with jax.default_matmul_precision("highest"):
        return jax.jit(fn)(params)


def encoder_values(outputs: Outputs, features: Any) -> dict[str, Any]:
    """Posterior parameters, slots, features and samples."""
    posterior, sample = outputs.posterior, outputs.latents
    stored = features.reshape(-1, *features.shape[-3:])
    return {
        "enc/view_mu": posterior.view_mean,
        "enc/view_logvar": posterior.view_log_var,
        "enc/bck_mu": posterior.bck_mean,
        "enc/bck_logvar": posterior.bck_log_var,
        "enc/obj_mu": posterior.obj_mean,
        "enc/obj_logvar": posterior.obj_log_var,
        "enc/tau1": posterior.tau[..., 0],
        "enc/tau2": posterior.tau[..., 1],
        "enc/zeta": jax.nn.sigmoid(posterior.presence_logit),
        "enc/logits_zeta": posterior.presence_logit,
        "enc/slot_view": outputs.slots.view,
        "enc/slot_attr": outputs.slots.attr,
        "enc/net_feat": stored,
        "sample/view_latent": sample.view,
        "sample/bck_latent": sample.bck,
        "sample/obj_latent": sample.obj,
        "sample/logits_pres": sample.presence_logit,
        "sample/pres_soft": sample.presence,
        "sample/pres_hard": sample.presence >= 0.5,
    }


def decoder_values(outputs: Outputs) -> dict[str, Any]:
    """Raw heads, masks, shapes, shadows and reconstructions."""
    scene, layers = outputs.scene, outputs.layers
    order = layers.order[..., None]
    values = {
        "x_misc": jnp.concatenate([order, layers.position], axis=-1),
        "x_img": _raw_maps(layers),
        "recon": scene.recon,
        "recon_aux": scene.recon_aux,
        "recon_aux_imp": scene.recon_aux_imp,
        "mask_bck": scene.mask_bck,
        "mask_obj": scene.mask_obj,
        "mask_imp_bck": scene.mask_imp_bck,
        "mask_imp_obj": scene.mask_imp_obj,
        "log_ord": scene.order,
        "trs": jnp.tanh(layers.position),
        "bck": scene.background,
        "bck_imp": scene.background_imp,
        "apc": scene.appearance,
        "apc_aux": scene.appearance_aux,
        "shp": scene.shape,
        "shp_imp": scene.shape_imp,
        "logits_shp_imp": scene.shape_logit,
        **_shadow_values(scene),
    }
    return {f"dec/{key}": value for key, value in values.items()}


def _raw_maps(layers: Layers) -> jax.Array:
    """The object network's channels in their original order and without the shift."""
    maps = [layers.appearance, layers.shape_logit[..., None] + SHAPE_SHIFT]
    if layers.shadow_logit is not None:
        shadow_shape = layers.shadow_shape_logit[..., None] + SHAPE_SHIFT
        maps += [layers.shadow_logit[..., None], shadow_shape]
    return jnp.concatenate(maps, axis=-1)


def _shadow_values(scene: Scene) -> dict[str, Any]:
    if scene.shadow_shape is None:
        # The released program stores zeros where there are no shadows.
        zeros = {"sdw_shp": scene.shape, "sdw_logits_shp": scene.shape}
        zeros["sdw_apc"] = scene.appearance
        return {key: jnp.zeros_like(like) for key, like in zeros.items()}
    light = scene.shadow_light[..., None]
    return {
        "sdw_mask_bck": scene.shadow_mask_bck,
        "sdw_mask_obj": scene.shadow_mask_obj,
        "sdw_shp": scene.shadow_shape,
        "sdw_logits_shp": scene.shadow_shape_logit,
        "sdw_apc": (scene.background_imp[..., None, :, :, :] + 1) * light - 1,
    }


def metric_values(outputs: Outputs, case: Case) -> dict[str, Any]:
    """The metrics that training prints, where the file has the true segmentation."""
    if "data/segment_index" not in case.arrays:
        return {}
    segment = case.arrays["data/segment_index"]
    found = training_metrics(
        mask_obj=outputs.scene.mask_obj,
        mask_bck=outputs.scene.mask_bck,
        recon=outputs.scene.recon,
        image=jnp.asarray(case.images),
        presence=outputs.latents.presence,
        segment=jnp.asarray(segment),
        overlap=jnp.asarray(case.arrays["data/overlap_count"]),
        num_labels=int(segment.max()) + 1,
    )
    return {f"metric/{name}": value for name, value in found.items()}
