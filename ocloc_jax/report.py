"""What a run ends with: scores of the test split and a figure to look at."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ocloc_jax import data, figures, inference, logs, metrics, weights

NAMES = {
    "ari_a": "ARI-A",
    "ami_a": "AMI-A",
    "ari_o": "ARI-O",
    "ami_o": "AMI-O",
    "iou": "IoU",
    "f1": "F1",
    "oca": "OCA",
    "ooa": "OOA",
}


def write(
    path: pathlib.Path,
    scenes: data.Scenes,
    workdir: pathlib.Path,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Scores weights on scenes, and writes results.json and figures to `workdir`."""
    model, params = weights.load(path)
    found = inference.predictions(model, params, scenes, **options)
    scores = metrics.evaluate_scenes(_in_unit_range(scene) for scene in found)
    averages = {kind: dict(scores[kind]) for kind in ("pooled", "per_scene")}
    result = {"weights": str(path), "scenes": len(scenes), **options, **averages}
    (workdir / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    figures.save(workdir / "decomposition.png", _figure(model, params, scenes, options))
    _draw_curves(workdir)
    print(table(averages["pooled"]))
    return result


def table(scores: Mapping[str, float]) -> str:
    """Scores as a Markdown table."""
    cells = [f"{scores[name]:.3f}" for name in NAMES]
    lines = [list(NAMES.values()), ["---:"] * len(NAMES), cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _in_unit_range(scene: dict[str, Any]) -> dict[str, Any]:
    return {**scene, "image": scene["image"].astype(np.float32) / 255}


def _figure(
    model: Any, params: Any, scenes: data.Scenes, options: Mapping[str, Any]
) -> np.ndarray:
    """The decomposition of the first scene of the split."""
    views = list(range(options["num_views"]))
    arrays = scenes.decode(scenes[0], views, ("image",))
    images = data.to_model_range(jax.numpy.asarray(arrays["image"]))[None]

    def infer(params: Any) -> Any:
        key = jax.random.key(0)
        return inference.infer(model, params, images, key, options["num_slots"])

    found, scene = jax.tree.map(lambda x: x[0], jax.jit(infer)(params))
    return figures.decomposition(images[0], scene, found.presence)


def _draw_curves(workdir: pathlib.Path) -> None:
    for path in sorted(workdir.glob("*/metrics.jsonl")):
        rows = logs.read_json_lines(path)
        keys = sorted({key for row in rows for key in row} - {"step", "time"})
        figures.save(path.with_name("curves.png"), figures.curves(rows, keys))
