"""Equality with the released program, and that the comparison can fail."""

import json
import pathlib

import numpy as np
import pytest

from ocloc_jax.parity import __main__ as command
from ocloc_jax.parity import compare_file, golden, values
from ocloc_jax.parity.compare import compare
from ocloc_jax.parity.gradients import compare_gradients

GOLDEN = pathlib.Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("*_r32*__*.npz"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_model_case(path: pathlib.Path):
    summary = compare_file(path)
    bad = [row for row in summary["rows"] if not row.ok]
    assert not bad
    assert summary["keys_compared"] > 390


def test_gradient_of_one_image_at_a_time():
    arrays = golden.load_arrays(GOLDEN / "blender_r32__multi_250000.npz")
    case = golden.load_case(arrays)
    rows = list(compare_gradients(case, values.gradient(case, images_at_a_time=1)))
    assert len(rows) > 150
    assert not [row for row in rows if not row.ok]


@pytest.mark.parametrize("name", ["schedules", "init_stats", "metrics"])
def test_table(name: str):
    summary = compare_file(GOLDEN / f"{name}.npz")
    assert summary["ok"], summary["worst"]


@pytest.fixture(scope="module")
def forward_only() -> dict[str, np.ndarray]:
    """A model case without gradients, which is quick to compare."""
    arrays = golden.load_arrays(GOLDEN / "blender_r32__single_10000.npz")
    return {k: v for k, v in arrays.items() if not k.startswith(("g", "f64/g"))}


def test_a_wrong_value_fails(forward_only):
    changed = dict(forward_only)
    changed["dec/recon"] = changed["dec/recon"] + 1e-3
    changed["loss/kld_pres"] = changed["loss/kld_pres"] * 1.001
    changed["coef/temp_pres"] = changed["coef/temp_pres"] + 1e-3
    changed["dec/unheard_of"] = np.zeros(3)
    bad = {row.key.split(" ")[0] for row in compare(changed) if not row.ok}
    # The temperature also changes what is sampled and decoded.
    assert {"dec/recon", "loss/kld_pres", "coef/temp_pres", "dec/unheard_of"} <= bad
    assert "sample/logits_pres" in bad and "enc/view_mu" not in bad


def test_a_wrong_recipe_is_noticed(forward_only):
    changed = {**forward_only, "seeds": forward_only["seeds"] + 1}
    with pytest.raises(golden.GoldenError, match="parameter dec.net_bck.0.0.0.bias"):
        compare(changed)


def test_wrong_schedule_and_initialisation_fail():
    schedules = golden.load_arrays(GOLDEN / "schedules.npz")
    schedules["kubric_multi/noise_min"] = schedules["kubric_multi/noise_min"] * 1.01
    assert [r.key for r in compare(schedules) if not r.ok] == ["kubric_multi/noise_min"]
    stats = golden.load_arrays(GOLDEN / "init_stats.npz")
    index = list(stats["blender/names"]).index("enc.net_obj.1.0.weight")
    stats["blender/stats_mean_std_min_max"][index] *= 1.02
    bad = [r.key for r in compare(stats) if not r.ok]
    assert bad == ["blender/enc.net_obj.1.0.weight"]


def test_command_prints_json_and_fails(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    (tmp_path / "broken.npz").write_bytes(b"no")
    paths = [GOLDEN / "schedules.npz", tmp_path / "other.npz", tmp_path / "broken.npz"]
    assert command.main([str(path) for path in paths]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ok"] for line in lines] == [True, False, False]
    assert set(lines[0]) == {"file", "ok", "worst", "keys_compared"}
    assert set(lines[0]["worst"]) == {"key", "error", "allowed"}
    assert "not a golden file" in lines[1]["error"]
    assert command.main(["-v", str(paths[0])]) == 0
    assert "kubric_multi/lr_used_at_step" in capsys.readouterr().out
