"""Viewpoints between two views: what the model imagines against what is there.

The truth is ray traced from cameras between those of two neighbouring views; the model
decodes viewpoint latents between theirs. It was never told that it should.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from ocloc_jax import inference
from ocloc_jax import scenes as ray_tracer
from ocloc_jax.evaluation import passes
from ocloc_jax.models.latents import Latents
from ocloc_jax.models.ocloc import Ocloc

SHARES = (0.25, 0.5, 0.75)
MOST_SCENES = 50
_BINS = (0, 30, 60, 90, 180)  # degrees between the two views


class Pairs(NamedTuple):
    """Neighbouring views of a scene, and the turn from the first to the second."""

    first: Int[np.ndarray, " p"]
    second: Int[np.ndarray, " p"]
    turn: Float[np.ndarray, " p"]


def measure(
    model: Ocloc, params: PyTree, split: passes.Split, done: passes.Pass
) -> dict[str, Any]:
    """Mean squared errors of decoded viewpoints, and of two ways that need no model.

    Returns:
      For each share of the way: `decoded`; `nearest_view`, a copy of the nearer of
      the two images; `cross_fade`, a blend of both. `by_angle` sorts the pairs by how
      far their views lie apart.
    """
    if "spec" not in split.scenes.metadata:
        return {"not_measured": "only scenes of `config.data.scenes` can be rendered"}
    if split.num_views < 2:
        return {"not_measured": "one view has no neighbour"}
    num_scenes = min(len(split.scenes), MOST_SCENES)
    with passes.progress(f"{split.name}, between views", num_scenes) as bar:
        rows = []
        for scene in range(num_scenes):
            rows.extend(_errors(model, params, split, done, scene))
            bar.update()
    table = np.array(rows)  # share, angle, then one error for each way
    names = ("decoded", "nearest_view", "cross_fade")
    return {
        "num_scenes": num_scenes,
        "num_pairs": len(table) // len(SHARES),
        "mean_angle_degrees": float(table[:, 1].mean()),
        "mse": _means(table, names),
        "by_share": [
            {"share": share, **_means(table[table[:, 0] == share], names)}
            for share in SHARES
        ],
        "by_angle": list(_by_angle(table, names)),
        "reconstruction_mse": done.averages["pooled"]["mse"],
    }


def _means(table: np.ndarray, names: tuple[str, ...]) -> dict[str, float]:
    return dict(zip(names, table[:, 2:].mean(axis=0).tolist(), strict=True))


def _by_angle(table: np.ndarray, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for low, high in zip(_BINS[:-1], _BINS[1:], strict=True):
        below = (table[:, 1] < high) | (high == _BINS[-1])
        chosen = table[(table[:, 1] >= low) & below]
        if len(chosen):
            count = {"num_pairs": len(chosen) // len(SHARES)}
            yield {"degrees": [low, high], **count, **_means(chosen, names)}


def _errors(
    model: Ocloc, params: PyTree, split: passes.Split, done: passes.Pass, scene: int
) -> Iterator[tuple[float, ...]]:
    """Share, angle and errors of every pair of neighbours in one scene."""
    arrays = split.read(scene, ("image", "camera"))
    images, cameras = arrays["image"] / np.float32(255), arrays["camera"]
    pairs = neighbours(cameras[:, 0])
    latents = {name: value[scene] for name, value in done.latents.items()}
    spec = ray_tracer.SceneSpec(**split.scenes.metadata["spec"])
    seed = split.scenes.metadata["seed"]
    for share in SHARES:
        between = cameras_between(cameras, pairs, share)
        true = ray_tracer.render_cameras(spec, seed, scene, between)["image"] / 255
        view = mix(latents["view"], pairs, share)
        decoded = _decode(model, params, latents, view, images.shape[1:3])
        nearer = pairs.first if share <= 0.5 else pairs.second
        guesses = (decoded, images[nearer], mix(images, pairs, share))
        errors = [np.square(x - true).mean(axis=(1, 2, 3)) for x in guesses]
        angles = np.degrees(np.abs(pairs.turn))
        for angle, *each in zip(angles, *errors, strict=True):
            yield (share, float(angle), *map(float, each))


def neighbours(azimuth: Float[np.ndarray, " v"]) -> Pairs:
    """Views next to each other around the scene, at most half a turn apart."""
    order = np.argsort(azimuth % (2 * np.pi), kind="stable")
    following = np.roll(order, -1)
    turn = (azimuth[following] - azimuth[order]) % (2 * np.pi)
    near: Bool[np.ndarray, " v"] = turn <= np.pi
    if len(order) == 2:  # one pair, not the same one there and back
        near &= np.arange(2) == np.argmax(near)
    return Pairs(order[near], following[near], turn[near])


def mix(
    values: Shaped[np.ndarray, "v *d"], pairs: Pairs, share: float
) -> Float[np.ndarray, "p *d"]:
    """Between two views: the first's value, then more and more the second's."""
    return (1 - share) * values[pairs.first] + share * values[pairs.second]


def cameras_between(
    cameras: Float[np.ndarray, "v 3"], pairs: Pairs, share: float
) -> Float[np.ndarray, "p 3"]:
    """Cameras on the way, the shorter way around the scene."""
    between = mix(cameras, pairs, share)
    between[:, 0] = cameras[pairs.first, 0] + share * pairs.turn
    return between


def _decode(
    model: Ocloc,
    params: PyTree,
    latents: passes.Arrays,
    view: Float[np.ndarray, "p d"],
    size: tuple[int, int],
) -> Float[np.ndarray, "p h w 3"]:
    """Images in [0, 1]; padded to one number of views, so that one program serves."""
    num_views = len(latents["view"])
    padded = np.resize(view, (num_views, view.shape[-1]))
    found = Latents(**{k: jnp.asarray(v) for k, v in latents.items()})
    found = found.replace(view=jnp.asarray(padded, jnp.float32))
    images = _reconstruction(model, params, found, size)
    return np.asarray(images)[: len(view)]


@functools.partial(jax.jit, static_argnames=("model", "size"))
def _reconstruction(
    model: Ocloc, params: PyTree, found: Latents, size: tuple[int, int]
) -> Float[Array, "m h w 3"]:
    layers = inference.decode(model, params, found, *size)
    return (inference.compose_layers(model, layers, found).recon + 1) / 2
