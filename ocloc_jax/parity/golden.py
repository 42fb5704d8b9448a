"""Reads golden files: inputs and results of the released program at one point.

A file names the recipe of its parameters and random draws; both are rebuilt here and
checked against the checksums that the file carries.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax import released
from ocloc_jax.models import sizes as sizes_lib
from ocloc_jax.models.noise import Noise
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.schedules import NAMES, Coefficients

SIZES = {"blender": sizes_lib.CLEVR, "kubric": sizes_lib.GSO}

_LAST_BIAS = "dec.net_obj_img.9.5.0.bias"
_LAST_BIAS_VALUE = (0.3, -0.2, 0.1, 2.5, 0.2, 0.45)
_DRAWS = {  # their name of a draw -> our field of Noise
    "noise_slot_view": "slot_view",
    "noise_slot_attr": "slot_attr",
    "noise_view_latent": "view",
    "noise_bck_latent": "bck",
    "noise_obj_latent": "obj",
    "uniform_pres": "presence",
    "uniform_shp": "shape",
    "uniform_sdw_shp": "shadow_shape",
    "noise_apc_aux": "appearance",
}


class GoldenError(ValueError):
    """A file that is not a golden file, or whose recipe gives other numbers."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One golden file, with its inputs rebuilt."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any]
    model: Ocloc
    params: Any
    noise: Noise
    images: np.ndarray
    coefficients: Coefficients

    @property
    def param_names(self) -> list[str]:
        """Names of the released program, in the file's order."""
        return [str(name) for name in self.arrays["param/names"]]


def load_arrays(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; never unpickles."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise GoldenError(f"{path}: cannot be read as .npz: {error}") from error


def load_case(arrays: Mapping[str, np.ndarray]) -> Case:
    """Rebuilds parameters, noise and coefficients of a model case."""
    meta = json.loads(str(arrays["meta"]))
    if meta["kind"] not in SIZES:
        raise GoldenError(f"Unknown kind {meta['kind']!r}; known: {', '.join(SIZES)}.")
    sizes = SIZES[meta["kind"]]
    state = _state(arrays)
    coefs = {k: arrays[f"coef/{k}"] for k in NAMES if f"coef/{k}" in arrays}
    return Case(
        arrays=arrays,
        meta=meta,
        model=Ocloc(sizes, shadows=meta["use_shadow"]),
        params=released.from_released(state, sizes),
        noise=_noise(arrays, meta),
        images=arrays["image"],
        coefficients=Coefficients(**jax.tree.map(jnp.float32, coefs)),
    )


def _state(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters by the released program's names."""
    rng = np.random.default_rng(int(arrays["seeds"][0]))
    recipe = zip(
        arrays["param/names"],
        arrays["param/shapes"],
        arrays["param/offset"],
        arrays["param/scale"],
        strict=True,
    )
    state = {}
    for name, shape, offset, scale in recipe:
        draw = rng.standard_normal(json.loads(str(shape)))
        state[str(name)] = (offset + scale * draw).astype(np.float32)
    num_channels = state[_LAST_BIAS].size
    state[_LAST_BIAS] = np.array(_LAST_BIAS_VALUE[:num_channels], np.float32)
    for (name, value), row in zip(state.items(), arrays["param/checksum"], strict=True):
        _check_sum(f"parameter {name}", value, row)
    return state


def _noise(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Noise:
    fields = {}
    for i, (name, function, shape) in enumerate(meta["draws"]):
        rng = np.random.default_rng([int(arrays["seeds"][2]), i])
        draw = rng.random if function == "rand" else rng.standard_normal
        value = draw(shape).astype(np.float32)
        if f"noise_checksum/{name}" in arrays:
            _check_sum(f"draw {name}", value, arrays[f"noise_checksum/{name}"])
        value = arrays.get(f"noise/{name}", value)
        # Presence and shapes carry a last axis of one channel there.
        value = value[..., 0] if name.startswith("uniform") else value
        fields[_DRAWS[name]] = jnp.asarray(value)
    return Noise(**fields)


def _check_sum(what: str, value: np.ndarray, row: np.ndarray) -> None:
    flat = value.astype(np.float64).reshape(-1)
    ours = [flat.sum(), np.abs(flat).sum(), flat[0], flat[-1]]
    if not np.allclose(ours, row, rtol=1e-6, atol=1e-6 * max(1.0, row[1])):
        raise GoldenError(f"The recipe of {what} gives {ours}, the file says {row}.")
