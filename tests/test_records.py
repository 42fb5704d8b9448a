"""Records: what goes in comes out, view by view, also through the TFDS reader."""

import hashlib
import subprocess
import sys
import zlib

import fake_scenes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocloc_jax import records


def _store(scene, name="a"):
    features = records.features(*scene["image"].shape[1:3])
    raw = features.serialize_example(records.encode_scene(scene, name))
    return records.canonical(raw)


def _scene(num_views=3, size=8, max_objects=4):
    return fake_scenes.render(fake_scenes.SceneSpec(size, num_views, 1, max_objects))


@settings(deadline=None, max_examples=20)
@given(
    num_views=st.integers(1, 5),
    max_objects=st.integers(1, 9),
    keys=st.sets(st.sampled_from(sorted(records.KEYS))),
    data=st.data(),
)
def test_any_views_of_any_keys_come_back(num_views, max_objects, keys, data):
    scene = _scene(num_views, 6, max_objects)
    scene = {key: scene[key] for key in keys | {"image"}}
    chosen = data.draw(st.lists(st.integers(0, num_views - 1)))
    record = records.parse(_store(scene, "here"))
    assert (record.name, record.num_views, record.size) == ("here", num_views, (6, 6))
    for key in records.KEYS:
        assert record.has(key) == (key in scene)
    for key, value in scene.items():
        decoded = records.decode_views(record, key, chosen)
        assert decoded.dtype == value.dtype
        np.testing.assert_array_equal(decoded, value[chosen])


def test_stock_tfds_reader_decodes_the_same_arrays():
    scene = _scene()
    features = records.features(8, 8)
    decoded = features.deserialize_example_np(_store(scene))
    for key, value in scene.items():
        np.testing.assert_array_equal(np.stack(decoded[key]), value)


def test_only_the_asked_views_are_decoded(monkeypatch):
    record = records.parse(_store(_scene(num_views=5)))
    calls, decompress = [], zlib.decompress
    monkeypatch.setattr(
        records.zlib, "decompress", lambda *a, **k: calls.append(1) or decompress(*a)
    )
    records.decode_views(record, "image", [4, 1])
    assert len(calls) == 2


def test_views_are_writable_and_need_not_be_square():
    scene = {"image": np.zeros((2, 4, 6, 3), np.uint8)}
    image = records.decode_views(records.parse(_store(scene)), "image")
    image += 1
    assert image.shape == (2, 4, 6, 3)


def test_bytes_are_the_same_in_every_process():
    """Protobuf orders entries by a hash that every process draws anew."""
    script = """
import hashlib, numpy
from ocloc_jax import records
scene = {"image": numpy.zeros((2, 4, 4, 3), "uint8")}
raw = records.features(4, 4).serialize_example(records.encode_scene(scene, "a"))
print(hashlib.sha256(records.canonical(raw)).hexdigest())
"""
    expected = _store({"image": np.zeros((2, 4, 4, 3), np.uint8)})
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True, text=True
        )
        assert run.stdout.strip() == hashlib.sha256(expected).hexdigest()


def test_missing_key_is_named():
    record = records.parse(_store({"image": np.zeros((2, 4, 4, 3), np.uint8)}))
    with pytest.raises(KeyError, match="no 'masks'.*'image'"):
        records.decode_views(record, "masks")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"image": None}, "no 'image'"),
        ({"image": np.zeros((0, 8, 8, 3), np.uint8)}, r"\(0, 8, 8, 3\)"),
        ({"image": np.zeros((3, 8, 8, 3), np.float32)}, "'image' is float32"),
        ({"segment": np.zeros((2, 8, 8), np.uint8)}, r"'segment'.*3 views"),
        ({"masks": np.zeros((3, 5, 8, 9), np.uint8)}, r"'masks' is \(3, 5, 8, 9\)"),
        ({"depth": np.zeros((3, 8, 8), np.uint8)}, "unknown key 'depth'"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, cause):
    scene = {k: v for k, v in (_scene() | change).items() if v is not None}
    with pytest.raises(ValueError, match=cause):
        records.encode_scene(scene)
