"""The weights in `weights/` load in one line and find objects in unseen scenes."""

import pathlib

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from configs import circle, demo
from ocloc_jax import load, scenes, start
from ocloc_jax.experiment import make_model

WEIGHTS = pathlib.Path(__file__).parent.parent / "weights"
# File, config that made it, and what objects against each other must score.
SHIPPED = {
    "demo": (demo.get_config(), 0.75),
    "circle": (circle.get_config("small"), 0.75),
    "circle64": (circle.get_config("large"), 0.7),
}
UNSEEN = 99  # a seed that no split of the configs uses


@pytest.mark.parametrize("name", SHIPPED)
def test_weights_fit_their_config(name: str):
    config, _ = SHIPPED[name]
    path = WEIGHTS / f"{name}.safetensors"
    start.read_weights(path, make_model(config))
    assert load(path).num_slots == config.objective.num_slots


@pytest.mark.parametrize("name", SHIPPED)
def test_an_object_has_one_slot_in_all_views(name: str):
    """Objects against each other over four views at once; by chance this is 0."""
    config, threshold = SHIPPED[name]
    spec = config.data.scenes.to_dict() | dict(num_views=4)
    unseen = scenes.render_batch(scenes.SceneSpec(**spec), UNSEEN, list(range(12)))
    model = load(WEIGHTS / f"{name}.safetensors")
    agreement = []
    for images, segment, overlap in zip(
        unseen["image"], unseen["segment"], unseen["overlap"], strict=True
    ):
        slots = model.infer(images).masks[:, :-1].argmax(axis=1)
        seen = overlap >= 1
        agreement.append(adjusted_rand_score(segment[seen], slots[seen]))
    assert np.mean(agreement) > threshold
