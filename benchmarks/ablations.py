"""What the demo loses without its parts: iterations, views, shadows, stages.

python -m benchmarks.ablations --weights=weights/demo.safetensors \
    --runs "the demo=runs/demo" "no shadows=runs/no_shadow" --figure=ablations.png

Iterations (T) and views change at inference only, on Test 1 of `configs/demo.py`, the
weights staying the same. What changes training needs a run of its own, such as
`launch.py --config=configs/demo.py:no_shadow`; `--runs` reads the results it left.
Prints the tables as Markdown.
"""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib

from configs import demo
from ocloc_jax import data, evaluate, experiment
from ocloc_jax import weights as weights_lib
from ocloc_jax.evaluation import constancy, passes
from ocloc_jax.evaluation.tables import HEADS
from ocloc_jax.models.ocloc import Ocloc

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

ITERATIONS = (1, 2, 3, 4, 5)
NUM_VIEWS = 8
DRAWN = ("ari_a", "ari_o", "iou", "oca")
COLOURS = ("#1f5fa8", "#d9822b", "#3b7d3b", "#7b4fa3", "#8c564b")
Scores = Mapping[str, float]


def main() -> None:
    """Measures what is asked for, prints tables, draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default="weights/demo.safetensors")
    parser.add_argument("--runs", nargs="*", default=[], metavar="NAME=DIRECTORY")
    parser.add_argument("--figure", help="PNG to write")
    args = parser.parse_args()
    runs = dict(run.split("=", 1) for run in args.runs)
    trained = {name: read_scores(pathlib.Path(path)) for name, path in runs.items()}
    model, params = weights_lib.load(args.weights)
    by_iterations = scores_by_iterations(model, params)
    by_views = scores_by_views(model, params)
    for name, rows in (
        ("trained otherwise", trained),
        ("T", by_iterations),
        ("views", by_views),
    ):
        if not rows:
            continue
        print(f"\n{markdown(name, rows)}", flush=True)
    if args.figure:
        draw(trained, by_iterations, by_views, args.figure)


def read_scores(workdir: pathlib.Path, split: str = "test") -> Scores:
    """Pooled scores of a finished run, on Test 1 unless another split is named."""
    path = workdir / "eval" / "results.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing; let the run finish, or `--mode=eval` it.")
    return json.loads(path.read_text())["splits"][split]["mean"]["pooled"]


def scores_by_iterations(model: Ocloc, params: dict) -> dict[int, Scores]:
    """Test 1 after so many refinements of the slots; training had three."""
    split = _test_split(num_views=4)
    return {
        count: evaluate.evaluate_split(
            model.clone(num_iterations=count), params, split, num_passes=5
        )[0]["mean"]["pooled"]
        for count in ITERATIONS
    }


def scores_by_views(model: Ocloc, params: dict) -> dict[int, Scores]:
    """All views jointly, from 1 to 8 of them; training had four."""
    found = constancy.accuracy_by_views(model, params, _test_split(NUM_VIEWS))
    curves = found["all_views"]
    return {
        count: {name: curves[name][i] for name in HEADS}
        for i, count in enumerate(found["num_views"])
    }


def _test_split(num_views: int) -> passes.Split:
    config = demo.get_config()
    config.data.scenes.num_views = num_views  # the first four stay what they are
    scenes: data.Scenes = experiment.load_scenes(config, "test")
    slots = config.eval.splits.test.num_slots
    return passes.Split("test", scenes, num_views, slots, config.eval.batch_size)


def markdown(name: str, rows: Mapping[str | int, Scores]) -> str:
    """A table with a line for each row."""
    lines = [[name, *HEADS.values()], ["---", *["---:"] * len(HEADS)]]
    lines += [
        [str(row), *(f"{scores[head]:.3f}" for head in HEADS)]
        for row, scores in rows.items()
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(
    trained: Mapping[str, Scores],
    by_iterations: Mapping[int, Scores],
    by_views: Mapping[int, Scores],
    path: str,
) -> None:
    """Bars for runs, lines for iterations and views."""
    widths = (2, 1, 1) if trained else (1, 1)
    figure, axes = pyplot.subplots(
        1,
        len(widths),
        figsize=(3.25 * sum(widths), 3.6),
        layout="constrained",
        gridspec_kw={"width_ratios": widths},
    )
    if trained:
        _draw_bars(axes[0], trained)
    _draw_lines(axes[-2], by_iterations, "iterations T at inference (trained: 3)")
    _draw_lines(axes[-1], by_views, "views at inference (trained: 4)")
    axes[-2].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set_ylim(0, 1)
    figure.savefig(path, dpi=120)


def _draw_bars(axis, trained: Mapping[str, Scores]) -> None:
    width = 0.8 / max(1, len(trained))
    for i, (name, scores) in enumerate(trained.items()):
        places = [j + (i - (len(trained) - 1) / 2) * width for j in range(len(HEADS))]
        heights = [scores[head] for head in HEADS]
        axis.bar(places, heights, width, label=name, color=COLOURS[i % len(COLOURS)])
    axis.set_xticks(range(len(HEADS)), HEADS.values(), fontsize=8)
    above = dict(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(trained))
    axis.legend(frameon=False, fontsize=8, **above)


def _draw_lines(axis, rows: Mapping[int, Scores], name: str) -> None:
    for head, colour in zip(DRAWN, COLOURS, strict=False):
        values: Sequence[float] = [scores[head] for scores in rows.values()]
        axis.plot(list(rows), values, "o-", ms=4, color=colour, label=HEADS[head])
    axis.set_xlabel(name)
    axis.set_xticks(list(rows))


if __name__ == "__main__":
    main()
