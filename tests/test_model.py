"""The whole model: counts, symmetries, any number of views and slots, precision."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from ocloc_jax import losses
from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import BY_DATASET, CLEVR, from_dict
from ocloc_jax.schedules import Coefficients

ANNEALED = Coefficients(
    temp_pres=2.0, temp_shp=2.0, noise_scale=0.05, noise_min=0.05, noise_max=0.5,
    ratio_imp_sdw=0.5, ratio_mixture=0.4, ratio_stick_breaking=0.6,
    reg_bck=0.1, reg_pres=0.1, reg_shp=0.1, reg_sdw=0.1, reg_sdw_ratio=0.1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        ("clevr", 4_822_432),
        ("shop", 4_822_432),
        ("gso", 15_898_144),
        ("shapenet", 15_898_144),
    ],
)
def test_parameter_counts_are_the_released_ones(dataset: str, count: int):
    shapes = parameter_shapes(Ocloc(BY_DATASET[dataset])).values()
    assert sum(int(np.prod(shape)) for shape in shapes) == count


@functools.cache
def compiled(model):
    return jax.jit(model.apply)


def run(model, params, images, noise, coefficients=ANNEALED):
    return compiled(model)({"params": params}, images, noise, coefficients)


def objective(model, params, images, noise, coefficients=ANNEALED):
    outputs = model.apply({"params": params}, images, noise, coefficients)
    options = dict(sigma_x=0.2, alpha=4.5, mode=model.mode)
    terms = losses.loss_terms(outputs, images, coefficients, **options)
    return losses.weigh(terms, coefficients, model.mode)


def permute(noise, views=None, slots=None):
    """Reorders the noise as the views and slots are reordered."""
    fields = {}
    for name, value in vars(noise).items():
        if views is not None and name not in ("slot_attr", "obj", "bck", "presence"):
            value = value[:, views]
        if slots is not None and name in ("slot_attr", "obj", "presence"):
            value = value[:, slots]
        if slots is not None and name in ("shape", "shadow_shape", "appearance"):
            value = value[:, :, slots]
        fields[name] = value
    return noise.replace(**fields)


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_follows_view_order(mode: str):
    model = small.model(mode=mode)
    params, images, noise = small.params(model), small.images(), small.noise()
    views = np.array([2, 0, 1])
    out = run(model, params, images, noise)
    moved = run(model, params, images[:, views], permute(noise, views=views))
    assert_close(moved.scene.recon, out.scene.recon[:, views])
    assert_close(moved.scene.mask_obj, out.scene.mask_obj[:, views])
    assert_close(moved.posterior.view_mean, out.posterior.view_mean[:, views])
    assert_close(moved.posterior.obj_mean, out.posterior.obj_mean)


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_follows_slot_order(mode: str):
    model = small.model(mode=mode)
    params, images, noise = small.params(model), small.images(), small.noise()
    slots = np.array([3, 1, 0, 2])
    out = run(model, params, images, noise)
    moved = run(model, params, images, permute(noise, slots=slots))
    assert_close(moved.scene.recon, out.scene.recon)
    assert_close(moved.scene.mask_obj, out.scene.mask_obj[:, :, slots])
    assert_close(moved.posterior.presence_logit, out.posterior.presence_logit[:, slots])
    assert_close(moved.posterior.bck_mean, out.posterior.bck_mean)


def assert_close(a, b, atol=2e-4):
    np.testing.assert_allclose(a, b, atol=atol, rtol=1e-3)


@pytest.mark.parametrize(("num_views", "num_slots"), [(1, 12), (10, 1), (4, 7)])
def test_any_number_of_views_and_slots(num_views: int, num_slots: int):
    model = small.model()
    params = small.params(model)
    images = small.images((1,), num_views)
    noise = small.noise((1,), num_views, num_slots, training=False)
    scene = run(model, params, images, noise, Coefficients()).scene
    assert scene.mask_obj.shape == (1, num_views, num_slots, small.SIZE, small.SIZE)
    total = scene.mask_bck + scene.mask_obj.sum(axis=-3)
    np.testing.assert_allclose(total, 1, atol=1e-4)


@pytest.mark.parametrize("batch", [(), (2, 2)], ids=str)
def test_any_batch_axes(batch: tuple[int, ...]):
    model = small.model()
    params = small.params(model)
    noise, images = small.noise((4,)), small.images((4,))
    expected = run(model, params, images, noise).scene.recon

    def reshape(x):
        return x[0] if batch == () else x.reshape(*batch, *x.shape[1:])

    noise, images = jax.tree.map(reshape, (noise, images))
    assert_close(run(model, params, images, noise).scene.recon, reshape(expected))


def slots_of(model, params, images, noise):
    return model.apply({"params": params}, images, noise, method="infer_slots")


def test_scan_is_the_loop():
    model, one = small.model(), small.model(num_iterations=1)
    params, images, noise = small.params(model), small.images(), small.noise()
    found = jax.jit(slots_of, static_argnums=0)(model, params, images, noise)

    @jax.jit
    def step(slots):
        encoder = one.bind({"params": params}).encoder
        return encoder.refine(encoder.features(images), slots)

    initial = model.bind({"params": params}).encoder.initial_slots
    expected = initial(noise.slot_view, noise.slot_attr)
    for _ in range(3):
        expected = step(expected)
    assert_close(found.view, expected.view)
    assert_close(found.attr, expected.attr)


# 100 parts are more than there are images.
@pytest.mark.parametrize(
    "options", [{"remat": "all"}, {"num_parts": 2}, {"num_parts": 100}], ids=str
)
def test_how_it_is_computed_changes_no_gradient(options: dict):
    models = small.model(), small.model(**options)
    params, images, noise = small.params(models[0]), small.images(), small.noise()

    def total(params, model):
        return objective(model, params, images, noise, ANNEALED).mean()

    gradients = [jax.jit(jax.grad(total), static_argnums=1)(params, m) for m in models]
    # Some gradients are zero but for rounding, of sums as large as the largest one.
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(gradients))
    for found, expected in zip(*map(jax.tree.leaves, gradients), strict=True):
        scale = float(np.abs(expected).max())
        atol = 1e-4 * scale + 1e-6 * largest
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=atol)


@pytest.mark.parametrize("remat", ["none", "encoder", "decoder", "all"])
def test_remat_is_in_the_program_where_it_is_asked_for(remat: str):
    model = small.model(remat=remat)
    params, images, noise = small.params(model), small.images(), small.noise()
    text = str(jax.make_jaxpr(lambda p: objective(model, p, images, noise))(params))
    # Features and refinement; a transformer and two doublings in each of two image
    # networks, and composition.
    expected = {"none": 0, "encoder": 2, "decoder": 7, "all": 9}[remat]
    assert len(re.findall(r"= (?:checkpoint|remat2)\[", text)) == expected


def test_unknown_remat_is_refused():
    with pytest.raises(ValueError, match="Unknown remat 'some'; use one of"):
        small.params(small.model(remat="some"))


def test_every_parameter_gets_a_finite_gradient():
    model = small.model()
    params, images, noise = small.params(model), small.images(), small.noise()

    @jax.jit
    def gradient(coefficients):
        args = images, noise, coefficients
        return jax.grad(lambda p: objective(model, p, *args).mean())(params)

    for coefficients in (ANNEALED, Coefficients()):
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient(coefficients)):
            assert np.isfinite(leaf).all(), path
            assert np.abs(leaf).max() > 0, path


def test_without_shadows_is_a_switch():
    model = small.model(shadows=False)
    params = small.params(model)
    noise = small.noise(shadows=False)
    scene = run(model, params, small.images(), noise).scene
    assert scene.shadow_shape is None and noise.appearance is None
    np.testing.assert_array_equal(scene.background, scene.background_imp)
    np.testing.assert_array_equal(scene.shape, scene.shape_imp)
    np.testing.assert_array_equal(scene.recon, scene.recon_aux)


def test_bfloat16_moves_the_loss_little():
    full, half = small.model(), small.model(dtype="bfloat16")
    params = small.params(full)
    args = params, small.images((4,)), small.noise((4,))
    a, b = (jax.jit(lambda *x, m=m: objective(m, *x))(*args) for m in (full, half))
    assert b.dtype == jnp.float32
    relative = np.abs(np.asarray(a - b) / np.asarray(a))
    assert 0 < relative.max() < 0.05 and relative.mean() < 0.02


def test_bfloat16_keeps_slots_and_posterior_in_float32():
    model = small.model(dtype="bfloat16")
    out = run(model, small.params(model), small.images(), small.noise())
    for leaf in jax.tree.leaves(out):
        assert leaf.dtype == jnp.float32


def test_image_that_does_not_fit_is_refused():
    model = small.model()
    images = jnp.zeros((1, 2, 18, 16, 3))
    with pytest.raises(ValueError, match="18x16.*multiples of 4"):
        model.apply({"params": small.params(model)}, images, small.noise((1,), 2))


def test_unknown_mode_is_refused():
    model = small.model(mode="published")
    with pytest.raises(ValueError, match="'published'.*released"):
        small.params(model)


def test_sizes_survive_plain_data():
    import dataclasses
    import json

    assert from_dict(json.loads(json.dumps(dataclasses.asdict(CLEVR)))) == CLEVR
