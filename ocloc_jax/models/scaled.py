"""Initial parameters that let the image through, for short training.

Ours, not the paper's. With Glorot weights and SiLU, what differs between images
shrinks in every layer, while slot noise and position codes do not: at the start a
decoded object does not depend on the image to four digits, and the first thousands
of steps go into changing that. Here every layer starts with a scale that keeps the
differences alive, attention starts sharp and local, and latents start almost without
noise. The function that is computed is the same; only where training starts differs.
"""

import math

import jax.numpy as jnp
from flax import traverse_util
from jaxtyping import Array, Float, PyTree

from ocloc_jax.models.sizes import ModelSizes

Path = tuple[str, ...]

HIDDEN = 1.7  # gain of linear layers before a SiLU
FEATURE_CONV = 2.0
DECODER_CONV = 1.5
QUERY = 3.0  # slots compete for pixels from the first step
POSITION = 2.0  # and where a pixel is counts as much as what it shows
OFF_CENTRE = 0.1  # kernels of features look at their own pixel first
SLOT_LOG_SCALE = -1.0  # less noise in the initial slots of objects
OBJECT_LOG_VAR = -4.0  # and in the latents of objects


def scale(params: PyTree[Array], sizes: ModelSizes) -> PyTree[Array]:
    """Scales the parameters that `initial.init` has drawn."""
    flat = traverse_util.flatten_dict(params)
    last = _last_layers(flat)
    new = {path: _gain(path, last) * value for path, value in flat.items()}
    for path, value in new.items():
        if path[:2] == ("encoder", "feature_net") and value.ndim == 4:
            new[path] = _look_at_centre(value)
    new["encoder", "attr_log_scale"] += SLOT_LOG_SCALE
    head = (*max(p[:-1] for p in last if p[:2] == ("encoder", "obj_head")), "bias")
    log_var = slice(sizes.latent_obj, 2 * sizes.latent_obj)
    new[head] = new[head].at[log_var].add(OBJECT_LOG_VAR)
    return traverse_util.unflatten_dict(new)


def _last_layers(flat: dict[Path, Array]) -> set[Path]:
    """Kernels whose outputs meet no SiLU: the last one of each network."""
    networks: dict[Path, list[Path]] = {}
    for path in flat:
        if path[-1] == "kernel" and path[-2].startswith(("layer_", "conv_")):
            networks.setdefault((*path[:-2], path[-2].split("_")[0]), []).append(path)
    plain = {n: p for n, p in networks.items() if n[-2:] != ("feature_net", "conv")}
    # The linear layers of an image network all have a SiLU; convolutions follow.
    image = {n for n in plain if n[-2:] == ("mlp", "layer") and n[0] == "decoder"}
    return {max(p, key=_index) for n, p in plain.items() if n not in image}


def _index(path: Path) -> int:
    suffix = path[-2].rpartition("_")[2]
    return int(suffix) if suffix.isdigit() else -1  # conv_in comes first


def _gain(path: Path, last: set[Path]) -> float:
    layer, kind = path[-2:] if len(path) > 1 else ("", path[-1])
    if kind != "kernel" or path in last:
        return 1.0
    if layer.startswith("layer_"):
        return HIDDEN
    if layer.startswith(("conv_", "up_")):
        return FEATURE_CONV if "feature_net" in path else DECODER_CONV
    if layer == "position" and path[0] == "encoder":
        return POSITION
    return QUERY if layer == "query" else 1.0


def _look_at_centre(kernel: Float[Array, "h w i o"]) -> Float[Array, "h w i o"]:
    """Lowers all weights but those of the middle pixel; their size stays the same."""
    height, width = kernel.shape[:2]
    if height % 2 == 0:  # the one that halves the resolution has no middle
        return kernel
    weight = jnp.full((height, width, 1, 1), OFF_CENTRE)
    weight = weight.at[height // 2, width // 2].set(1.0)
    return kernel * weight * math.sqrt(height * width) / jnp.linalg.norm(weight)
