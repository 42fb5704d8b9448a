"""What an evaluation leaves: results as JSON, tables, a figure."""

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import ml_collections

from ocloc_jax import figures
from ocloc_jax.evaluation import tables

# Results that agree in these were made by the same computation.
_IDENTITY = ("weights", "config_sha256", "commit", "versions")


def write(
    directory: pathlib.Path,
    results: Mapping[str, Any],
    config: ml_collections.ConfigDict,
) -> dict[str, Any]:
    """Writes all files and prints the table; other results there are set aside.

    Returns:
      The results as they are stored.
    """
    results = _plain(results)
    _make_room(directory, results)
    table = tables.markdown(results)
    texts = {
        "config.json": config.to_json(indent=2, sort_keys=True) + "\n",
        "table.md": table,
        "table.csv": tables.comma_separated(results),
        "table.tex": tables.latex(results),
        "results.json": json.dumps(results, indent=2, allow_nan=False) + "\n",
    }
    directory.mkdir(parents=True, exist_ok=True)
    views = results.get("constancy", {}).get("views", {})
    if "num_views" in views:
        figures.save(directory / "views.png", views_figure(views))
    for name, text in texts.items():  # results.json last: where it is, all is
        partial = directory / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, directory / name)
    print(f"\n{table}\nwritten to {directory}")
    return results


def views_figure(views: Mapping[str, Any]) -> figures.grid.Picture:
    """All scores against the number of views."""
    lines = {
        "all views jointly": views["all_views"],
        "first view alone": views["first_view"],
    }
    heads = tables.HEADS | {"psnr": "PSNR (dB)"}
    panels = {
        head: {line: scores[name] for line, scores in lines.items() if name in scores}
        for name, head in heads.items()
    }
    shares = tuple(tables.HEADS.values())
    return figures.lines(views["num_views"], panels, "number of views", shares)


def _make_room(directory: pathlib.Path, results: Mapping[str, Any]) -> None:
    """Renames results of another computation, so that nothing is lost."""
    path = directory / "results.json"
    if not path.exists():
        return
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:  # no results of ours, but not ours to lose either
        old = {}
    if any(old.get(key) != results[key] for key in _IDENTITY):
        number = 1
        while (aside := directory.with_name(f"{directory.name}-{number}")).exists():
            number += 1
        directory.rename(aside)
        print(f"earlier results of other weights or settings are now in {aside}")


def _plain(value: Any) -> Any:
    """As JSON knows it: what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
