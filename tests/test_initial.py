"""Initial parameters and noise; their statistics are compared in test_parity."""

import jax
import numpy as np
import pytest
import small

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
