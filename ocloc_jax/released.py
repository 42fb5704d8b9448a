"""Names and layouts of the released program's weights, in both directions.

Each entry pairs a tensor of the released state dict with an array of our parameters:
linear weights (out, in) are transposed, convolutions (out, in, k, k) become
(k, k, in, out), transposed ones (in, out, k, k) become (k, k, in, out), of which those
of stride 1 are ordinary convolutions with the kernel turned around.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from ocloc_jax.models.sizes import ModelSizes

Path = tuple[str, ...]
_Transform = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How an array is stored there (`to_released`) and here (`from_released`)."""

    from_released: _Transform
    to_released: _Transform


_SAME = Layout(lambda x: x, lambda x: x)
_LINEAR = Layout(np.transpose, np.transpose)
_CONV = Layout(lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1))
_UP = Layout(lambda x: x.transpose(2, 3, 0, 1), lambda x: x.transpose(2, 3, 0, 1))
_TURNED = Layout(
    lambda x: x.transpose(2, 3, 0, 1)[::-1, ::-1],
    lambda x: x[::-1, ::-1].transpose(2, 3, 0, 1),
)
_VECTOR = Layout(lambda x: x.reshape(-1), lambda x: x.reshape(1, 1, -1))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor: its released name, our path, and its index in a stack of layers."""

    name: str
    path: Path
    layout: Layout
    layer: int | None = None


def entries(sizes: ModelSizes) -> list[Entry]:
    """All tensors of a model of these sizes."""
    return [*_encoder(sizes), *_decoder(sizes)]


def from_released(state: Mapping[str, np.ndarray], sizes: ModelSizes) -> Any:
    """Our parameter tree from a complete released state dict."""
    flat: dict[Path, Any] = {}
    for entry in entries(sizes):
        value = entry.layout.from_released(np.asarray(state[entry.name]))
        if entry.layer is None:
            flat[entry.path] = value
        else:
            flat.setdefault(entry.path, []).append(value)
    flat = {k: np.stack(v) if isinstance(v, list) else v for k, v in flat.items()}
    return traverse_util.unflatten_dict(
        {k: np.ascontiguousarray(v) for k, v in flat.items()}
    )


def to_released(params: Any, sizes: ModelSizes) -> dict[str, np.ndarray]:
    """A released state dict from our parameter tree (or from gradients)."""
    flat = traverse_util.flatten_dict(params)
    state = {}
    for entry in entries(sizes):
        value = np.asarray(flat[entry.path])
        value = value if entry.layer is None else value[entry.layer]
        state[entry.name] = np.ascontiguousarray(entry.layout.to_released(value))
    return state


def _affine(
    name: str, path: Path, layout: Layout = _LINEAR, layer: int | None = None
) -> Iterator[Entry]:
    yield Entry(f"{name}.weight", (*path, "kernel"), layout, layer)
    yield Entry(f"{name}.bias", (*path, "bias"), _SAME, layer)


def _norm(name: str, path: Path, layer: int | None = None) -> Iterator[Entry]:
    yield Entry(f"{name}.weight", (*path, "scale"), _SAME, layer)
    yield Entry(f"{name}.bias", (*path, "bias"), _SAME, layer)


def _mlp(name: str, path: Path, num_layers: int) -> Iterator[Entry]:
    for i in range(num_layers):
        yield from _affine(f"{name}.{i}.0", (*path, f"layer_{i}"))


def _encoder(sizes: ModelSizes) -> Iterator[Entry]:
    enc, feat, slot = ("encoder",), "enc.net_feat", "enc.net_slot"
    features = (*enc, "feature_net")
    for i in range(sizes.num_convs):
        yield from _affine(f"{feat}.2.{i}.0", (*features, f"conv_{i}"), _CONV)
    yield from _affine(f"{feat}.3.net", (*features, "position"))
    yield from _norm(f"{feat}.5", (*features, "norm"))
    yield from _mlp(f"{feat}.6", (*features, "mlp"), 2)
    yield from _norm(f"{slot}.net_key_val.0", (*enc, "norm_features"))
    key_value = (*enc, "key_value", "kernel")
    yield Entry(f"{slot}.net_key_val.1.0.weight", key_value, _LINEAR)
    for part in ("view", "attr"):
        yield Entry(f"{slot}.{part}_loc", (*enc, f"{part}_loc"), _VECTOR)
        yield Entry(f"{slot}.{part}_log_scl", (*enc, f"{part}_log_scale"), _VECTOR)
    yield from _refinement(slot, (*enc, "refinement"))
    yield from _mlp("enc.net_view", (*enc, "view_head"), 3)
    yield from _mlp("enc.net_obj", (*enc, "obj_head"), 3)
    yield from _mlp("enc.net_bck_in", (*enc, "bck_slots"), 2)
    yield from _mlp("enc.net_bck_out", (*enc, "bck_head"), 3)


def _refinement(name: str, path: Path) -> Iterator[Entry]:
    yield from _norm(f"{name}.net_qry.0", (*path, "norm_query"))
    yield Entry(f"{name}.net_qry.1.0.weight", (*path, "query", "kernel"), _LINEAR)
    for ours, theirs in (("input", "ih"), ("state", "hh")):
        gru, gate = f"{name}.net_upd.net", (*path, "gru", ours)
        yield Entry(f"{gru}.weight_{theirs}", (*gate, "kernel"), _LINEAR)
        yield Entry(f"{gru}.bias_{theirs}", (*gate, "bias"), _SAME)
    yield from _norm(f"{name}.net_res.0", (*path, "norm_update"))
    yield from _mlp(f"{name}.net_res.1", (*path, "mlp"), 2)


def _decoder(sizes: ModelSizes) -> Iterator[Entry]:
    dec = ("decoder",)
    yield from _image_net("dec.net_bck", (*dec, "background_net"), sizes.background)
    yield from _image_net("dec.net_obj_img", (*dec, "object_net"), sizes.objects)
    yield from _mlp("dec.net_obj_misc", (*dec, "order_net"), 3)


def _image_net(name: str, path: Path, sizes: Any) -> Iterator[Entry]:
    yield from _mlp(f"{name}.0", (*path, "mlp"), len(sizes.hidden) + 1)
    yield from _affine(f"{name}.2.net", (*path, "position"))
    for i in range(sizes.num_layers):
        stack = (*path, "transformer")
        yield from _transformer_layer(f"{name}.5.layers.{i}", stack, i)
    yield from _affine(f"{name}.8.0", (*path, "conv_in"), _TURNED)
    for i in range(len(sizes.channels)):
        yield from _affine(f"{name}.9.{2 * i}.0", (*path, f"up_{i}"), _UP)
        yield from _affine(f"{name}.9.{2 * i + 1}.0", (*path, f"conv_{i}"), _TURNED)


def _transformer_layer(name: str, path: Path, layer: int) -> Iterator[Entry]:
    attention, path_in = f"{name}.self_attn", (*path, "attention_in")
    yield Entry(f"{attention}.in_proj_weight", (*path_in, "kernel"), _LINEAR, layer)
    yield Entry(f"{attention}.in_proj_bias", (*path_in, "bias"), _SAME, layer)
    path_out = (*path, "attention_out")
    yield from _affine(f"{attention}.out_proj", path_out, layer=layer)
    yield from _affine(f"{name}.linear1", (*path, "mlp_in"), layer=layer)
    yield from _affine(f"{name}.linear2", (*path, "mlp_out"), layer=layer)
    yield from _norm(f"{name}.norm1", (*path, "norm_attention"), layer)
    yield from _norm(f"{name}.norm2", (*path, "norm_mlp"), layer)
