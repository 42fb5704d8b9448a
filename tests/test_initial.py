"""Initial parameters and noise; their statistics are compared in test_parity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from flax import traverse_util

from ocloc_jax.models import latents
from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.initial import init


@pytest.fixture(scope="module")
def params():
    return jax.jit(lambda key: init(small.model(), key))(jax.random.key(0))


def test_transformer_layers_start_as_equal_copies(params):
    for net in ("background_net", "object_net"):
        for leaf in jax.tree.leaves(params["decoder"][net]["transformer"]):
            assert leaf.shape[0] == small.IMAGE.num_layers
            np.testing.assert_array_equal(leaf[0], leaf[1])


def test_recurrent_weights_are_orthogonal(params):
    kernel = np.asarray(params["encoder"]["refinement"]["gru"]["state"]["kernel"])
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(len(kernel)), atol=1e-5)


def test_parameters_do_not_repeat_each_other(params):
    leaves = [np.ravel(x)[0] for x in jax.tree.leaves(params)]
    random = [x for x in leaves if x not in (0, 1)]
    assert len(set(random)) == len(random) > 30


def test_scaled_parameters_differ_by_a_gain_and_two_biases_only(params):
    scaled = jax.jit(lambda key: init(small.model(), key, "scaled"))(jax.random.key(0))
    old, new = (traverse_util.flatten_dict(x, sep="/") for x in (params, scaled))
    gains = {
        "encoder/refinement/query/kernel": 3.0,
        "encoder/feature_net/position/kernel": 2.0,
        "encoder/feature_net/conv_0/kernel": 2.0,
        "encoder/obj_head/layer_0/kernel": 1.7,
        "encoder/obj_head/layer_2/kernel": 1.0,
        "decoder/object_net/mlp/layer_1/kernel": 1.7,
        "decoder/object_net/up_0/kernel": 1.5,
        "decoder/order_net/layer_1/kernel": 1.0,
        "decoder/object_net/position/kernel": 1.0,
    }
    for path, gain in gains.items():
        np.testing.assert_allclose(new[path], gain * old[path], rtol=1e-6)
    last = max(
        p for p in old if p.startswith("decoder/object_net/conv_") and "in" not in p
    )
    np.testing.assert_array_equal(new[last], old[last])
    width = small.SIZES.latent_obj
    bias = new["encoder/obj_head/layer_2/bias"]
    np.testing.assert_array_equal(bias[width : 2 * width], -4.0)
    assert not np.any(bias[:width])
    assert not np.any(bias[2 * width :])


def test_scaled_feature_kernels_look_at_their_own_pixel_and_keep_their_size(params):
    scaled = init(small.model(), jax.random.key(0), "scaled")
    old, new = (
        np.asarray(p["encoder"]["feature_net"]["conv_1"]["kernel"])
        for p in (params, scaled)
    )
    energy = np.square(new).sum(axis=(2, 3))
    assert energy[2, 2] > 0.5 * energy.sum()
    assert 0.5 < energy.sum() / (4 * np.square(old).sum()) < 2


def test_scaled_parameters_let_the_image_through(params):
    """What is decoded depends on the image a hundred times more than with Glorot's."""
    model = small.model()
    scaled = init(model, jax.random.key(0), "scaled")
    images = jax.random.uniform(jax.random.key(1), (4, 1, 16, 16, 3), minval=-1)
    images = images.at[:, :, 4:12, 4:12].set(
        jax.random.uniform(jax.random.key(2), (4, 1, 1, 1, 3), minval=-1)
    )
    noise = noise_lib.draw(
        jax.random.key(3), model.sizes, batch=(1,), num_views=1, num_slots=3
    )
    noise = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape[1:])), noise)

    def variation(params):
        bound = model.bind({"params": params})
        found = latents.mode(bound.encoder.posterior(bound.infer_slots(images, noise)))
        return np.std(bound.decode(found, 16, 16).appearance, axis=0).mean()

    assert variation(scaled) > 100 * variation(params)


def test_noise_has_a_stream_for_each_field_and_the_asked_shapes():
    expected = small.noise()
    draw = jax.jit(
        lambda key: noise_lib.draw(
            key,
            small.SIZES,
            batch=(2,),
            num_views=3,
            num_slots=4,
            image_size=(small.SIZE, small.SIZE),
        )
    )
    first, again, other = (draw(jax.random.key(seed)) for seed in (0, 0, 1))
    for name, value in vars(expected).items():
        found = np.asarray(getattr(first, name))
        assert found.shape == value.shape, name
        np.testing.assert_array_equal(found, getattr(again, name))
        assert not np.array_equal(found, getattr(other, name))
    assert 0 < first.shape.min() and first.shape.max() < 1
    assert (
        abs(np.corrcoef(np.ravel(first.shape), np.ravel(first.shadow_shape))[0, 1])
        < 0.05
    )
    assert abs(np.std(first.appearance) - 1) < 0.02


def test_inference_draws_nothing_for_pixels():
    noise = noise_lib.draw(
        jax.random.key(0), small.SIZES, batch=(), num_views=1, num_slots=2
    )
    assert noise.shape is noise.shadow_shape is noise.appearance is None
