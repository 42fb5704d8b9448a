"""How one scene is stored: every view of every key is a byte string of its own.

The builders write with `features` and `encode_scene`; the input pipeline reads
with `parse` and `decode_views`, which touch only the views that are asked for.
The stock `tfds` reader decodes the same records, so this module is a shortcut,
not a private format. TensorFlow is never imported.
"""

import dataclasses
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

LAYOUT = 1  # Raised whenever the bytes of a record change their meaning.
UNUSED_ORDER = -1e9  # Order of an object slot that holds nothing.


@dataclasses.dataclass(frozen=True)
class Key:
    """One entry of a record.

    Attributes:
      axes: Axes of one view; `h` and `w` come from the record, `n` and `n+1`
        from the number of bytes, a digit stands for itself.
      dtype: Type of the array.
      encoding: `zlib` (compressed) or `bytes` (as they lie in memory).
      doc: What the entry means.
    """

    axes: str
    dtype: str
    encoding: str
    doc: str

    def shape(self, height: int | None, width: int | None) -> tuple[int | None, ...]:
        """Shape of one view; `None` for the axis that varies between splits."""
        named = {"h": height, "w": width, "n": None, "n+1": None}
        return tuple(
            named[axis] if axis in named else int(axis) for axis in self.axes.split()
        )


KEYS: Mapping[str, Key] = {
    "image": Key("h w 3", "uint8", "zlib", "Views of the scene, RGB."),
    "segment": Key(
        "h w",
        "uint8",
        "zlib",
        "Index from 0 of the object visible at the pixel; the background is the "
        "maximum number of objects of the split.",
    ),
    "overlap": Key(
        "h w",
        "uint8",
        "zlib",
        "Number of objects whose complete shape covers the pixel.",
    ),
    "masks": Key(
        "n+1 h w",
        "uint8",
        "zlib",
        "Complete (amodal) shapes, 0 to 255; unused objects 0; the background is "
        "last and 255 everywhere.",
    ),
    "order": Key(
        "n",
        "float32",
        "bytes",
        "Negative distance of each object to the camera: larger is nearer; "
        "-1e9 for unused objects.",
    ),
    "camera": Key(
        "3",
        "float32",
        "bytes",
        "Azimuth and elevation in radians, and distance of the camera.",
    ),
}


def features(height: int, width: int) -> Any:
    """Returns the `tfds.features.FeaturesDict` that every builder uses."""
    from tensorflow_datasets import features as tfds_features

    def views(key: Key) -> Any:
        shape, dtype = key.shape(height, width), np.dtype(key.dtype)
        tensor = tfds_features.Tensor(shape=shape, dtype=dtype, encoding=key.encoding)
        return tfds_features.Sequence(tensor, doc=key.doc)

    return tfds_features.FeaturesDict(
        {
            "name": tfds_features.Text(doc="Where the scene came from."),
            "size": tfds_features.Tensor(
                shape=(2,), dtype=np.int32, doc="Height and width of the views."
            ),
            **{name: views(key) for name, key in KEYS.items()},
        }
    )


def encode_scene(scene: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Turns arrays `[v, ...]` into an example for `features`.

    Args:
      scene: `image`, and any of the other `KEYS`; the rest is stored empty.
      name: Where the scene came from.

    Returns:
      A dict that `features(...).serialize_example` and TFDS writers accept; pass
      what the former returns through `canonical`.

    Raises:
      ValueError: A key is unknown or missing, or an array has the wrong type,
        rank, size or number of views.
    """
    arrays = {key: np.asarray(value) for key, value in scene.items()}
    check_scene(arrays)
    example = {key: list(arrays.get(key, ())) for key in KEYS}
    size = np.asarray(arrays["image"].shape[1:3], np.int32)
    return {"name": name, "size": size, **example}


def canonical(raw: bytes) -> bytes:
    """Returns a serialised example with its entries in a fixed order.

    Protobuf orders them by a hash that differs from process to process; without this
    the same scene would have other bytes in every run.
    """
    from tensorflow_datasets.proto import tf_example_pb2

    example = tf_example_pb2.Example.FromString(raw)
    return example.SerializeToString(deterministic=True)


def check_scene(scene: Mapping[str, np.ndarray]) -> None:
    """Raises `ValueError` with a one-line cause if the arrays do not fit."""
    if "image" not in scene:
        raise ValueError(f"no 'image' among the keys {sorted(scene)}")
    image = scene["image"]
    if image.ndim != 4 or len(image) == 0:
        raise ValueError(f"'image' is {image.shape}; expected [v, h, w, 3] with v > 0")
    for key, value in scene.items():
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}; known are {list(KEYS)}")
        if value.dtype != KEYS[key].dtype:
            raise ValueError(f"{key!r} is {value.dtype}; expected {KEYS[key].dtype}")
        expected = (len(image), *KEYS[key].shape(*image.shape[1:3]))
        if not _fits(value.shape, expected):
            axes = f"[{len(image)} views, {KEYS[key].axes.replace(' ', ', ')}]"
            raise ValueError(f"{key!r} is {value.shape}; expected {axes}")


def _fits(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    return len(shape) == len(expected) and all(
        want in (None, have) for have, want in zip(shape, expected, strict=True)
    )


@dataclasses.dataclass(frozen=True)
class Record:
    """A record whose views are still encoded.

    Attributes:
      name: Where the scene came from.
      size: Height and width of the views.
      views: For each key the encoded views; empty if the scene lacks the key.
    """

    name: str
    size: tuple[int, int]
    views: Mapping[str, Sequence[bytes]]

    @property
    def num_views(self) -> int:
        """Number of views of this scene; it may differ between scenes."""
        return len(self.views["image"])

    def has(self, key: str) -> bool:
        """Whether the scene was stored with this key."""
        return len(self.views[key]) > 0


def parse(raw: bytes) -> Record:
    """Splits a stored example into encoded views without decoding any."""
    from tensorflow_datasets.proto import tf_example_pb2

    stored = tf_example_pb2.Example.FromString(raw).features.feature
    height, width = stored["size"].int64_list.value
    views = {key: stored[key].bytes_list.value for key in KEYS}
    return Record(stored["name"].bytes_list.value[0].decode(), (height, width), views)


def decode_views(
    record: Record, key: str, views: Iterable[int] | None = None
) -> Shaped[np.ndarray, "v ..."]:
    """Decodes one key of the chosen views (all of them by default), in that order."""
    encoded, spec = record.views[key], KEYS[key]
    if not encoded:
        stored = [name for name in KEYS if record.has(name)]
        raise KeyError(f"scene {record.name!r} has no {key!r}; it has {stored}")
    per_view = _view_shape(encoded[0], spec, record.size)
    chosen = range(len(encoded)) if views is None else list(views)
    decoded = np.empty((len(chosen), *per_view), spec.dtype)
    for row, view in enumerate(chosen):
        payload = encoded[view]
        if spec.encoding == "zlib":  # The size in advance saves a copy per view.
            payload = zlib.decompress(payload, bufsize=decoded[row].nbytes)
        decoded[row] = np.frombuffer(payload, spec.dtype).reshape(per_view)
    return decoded


def _view_shape(payload: bytes, key: Key, size: tuple[int, int]) -> tuple[int, ...]:
    """Shape of one view, the varying axis found from the length of a payload."""
    shape = key.shape(*size)
    if None not in shape:
        return shape
    length = len(zlib.decompress(payload) if key.encoding == "zlib" else payload)
    known = math.prod(n for n in shape if n is not None)
    varying = length // (known * np.dtype(key.dtype).itemsize)
    return tuple(varying if n is None else n for n in shape)
