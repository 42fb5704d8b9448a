"""Sizes of the networks in the paper's appendix, as plain data."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ImageNetSizes:
    """Sizes of a network that turns a latent vector into an image.

    Attributes:
      hidden: Widths of the linear layers before the one to `width`.
      width: Channels of the transformer layers.
      num_heads: Attention heads; divides `width`.
      mlp_hidden: Hidden width inside a transformer layer.
      num_layers: Transformer layers.
      channels: One entry for each doubling of the resolution.
    """

    hidden: tuple[int, ...]
    width: int
    num_heads: int
    mlp_hidden: int
    channels: tuple[int, ...]
    num_layers: int = 2

    @property
    def upsampling(self) -> int:
        """Pixels on a side for each position of the transformer's grid."""
        return 2 ** len(self.channels)


@dataclasses.dataclass(frozen=True)
class ModelSizes:
    """Sizes of encoder and decoder; the defaults are those of CLEVR and SHOP.

    Attributes:
      features: Channels of the encoder's convolutions and of its features.
      num_convs: Convolutions of the encoder; the first one halves the resolution.
      slot_view: D_vw, viewpoint part of a slot.
      slot_attr: D_at, attribute part of a slot.
      key: D_key, keys and queries of the slot attention.
      update_hidden: Hidden width of the residual network after the GRU.
      latent_view: E_view.
      latent_bck: E_bck.
      latent_obj: E_obj.
      head_hidden: Hidden width of the posterior heads.
      order_hidden: Hidden widths of the network for order and position.
      background: Image network of the background.
      objects: Image network of the objects.
    """

    features: int = 64
    num_convs: int = 5
    slot_view: int = 8
    slot_attr: int = 128
    key: int = 64
    update_hidden: int = 128
    latent_view: int = 4
    latent_bck: int = 8
    latent_obj: int = 64
    head_hidden: int = 512
    order_hidden: tuple[int, ...] = (512, 512)
    background: ImageNetSizes = ImageNetSizes(
        hidden=(256, 256), width=64, num_heads=4, mlp_hidden=128, channels=(64, 32, 16)
    )
    objects: ImageNetSizes = ImageNetSizes(
        hidden=(1024, 1024),
        width=128,
        num_heads=8,
        mlp_hidden=256,
        channels=(128, 64, 32),
    )

    @property
    def slot(self) -> int:
        """D_vw + D_at, which is also D_val."""
        return self.slot_view + self.slot_attr


CLEVR = ModelSizes()
GSO = ModelSizes(
    features=256,
    slot_view=32,
    slot_attr=512,
    key=256,
    update_hidden=512,
    latent_view=16,
    latent_bck=32,
    latent_obj=256,
    background=dataclasses.replace(CLEVR.background, width=128, mlp_hidden=256),
    objects=dataclasses.replace(CLEVR.objects, width=256, mlp_hidden=512),
)
BY_DATASET = {"clevr": CLEVR, "shop": CLEVR, "gso": GSO, "shapenet": GSO}


def narrow(sizes: Any, factor: int) -> Any:
    """The same networks, each layer and latent as many times narrower (at least 2)."""
    kept = ("num_convs", "num_layers", "num_heads")

    def less(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return narrow(value, factor)
        if isinstance(value, tuple):
            return tuple(map(less, value))
        return max(2, value // factor)

    fields = {f.name: getattr(sizes, f.name) for f in dataclasses.fields(sizes)}
    return dataclasses.replace(
        sizes, **{k: less(v) for k, v in fields.items() if k not in kept}
    )


def from_dict(values: Mapping[str, Any]) -> ModelSizes:
    """Builds sizes from nested plain values, as a config or a file holds them."""
    values = dict(values)
    for name in ("background", "objects"):
        if name in values and not isinstance(values[name], ImageNetSizes):
            values[name] = ImageNetSizes(**_tuples(values[name]))
    return ModelSizes(**_tuples(values))


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def check_image_size(sizes: ModelSizes, height: int, width: int) -> None:
    """Stops early when an image cannot be decoded to its own size."""
    for name in ("background", "objects"):
        factor = getattr(sizes, name).upsampling
        if height % factor or width % factor or height % 2 or width % 2:
            raise ValueError(
                f"Images of {height}x{width} do not fit: the {name} network doubles a "
                f"grid {factor.bit_length() - 1} times, so both sides must be "
                f"multiples of {factor}. Resize the images or change its `channels`."
            )
