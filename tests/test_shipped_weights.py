"""The weights in `weights/` load in one line and find objects in unseen scenes."""

import pathlib

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from configs import demo
from ocloc_jax import load, scenes, start
from ocloc_jax.experiment import make_model

PATH = pathlib.Path(__file__).parent.parent / "weights" / "demo.safetensors"
UNSEEN = 99  # a seed that no split of the demo uses


@pytest.fixture(scope="module")
def unseen():
    spec = scenes.SceneSpec(**demo.get_config().data.scenes.to_dict())
    return scenes.render_batch(spec, UNSEEN, list(range(12)))


def test_weights_fit_the_demo():
    config = demo.get_config()
    start.read_weights(PATH, make_model(config))
    assert load(PATH).num_slots == config.objective.num_slots


def test_an_object_has_one_slot_in_all_views(unseen):
    """Objects against each other over four views at once; by chance this is 0."""
    model = load(PATH)
    agreement = []
    for images, segment, overlap in zip(
        unseen["image"], unseen["segment"], unseen["overlap"], strict=True
    ):
        slots = model.infer(images).masks[:, :-1].argmax(axis=1)
        seen = overlap >= 1
        agreement.append(adjusted_rand_score(segment[seen], slots[seen]))
    assert np.mean(agreement) > 0.75
