"""Conversion of released weights: round trip, prefixes, and misfits by name."""

import numpy as np
import pytest
import small

from ocloc_jax import convert, released, weights
from ocloc_jax.models.initial import parameter_shapes
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import CLEVR


def random_state(shadows: bool = True) -> dict[str, np.ndarray]:
    """A state dict of the released CLEVR networks with numbers of its own."""
    from flax import traverse_util

    rng = np.random.default_rng(0)
    shapes = parameter_shapes(Ocloc(CLEVR, shadows=shadows))
    flat = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    return released.to_released(traverse_util.unflatten_dict(flat), CLEVR)


@pytest.fixture(scope="module")
def state() -> dict[str, np.ndarray]:
    return random_state()


def test_names_and_shapes_are_those_of_the_released_program(state):
    golden = np.load("tests/golden/init_stats.npz")
    import json

    names, shapes = golden["blender/names"], golden["blender/shapes"]
    expected = {
        str(n): tuple(json.loads(str(s))) for n, s in zip(names, shapes, strict=True)
    }
    assert {name: value.shape for name, value in state.items()} == expected


def test_there_and_back(state):
    params = released.from_released(state, CLEVR)
    back = released.to_released(params, CLEVR)
    assert back.keys() == state.keys()
    for name in state:
        np.testing.assert_array_equal(back[name], state[name])


@pytest.mark.parametrize("prefix", ["", "module."])
def test_npz_to_safetensors_and_back(tmp_path, capsys, state, prefix: str):
    source, target = tmp_path / "state.npz", tmp_path / "sub" / "out.safetensors"
    np.savez(source, **{prefix + name: value for name, value in state.items()})
    assert convert.main([str(source), str(target)]) == 0
    assert "4,822,432 parameters" in capsys.readouterr().out
    model, params = weights.load(target)
    assert model == Ocloc(CLEVR)
    for name, value in released.to_released(params, CLEVR).items():
        np.testing.assert_array_equal(value, state[name])
    assert convert.main([str(source), str(target)]) == 1  # never overwrites
    assert "exists" in capsys.readouterr().err


def test_model_without_shadows_is_recognised():
    model, _ = convert.convert(random_state(shadows=False))
    assert model == Ocloc(CLEVR, shadows=False)


def test_all_misfits_are_listed(state):
    broken = dict(state)
    del broken["enc.net_view.0.0.bias"]
    broken["extra.weight"] = np.zeros(3)
    broken["enc.net_feat.5.weight"] = np.zeros(7)
    with pytest.raises(convert.ConversionError) as error:
        convert.convert(broken)
    text = str(error.value)
    assert "3 tensors do not fit the CLEVR/SHOP networks" in text
    assert "missing    enc.net_view.0.0.bias [512]" in text
    assert "unknown    extra.weight [3]" in text
    assert "misshapen  enc.net_feat.5.weight [7], expected [64]" in text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.npz", None, "no such file"),
        ("broken.npz", b"not a zip", "cannot be read as .npz"),
        ("state.pth", b"not torch", "PyTorch"),
    ],
)
def test_unreadable_files_are_named(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert convert.main([str(path), str(tmp_path / "out.safetensors")]) == 1
    error = capsys.readouterr().err
    assert name in error and message in error and "Traceback" not in error


def test_pth_with_prefix_and_wrapper(tmp_path, state):
    torch = pytest.importorskip("torch", reason="needs the extra `torch`")
    tensors = {f"module.{k}": torch.from_numpy(v) for k, v in state.items()}
    path = tmp_path / "best.pth"
    torch.save({"model_state_dict": tensors, "step": 3}, path)
    read = convert.read_state(path)
    _, params = convert.convert(read)
    for name, value in released.to_released(params, CLEVR).items():
        np.testing.assert_array_equal(value, state[name])


def test_pickled_code_is_not_run(tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra `torch`")

    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    path = tmp_path / "evil.pth"
    torch.save({"model_state_dict": Evil()}, path)
    with pytest.raises(
        convert.ConversionError, match="cannot read it as plain weights"
    ):
        convert.read_state(path)


def test_other_safetensors_are_refused(tmp_path):
    import safetensors.numpy

    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(3, np.float32)}, path)
    with pytest.raises(ValueError, match="other.safetensors: format None"):
        weights.load(path)
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        weights.load(path)


def test_small_model_survives_its_file(tmp_path):
    model = small.model(shadows=False, mode="paper", num_iterations=2)
    params = small.params(model)
    weights.save(tmp_path / "small.safetensors", model, params)
    loaded, found = weights.load(tmp_path / "small.safetensors")
    assert loaded == model
    np.testing.assert_array_equal(
        found["encoder"]["view_loc"], params["encoder"]["view_loc"]
    )
