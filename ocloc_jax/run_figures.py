"""Pictures that a training run leaves: its curves, and one scene taken apart."""

import pathlib
from typing import Any

import jax

from ocloc_jax import data, figures, inference, logs, weights

_MOST_VIEWS = 4


def draw(workdir: pathlib.Path, scenes: data.Scenes, num_slots: int) -> None:
    """Draws the curves of all stages, and what the best weights see in a scene."""
    for path in sorted(workdir.glob("*/metrics.jsonl")):
        rows = logs.read_json_lines(path)
        keys = sorted({key for row in rows for key in row} - {"step", "time"})
        figures.save(path.with_name("curves.png"), figures.curves(rows, keys))
    model, params = weights.load(weights.find(workdir))
    picture = decomposition(model, params, scenes, num_slots)
    figures.save(workdir / "decomposition.png", picture)


def decomposition(
    model: Any, params: Any, scenes: data.Scenes, num_slots: int
) -> figures.grid.Picture:
    """The first scene of a split, from its first few views."""
    views = list(range(min(_MOST_VIEWS, int(scenes.view_counts[0]))))
    arrays = scenes.decode(scenes[0], views, ("image",))
    images = data.to_model_range(jax.numpy.asarray(arrays["image"]))

    def infer(params: Any) -> Any:
        return inference.infer(model, params, images, jax.random.key(0), num_slots)

    found, scene = jax.jit(infer)(params)
    return figures.decomposition(images, scene, found.presence)
