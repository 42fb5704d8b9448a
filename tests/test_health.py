"""The collapse meter: known values, and words that fit them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from ocloc_jax import health

GOOD = {
    "background_share": 0.8,
    "slots_in_use": 3.0,
    "slots_present": 3.5,
    "usage_entropy": 1.0,
    "presence": 0.5,
    "presence_saturation": 0.9,
}


@pytest.mark.parametrize(
    ("changes", "word", "dead"),
    [
        ({}, "ok", False),
        ({"background_share": 0.995}, "empty", True),
        ({"slots_in_use": 0.2}, "empty", True),
        ({"background_share": 0.01}, "swallowed", True),
        ({"presence": 0.99, "presence_saturation": 1.0}, "saturated", False),
        ({"presence": 0.96, "presence_saturation": 0.8}, "ok", False),
        ({"usage_entropy": 0.01}, "merged", False),
    ],
)
def test_verdict(changes, word: str, dead: bool):
    metrics = {f"health/{k}": v for k, v in (GOOD | changes).items()} | {"loss": 5.0}
    assert health.verdict(metrics) == word
    assert health.is_dead(metrics) == dead


def test_entropy_of_known_shares():
    mask = np.zeros((3, 2, 4, 5, 5), np.float32)
    mask[0, :, 2] = 1.0  # one slot for everything
    mask[1] = 0.25  # all alike
    area = jnp.asarray(mask.sum(axis=(-2, -1)))
    entropy = health.usage_entropy(area)  # the third scene has no objects
    np.testing.assert_allclose(entropy, [0, math.log(4), 0], atol=1e-6)


def test_numbers_of_a_scene_made_by_hand():
    mask = np.zeros((2, 1, 3, small.SIZE, small.SIZE), np.float32)
    half = small.SIZE // 2
    mask[0, 0, 0, :half], mask[0, 0, 1, half:] = 1.0, 0.4
    kappa = np.array([[0.99, 0.4, 0.01], [0.9, 0.04, 0.96]], np.float32)
    logit = jnp.asarray(np.log(kappa) - np.log1p(-kappa))
    outputs = empty_outputs()
    outputs = outputs.replace(
        scene=outputs.scene.replace(
            mask_obj=jnp.asarray(mask), mask_bck=jnp.asarray(1 - mask.sum(axis=2))
        ),
        latents=outputs.latents.replace(presence_logit=logit),
        posterior=outputs.posterior.replace(presence_logit=logit),
    )
    shares = np.array([1, 0.4]) / 1.4
    expected = {
        "background_share": 1 - 0.7 / 2,
        "slots_in_use": 0.5,
        "slots_present": 1.5,
        "usage_entropy": -(shares * np.log(shares)).sum() / 2,
        "presence": kappa.mean(),
        "presence_saturation": 4 / 6,
    }
    used = health.usage(outputs.scene)
    found = health.measure(used, outputs.posterior, outputs.latents)
    found = {k.removeprefix("health/"): v for k, v in found.items()}
    assert {k: float(v) for k, v in found.items()} == pytest.approx(expected, rel=1e-5)


def empty_outputs():
    """Outputs of the small model for 2 scenes, 1 view and 3 slots, all zero."""
    images, noise = small.images(num_views=1), small.noise(num_views=1, num_slots=3)
    model, trees = small.model(), []

    def flat():  # the classes of outputs take arrays only, no shapes
        variables = {"params": small.params(model)}
        leaves, tree = jax.tree.flatten(model.apply(variables, images, noise))
        trees.append(tree)
        return leaves

    leaves = [jnp.zeros(x.shape, x.dtype) for x in jax.eval_shape(flat)]
    return jax.tree.unflatten(trees[0], leaves)
