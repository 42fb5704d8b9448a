"""Composition: shadows in both modes, training noise, reconstructions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ocloc_jax.models import compose as compose_lib
from ocloc_jax.models.decoder import Layers
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.noise import Noise
from ocloc_jax.schedules import Coefficients

B, M, K, H, W = 2, 3, 4, 8, 6


def random_layers(seed: int = 0) -> Layers:
    rng = np.random.default_rng(seed)
    maps = dict.fromkeys(("shape_logit", "shadow_logit", "shadow_shape_logit"))
    arrays = {name: rng.normal(size=(B, M, K, H, W)) for name in maps}
    arrays |= {
        "background": rng.normal(size=(B, M, H, W, 3)),
        "appearance": rng.normal(size=(B, M, K, H, W, 3)),
        "order": rng.normal(size=(B, M, K)),
        "position": rng.normal(size=(B, M, K, 2)),
    }
    return Layers(**{k: jnp.asarray(v, jnp.float32) for k, v in arrays.items()})


def random_latents(presence: float = 1.0) -> Latents:
    rng = np.random.default_rng(1)
    logit = presence * rng.normal(2, 1, size=(B, K))
    empty = {"view": (B, M, 1), "obj": (B, K, 1), "bck": (B, 1)}
    return Latents(
        **{name: jnp.zeros(shape) for name, shape in empty.items()},
        presence_logit=jnp.asarray(logit, jnp.float32),
    )


def random_noise() -> Noise:
    rng = np.random.default_rng(2)
    zeros = {"slot_view": (B, M, 1), "slot_attr": (B, K, 1), "view": (B, M, 1)}
    zeros |= {"obj": (B, K, 1), "bck": (B, 1), "presence": (B, K)}
    pixels = (B, M, K, H, W)
    draws = {
        "shape": rng.uniform(size=pixels),
        "shadow_shape": rng.uniform(size=pixels),
        "appearance": rng.normal(size=(*pixels, 3)),
    }
    return Noise(
        **{name: jnp.zeros(shape) for name, shape in zeros.items()},
        **{name: jnp.asarray(value, jnp.float32) for name, value in draws.items()},
    )


def compose(mode="released", coefficients=None, noise=None, layers=None):
    function = jax.jit(compose_lib.compose, static_argnums=4)
    coefficients = coefficients or Coefficients()
    layers = layers or random_layers()
    return function(layers, random_latents(), coefficients, noise, mode)


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_background_is_darkened_by_the_shadows(mode: str):
    scene, layers = compose(mode), random_layers()
    light = np.asarray(jax.nn.sigmoid(layers.shadow_logit))
    light = 0.8 * light + 0.2 if mode == "released" else light
    np.testing.assert_allclose(scene.shadow_light, light, atol=1e-6)
    # Layer by layer, as the paper writes it, on images in [0, 1].
    clean = (np.asarray(layers.background) + 1) / 2
    darkened = clean[:, :, None] * light[..., None]
    expected = (np.asarray(scene.shadow_mask_obj)[..., None] * darkened).sum(axis=2)
    expected += np.asarray(scene.shadow_mask_bck)[..., None] * clean
    np.testing.assert_allclose((scene.background + 1) / 2, expected, atol=1e-5)


def test_paper_shadows_are_ordered_and_released_ones_are_not():
    layers = random_layers()

    def first_shadow(order, mode):
        moved = layers.replace(order=order)
        args = random_latents(), Coefficients()
        scene = compose_lib.compose(moved, *args, mode=mode)
        return scene.shadow_mask_obj[:, :, 0].sum()

    gradient = jax.jit(jax.grad(first_shadow), static_argnums=1)
    assert np.abs(gradient(layers.order, "released")).max() == 0
    assert np.abs(gradient(layers.order, "paper")).max() > 1e-3


def test_shapes_lose_what_is_shadow():
    presence = np.asarray(random_latents().presence)[:, None, :, None, None]
    for mode, cut in (("released", 1.0), ("paper", presence)):
        scene = compose(mode)
        shadow = np.asarray(scene.shadow_shape)
        expected = np.asarray(scene.shape_imp) * (1 - cut * shadow)
        np.testing.assert_allclose(scene.shape, expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_masks_and_shadow_masks_sum_to_one(mode: str):
    scene = compose(mode)
    total = scene.mask_bck + scene.mask_obj.sum(axis=-3)
    shadows = scene.shadow_mask_bck + scene.shadow_mask_obj.sum(axis=-3)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    np.testing.assert_allclose(shadows, 1, atol=1e-5)


def test_noise_is_annealed_away():
    end = Coefficients()  # ratios at their final values, no appearance noise
    noisy, plain = compose(noise=random_noise()), compose()
    np.testing.assert_allclose(noisy.recon, plain.recon, atol=1e-6)
    np.testing.assert_allclose(noisy.recon_aux, plain.recon, atol=1e-6)
    early = dataclasses.replace(end, ratio_stick_breaking=0.1, noise_max=0.5)
    moved = compose(noise=random_noise(), coefficients=early)
    assert np.abs(moved.shape_logit - plain.shape_logit).max() > 0.5


def test_appearance_noise_grows_away_from_the_object():
    coefficients = Coefficients(noise_scale=2.0, noise_min=0.1, noise_max=0.9)
    centre = jnp.arctanh(jnp.full((B, M, K, 2), -0.999))  # upper left corner
    layers = random_layers().replace(position=centre)
    scene = compose(noise=random_noise(), coefficients=coefficients, layers=layers)
    added = (scene.appearance_aux - scene.appearance) / random_noise().appearance
    strength = np.median(np.asarray(added), axis=(0, 1, 2, 5))
    assert strength[0, 0] == pytest.approx(0.1, abs=1e-2)
    assert strength[-1, -1] == pytest.approx(0.9, abs=1e-2)
    assert (np.diff(strength[0]) > 0).all() and (np.diff(strength[:, 0]) > 0).all()


def test_absent_objects_leave_only_the_background():
    layers, latents = random_layers(), random_latents()
    latents = latents.replace(presence_logit=jnp.full((B, K), -80.0))
    scene = compose_lib.compose(layers, latents, Coefficients())
    np.testing.assert_allclose(scene.recon, layers.background, atol=1e-5)
