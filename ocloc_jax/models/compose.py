"""From layers to images: shapes, shadows, masks and reconstructions (Section III.A)."""

import flax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ocloc_jax.models import latents as latents_lib
from ocloc_jax.models import layers as layers_lib
from ocloc_jax.models.decoder import Layers
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.noise import Noise
from ocloc_jax.models.ordering import layer_masks
from ocloc_jax.models.pixels import colours, sum_slots, sum_square
from ocloc_jax.schedules import Coefficients, is_never

MODES = ("released", "paper")
SHADOW_DEPTH = 0.8  # of the released program: a shadow leaves at least 0.2 of the light


@flax.struct.dataclass
class Scene:
    """Images of a scene and what they are composed of.

    `*_imp` are as if nothing were shadow: shapes before shadows are cut out of them,
    over the clean background. `*_aux` use appearances with training noise. Both are
    None where nothing weighs them.
    """

    recon: Float[Array, "*b m h w 3"]
    mask_bck: Float[Array, "*b m h w"]
    mask_obj: Float[Array, "*b m k h w"]
    shape: Float[Array, "*b m k h w"]  # complete, without presence
    shape_imp: Float[Array, "*b m k h w"]
    shape_logit: Float[Array, "*b m k h w"]  # with its annealed noise
    appearance: Float[Array, "*b m k h w 3"]
    background: Float[Array, "*b m h w 3"]  # with shadows
    background_imp: Float[Array, "*b m h w 3"]  # without
    order: Float[Array, "*b m k"]
    shadow_mask_bck: Float[Array, "*b m h w"] | None = None
    shadow_mask_obj: Float[Array, "*b m k h w"] | None = None
    shadow_shape: Float[Array, "*b m k h w"] | None = None
    shadow_shape_logit: Float[Array, "*b m k h w"] | None = None
    shadow_light: Float[Array, "*b m k h w"] | None = None  # what a shadow lets pass
    mask_imp_bck: Float[Array, "*b m h w"] | None = None
    mask_imp_obj: Float[Array, "*b m k h w"] | None = None
    appearance_aux: Float[Array, "*b m k h w 3"] | None = None
    recon_aux: Float[Array, "*b m h w 3"] | None = None
    recon_aux_imp: Float[Array, "*b m h w 3"] | None = None


def compose(
    layers: Layers,
    latents: Latents,
    coefficients: Coefficients,
    noise: Noise | None = None,
    mode: str = "released",
) -> Scene:
    """Composes the images of all viewpoints.

    Args:
      layers: Outputs of the decoder.
      latents: For the presence of each object.
      coefficients: Of the schedule; the defaults compose as after training.
      noise: Training noise; None, or without per-pixel draws, for inference.
      mode: "released" or "paper"; they differ in how shadows are laid.
    """
    order = layers.order / coefficients.temp_shp
    log_presence = _for_each_view(latents.log_presence, order)
    hardness = jnp.asarray(coefficients.ratio_stick_breaking, jnp.float32)
    shape_logit = _noisy(layers.shape_logit, noise and noise.shape, coefficients)
    shape_imp = jax.nn.sigmoid(shape_logit)
    shadows = _shadows(layers, latents, coefficients, noise, mode)
    shape = shape_imp * (1 - shadows.pop("cut")) if shadows else shape_imp
    mask_bck, mask_obj = layer_masks(shape, log_presence, order, hardness)
    background = shadows.get("background", layers.background)
    scene = Scene(
        recon=_blend(mask_bck, background, mask_obj, layers.appearance),
        mask_bck=mask_bck,
        mask_obj=mask_obj,
        shape=shape,
        shape_imp=shape_imp,
        shape_logit=shape_logit,
        appearance=layers.appearance,
        background_imp=layers.background,
        order=order,
        **{"background": background, **shadows},
    )
    if noise is None or noise.shape is None:
        return scene
    scene = _add_auxiliary(scene, layers, coefficients, noise)
    if is_never(coefficients.ratio_imp_sdw):
        return scene
    return _add_imp(scene, layer_masks(shape_imp, log_presence, order, hardness))


def _add_auxiliary(
    scene: Scene, layers: Layers, coefficients: Coefficients, noise: Noise
) -> Scene:
    """Adds the reconstruction with noisy appearances, which only training looks at."""
    appearance = scene.appearance
    if noise.appearance is not None:
        strength = _noise_strength(
            layers.position, *appearance.shape[-3:-1], coefficients
        )
        pairs = zip(colours(appearance), colours(noise.appearance), strict=True)
        appearance = jnp.stack([a + strength * n for a, n in pairs], axis=-1)
    return scene.replace(
        appearance_aux=appearance,
        recon_aux=_blend(scene.mask_bck, scene.background, scene.mask_obj, appearance),
    )


def _add_imp(scene: Scene, masks: tuple[Array, Array]) -> Scene:
    """Adds the reconstruction as if nothing were shadow, of the first training."""
    mask_bck, mask_obj = masks
    recon = _blend(mask_bck, scene.background_imp, mask_obj, scene.appearance_aux)
    return scene.replace(
        mask_imp_bck=mask_bck, mask_imp_obj=mask_obj, recon_aux_imp=recon
    )


def _shadows(
    layers: Layers,
    latents: Latents,
    coefficients: Coefficients,
    noise: Noise | None,
    mode: str,
) -> dict[str, Array]:
    """Shadow shapes and masks, the darkened background, and what is cut from shapes."""
    if layers.shadow_shape_logit is None:
        return {}
    draw = noise and noise.shadow_shape
    logit = _noisy(layers.shadow_shape_logit, draw, coefficients)
    shape = jax.nn.sigmoid(logit)
    log_presence = _for_each_view(latents.log_presence, layers.order)
    if mode == "paper":
        order, hardness = layers.order / coefficients.temp_shp, jnp.float32(1)
        light = jax.nn.sigmoid(layers.shadow_logit)
        cut = shape * jnp.exp(log_presence)[..., None, None]
    else:
        # The released program leaves shadows unordered.
        order, hardness = jnp.zeros_like(layers.order), jnp.float32(0)
        light = 1 - SHADOW_DEPTH * (1 - jax.nn.sigmoid(layers.shadow_logit))
        cut = shape
    mask_bck, mask_obj = layer_masks(shape, log_presence, order, hardness)
    # Every layer is the same background under another light, so only lights are mixed.
    lit = mask_bck + sum_slots(mask_obj * light)
    return {
        "background": jnp.stack(
            [(b + 1) * lit - 1 for b in colours(layers.background)], axis=-1
        ),
        "shadow_mask_bck": mask_bck,
        "shadow_mask_obj": mask_obj,
        "shadow_shape": shape,
        "shadow_shape_logit": logit,
        "shadow_light": light,
        "cut": cut,
    }


def _noisy(
    logit: Float[Array, "*s"],
    uniform: Float[Array, "*s"] | None,
    coefficients: Coefficients,
) -> Float[Array, "*s"]:
    """Relaxed-Bernoulli noise on shape logits, annealed away by the schedule."""
    if uniform is None:
        return logit
    ratio = coefficients.ratio_stick_breaking
    noisy = (logit + latents_lib.logistic(uniform)) / coefficients.temp_shp
    return ratio * logit + (1 - ratio) * noisy


def _noise_strength(
    position: Float[Array, "*b m k 2"],
    height: int,
    width: int,
    coefficients: Coefficients,
) -> Float[Array, "*b m k h w"]:
    """Grows with the distance from where the network says the object is."""
    grid = layers_lib.position_grid(height, width)
    grid = grid.reshape((1,) * (position.ndim - 1) + grid.shape)
    centre = jnp.tanh(position)[..., None, None, :]
    distance = sum_square(jnp.asarray(grid), centre)
    far = 1 - jnp.exp(-coefficients.noise_scale * distance)
    low, high = coefficients.noise_min, coefficients.noise_max
    return low + (high - low) * far


def _blend(
    mask_bck: Float[Array, "*b m h w"],
    background: Float[Array, "*b m h w 3"],
    mask_obj: Float[Array, "*b m k h w"],
    appearance: Float[Array, "*b m k h w 3"],
) -> Float[Array, "*b m h w 3"]:
    pairs = zip(colours(background), colours(appearance), strict=True)
    images = [mask_bck * b + sum_slots(mask_obj * a) for b, a in pairs]
    return jnp.stack(images, axis=-1)


def _for_each_view(
    x: Float[Array, "*b k"], like: Float[Array, "*b m k"]
) -> Float[Array, "*b m k"]:
    return jnp.broadcast_to(x[..., None, :], like.shape)
