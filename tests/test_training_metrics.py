"""Scores while training: scikit-learn, one compilation; golden ones in test_parity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ocloc_jax import metrics

training_metrics = jax.jit(metrics.training_metrics, static_argnames="num_labels")
NAMES = ("ari_all_s", "ari_all_m", "ari_obj_s", "ari_obj_m", "mse", "count")


def random_batch(batch: tuple[int, ...] = (2,)) -> dict:
    rng = np.random.default_rng(0)
    views = (*batch, 3)
    batch_arrays = {
        "mask_obj": rng.random((*views, 4, 8, 8), np.float32),
        "mask_bck": rng.random((*views, 8, 8), np.float32),
        "recon": rng.standard_normal((*views, 8, 8, 3), np.float32),
        "image": rng.standard_normal((*views, 8, 8, 3), np.float32),
        "presence": rng.random((*batch, 4), np.float32),
        "segment": rng.integers(0, 4, (*views, 8, 8), np.uint8),
    }
    batch_arrays["overlap"] = (batch_arrays["segment"] < 3).astype(np.uint8)
    return jax.tree.map(jnp.asarray, batch_arrays)


def test_scikit_learn():
    batch = jax.tree.map(np.asarray, random_batch())
    found = training_metrics(**random_batch())
    slot = batch["mask_obj"].argmax(axis=2)
    chosen = batch["overlap"] >= 1
    views = [
        adjusted_rand_score(batch["segment"][i][chosen[i]], slot[i][chosen[i]])
        for i in np.ndindex(2, 3)
    ]
    scenes = [
        adjusted_rand_score(batch["segment"][i][chosen[i]], slot[i][chosen[i]])
        for i in range(2)
    ]
    np.testing.assert_allclose(found["ari_obj_s"], np.mean(views), atol=1e-6)
    np.testing.assert_allclose(found["ari_obj_m"], np.mean(scenes), atol=1e-6)


def test_any_batch_shape():
    batch = random_batch((2, 2))
    flat = {k: v.reshape(4, *v.shape[2:]) for k, v in batch.items()}
    first, second = (training_metrics(**arrays) for arrays in (batch, flat))
    for name in NAMES:
        np.testing.assert_allclose(first[name], second[name], atol=1e-6)


def test_unknown_labels_give_nan_instead_of_a_wrong_score():
    batch = random_batch()
    batch["segment"] = batch["segment"] + jnp.uint8(3)
    found = training_metrics(**batch)
    assert np.isnan(found["ari_all_m"])
    known = training_metrics(**batch, num_labels=7)
    reference = training_metrics(**random_batch())
    for name in NAMES:
        np.testing.assert_allclose(known[name], reference[name], atol=1e-6)


def test_ties_go_to_objects_and_empty_scenes_score_one():
    batch = random_batch()
    batch["mask_bck"] = batch["mask_obj"].max(axis=2)
    batch["segment"] = jnp.full_like(batch["segment"], 4)
    batch["overlap"] = jnp.zeros_like(batch["overlap"])
    batch["presence"] = jnp.zeros_like(batch["presence"])
    found = training_metrics(**batch)
    assert found["ari_obj_s"] == found["ari_obj_m"] == found["count"] == 1
    assert found["ari_all_m"] == 0  # the objects split what is one background


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_count_by_an_exact_int8_product(platform: str):
    traced = training_metrics.trace(**random_batch())
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert "tensor<2x3x1x5x64xi8>" in text  # one-hot labels of 64 pixels
    assert "scatter" not in text
