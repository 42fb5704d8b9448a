"""Checks of what callers hand to the metrics, with errors that say what to do."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_AXES = {
    "segment": "v h w",
    "mask": "v k+1 h w",
    "overlap": "v h w",
    "masks": "v n+1 h w",
    "shape": "v k h w",
    "presence": "k",
    "order": "v k",
    "image": "v h w c",
    "reconstruction": "v h w c",
}
_REQUIRED = ("segment", "mask")
_UNIT_RANGE = ("mask", "masks", "shape", "presence", "image", "reconstruction")


@dataclasses.dataclass(frozen=True)
class Scene:
    """Arrays of one scene whose shapes and ranges agree.

    Attributes:
      num_objects: Largest number of objects, also the background's index.
      segment: Visible object of each pixel.
      is_object: Pixels for ARI-O and AMI-O.
      mask: Predicted partition, background last.
      masks: True complete shapes, background last.
      shape: Predicted complete shapes.
      presence: Probability that a slot is used.
      order: Nearness of the slots.
      image: True views in [0, 1].
      reconstruction: Predicted views in [0, 1].
    """

    num_objects: int
    segment: np.ndarray
    is_object: np.ndarray
    mask: np.ndarray
    masks: np.ndarray | None
    shape: np.ndarray | None
    presence: np.ndarray | None
    order: np.ndarray | None
    image: np.ndarray | None
    reconstruction: np.ndarray | None


def split_scenes(arrays: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Walks along the leading axis of all arrays together."""
    given = {key: value for key, value in arrays.items() if value is not None}
    num_objects = given.pop("num_objects", None)
    _check_keys(given)
    lengths = {key: len(value) for key, value in given.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays hold different numbers of scenes: {lengths}.")
    for index in range(lengths["segment"]):
        scene = {key: value[index] for key, value in given.items()}
        yield {**scene, "num_objects": num_objects}


def checked_scene(scene: Mapping[str, Any]) -> Scene:
    """Checks one scene and brings it to the types that the counting expects."""
    given = {key: value for key, value in scene.items() if value is not None}
    num_objects = given.pop("num_objects", None)
    _check_keys(given)
    arrays = {key: _as_map(key, value) for key, value in given.items()}
    sizes = _axis_sizes(arrays)
    num_objects = _num_objects(num_objects, sizes)
    if sizes["k"] < num_objects:
        raise ValueError(
            f"`mask` has {sizes['k']} object slots for up to {num_objects} objects: "
            f"predict with at least {num_objects} slots."
        )
    segment = _checked_segment(arrays.pop("segment"), num_objects)
    overlap, masks = arrays.pop("overlap", None), arrays.pop("masks", None)
    optional = {key: arrays.get(key) for key in ("shape", "presence", "order")}
    for key in ("image", "reconstruction"):
        optional[key] = None if key not in arrays else _unit(arrays[key])
    if optional["presence"] is not None:
        optional["presence"] = _unit(optional["presence"])
    return Scene(
        num_objects=num_objects,
        segment=segment,
        is_object=segment < num_objects if overlap is None else overlap >= 1,
        mask=arrays["mask"],
        masks=masks,
        **optional,
    )


def checked_images(scene: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Image and reconstruction of a scene without labels, in [0, 1]."""
    names = ("image", "reconstruction")
    if missing := [name for name in names if scene.get(name) is None]:
        raise ValueError(f"The arrays {missing} are missing; without `segment` both.")
    arrays = {name: _as_map(name, scene[name]) for name in names}
    _axis_sizes(arrays)
    return _unit(arrays["image"]), _unit(arrays["reconstruction"])


def _check_keys(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(_AXES))
    if unknown:
        raise ValueError(f"Unknown arrays {unknown}; the known ones are {list(_AXES)}.")
    missing = [key for key in _REQUIRED if key not in given]
    if missing:
        raise ValueError(f"The arrays {missing} are missing; scores need both.")


def _as_map(key: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.ndim != len(_AXES[key].split()):
        raise ValueError(
            f"`{key}` of a scene has shape {array.shape}, expected [{_AXES[key]}]."
        )
    if key not in _UNIT_RANGE:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint8:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(
            f"`{key}` has dtype {array.dtype}: give uint8 (0..255) or float (0..1)."
        )
    # Reconstructions may leave the range a little, nothing may be nan.
    slack = np.inf if key == "reconstruction" else 1e-4
    if array.size and not (array.min() >= -slack and array.max() <= 1 + slack):
        raise ValueError(
            f"`{key}` holds values from {array.min()} to {array.max()}: a float array "
            "must lie in [0, 1]; 0..255 is for uint8."
        )
    return array.astype(np.float32, copy=False)


def _axis_sizes(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for key, array in arrays.items():
        for axis, size in zip(_AXES[key].split(), array.shape, strict=True):
            name, _, extra = axis.partition("+")
            size -= int(extra or 0)
            if sizes.setdefault(name, size) != size:
                raise ValueError(
                    f"`{key}` {array.shape} and `{origin[name]}` "
                    f"{arrays[origin[name]].shape} disagree: axis {name} is {size} "
                    f"and {sizes[name]}; `{key}` is [{_AXES[key]}] and "
                    f"`{origin[name]}` is [{_AXES[origin[name]]}]."
                )
            origin.setdefault(name, key)
    return sizes


def _num_objects(given: int | None, sizes: Mapping[str, int]) -> int:
    if given is None and "n" not in sizes:
        raise ValueError("Without `masks`, give `num_objects`: the background's index.")
    if given is not None and sizes.get("n", given) != given:
        raise ValueError(
            f"`num_objects` is {given}, but `masks` has {sizes['n']} objects."
        )
    return sizes["n"] if given is None else int(given)


def _checked_segment(segment: np.ndarray, num_objects: int) -> np.ndarray:
    largest, smallest = (segment.max(), segment.min()) if segment.size else (0, 0)
    if largest > num_objects or smallest < 0:
        raise ValueError(
            f"`segment` holds indices from {smallest} to {largest}, but with up to "
            f"{num_objects} objects the background is {num_objects}."
        )
    return segment.astype(np.uint8, copy=False)


def _unit(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) / 255 if array.dtype == np.uint8 else array
