"""Results beside the published ones, as Markdown, CSV and LaTeX."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ocloc_jax import metrics
from ocloc_jax.metrics import published
from ocloc_jax.metrics.published import Score

TITLES = {"test": "Test 1", "test_general": "Test 2"}
HEADS = {
    "ari_a": "ARI-A",
    "ami_a": "AMI-A",
    "ari_o": "ARI-O",
    "ami_o": "AMI-O",
    "iou": "IoU",
    "f1": "F1",
    "oca": "OCA",
    "ooa": "OOA",
}
IMAGE_HEADS = {"mse": "MSE", "psnr": "PSNR"}
KINDS = {
    "pooled": "as the published tables: ARI, AMI and OCA are means over scenes, IoU "
    "and F1 over all objects of all scenes, OOA is one ratio of sums",
    "per_scene": "as the formulas of the paper: every score is computed for each scene "
    "alone, then averaged over the scenes that have it",
}
_OURS = "ocloc_jax"


class Row(NamedTuple):
    """One line of a table; a score that there is not is None."""

    dataset: str
    method: str
    kind: str
    scores: Mapping[str, Score | None]


def published_for(dataset: str | None) -> tuple[str, bool]:
    """The dataset whose published rows to show, and whether it is the same one."""
    found = re.match(r"multiview_([a-z]+)/(\w+)", dataset or "")
    names = {name.lower(): name for name in published.DATASETS}
    if found and found[1] in names:
        return names[found[1]], found[2] == "released"
    return "CLEVR", False


def rows(split: str, result: Mapping[str, Any]) -> Iterator[Row]:
    """Published rows, if there are any for the split, then ours of both kinds."""
    name = result["dataset"].get("dataset")
    theirs, _ = published_for(name)
    if split in published.SPLITS:
        for method, scores in published.table(theirs, split).items():
            yield Row(theirs, method, "pooled", scores)
    for kind in KINDS:
        mean, sd = result["mean"][kind], result["sd"][kind]
        scores = {
            n: None if mean[n] is None else Score(mean[n], sd[n])
            for n in (*HEADS, *IMAGE_HEADS)
        }
        yield Row(name or "unnamed", _OURS, kind, scores)


def markdown(results: Mapping[str, Any]) -> str:
    """The tables of all splits, and what must be known to read them."""
    parts = [
        "# Evaluation",
        f"Weights `{results['weights']['path']}`, SHA-256 "
        f"`{results['weights']['sha256'][:16]}...`, T = {results['num_iterations']} "
        "refinements of the slots. Mean ± standard deviation over "
        f"inference passes (seeds {results['seeds']} of the random initial slots).",
    ]
    for split, result in results["splits"].items():
        parts += [f"## {title(split, result)}", _markdown_table(split, result)]
        parts += list(_remarks(split, result))
    parts += [f"*{name.replace('_', ' ')}*: {text}." for name, text in KINDS.items()]
    if "constancy" in results:
        parts += ["## Object constancy", _constancy_table(results["constancy"])]
    return "\n\n".join(parts) + "\n"


def title(split: str, result: Mapping[str, Any]) -> str:
    """What a table is about."""
    name = f"{TITLES[split]} (`{split}`)" if split in TITLES else f"`{split}`"
    return (
        f"{name}: {result['num_scenes']} scenes, {result['num_views']} views, "
        f"K = {result['num_slots']}"
    )


def _markdown_table(split: str, result: Mapping[str, Any]) -> str:
    lines = [
        ["method", "dataset", "average", *HEADS.values()],
        ["---"] * 3 + ["---:"] * 8,
    ]
    for row in rows(split, result):
        bold = "**" if (row.method, row.kind) == (_OURS, "pooled") else ""
        first = [row.method, row.dataset, row.kind.replace("_", " ")]
        cells = first + [cell(row.scores[name]) for name in HEADS]
        lines.append([f"{bold}{text}{bold}" for text in cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _remarks(split: str, result: Mapping[str, Any]) -> Iterator[str]:
    theirs, same = published_for(result["dataset"].get("dataset"))
    if split not in published.SPLITS:
        yield "Nothing was published for this split."
    elif not same:
        yield (
            f"**The published rows are for another dataset** ({theirs} of the paper: "
            "128x128, 8 views), not for the scenes that were scored here. They show "
            "where the published methods stand, nothing more."
        )
    image = {name: result["mean"]["pooled"][name] for name in IMAGE_HEADS}
    if None not in image.values():
        yield (
            f"Reconstruction: MSE {image['mse']:.5f}, PSNR {image['psnr']:.2f} dB "
            "(pooled, images in [0, 1])."
        )
    for name, why in result["not_scored"].items():
        yield f"No {(HEADS | IMAGE_HEADS)[name]}: {why}."
    yield from (f"{note}." for note in result["notes"])


def _constancy_table(found: Mapping[str, Any]) -> str:
    rows = {
        "object drawn by another slot in another view": _share(
            found["identity_switches"], "rate", "num_pairs", "pairs of views"
        ),
        "shape known in views that hide the object wholly": _share(
            found["hidden"], "recall", "num_views", "cases"
        ),
        "shape known in views that show at most a fifth of it": _share(
            found["mostly_hidden"], "recall", "num_views", "cases"
        ),
        "camera read from viewpoint latents by a linear map, R²": _camera(
            found["camera_probe"]
        ),
        "MSE of images decoded between two views": _between(found["interpolation"]),
    }
    lines = [f"| measured on `{found['split']}` | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {text} | {x} |" for text, x in rows.items())])


def _share(found: Mapping[str, Any], key: str, of: str, what: str) -> str:
    if "not_measured" in found:
        return f"not measured: {found['not_measured']}"
    return f"{cell(Score(**found[key]))} of {found[of]['mean']:.0f} {what}"


def _camera(found: Mapping[str, Any]) -> str:
    numbers = {name: x for name, x in found.items() if name != "not_measured"}
    texts = [f"{n.replace('_', ' ')} {cell(Score(**x))}" for n, x in numbers.items()]
    if "not_measured" in found:
        texts.append(f"not measured: {found['not_measured']}")
    return "; ".join(texts)


def _between(found: Mapping[str, Any]) -> str:
    """Beside what needs no model, and what the model loses anyway."""
    if "not_measured" in found:
        return f"not measured: {found['not_measured']}"
    return (
        f"{found['mse']['decoded']:.5f}; a copy of the nearer view "
        f"{found['mse']['nearest_view']:.5f}, a cross-fade of both "
        f"{found['mse']['cross_fade']:.5f}, the views themselves "
        f"{found['reconstruction_mse']:.5f}"
    )


def cell(score: Score | None) -> str:
    """Mean, and deviation with one digit, as in the paper."""
    if score is None:
        return "N/A"
    return f"{round(score.mean, 3) + 0.0:.3f} ± {_short(score.sd)}"  # no -0.000


def _short(number: float) -> str:
    if number == 0:
        return "0"
    digits, _, power = f"{number:.0e}".partition("e")
    return f"{digits}e{int(power)}"


def comma_separated(results: Mapping[str, Any]) -> str:
    """All rows with full precision, in the columns of the published tables."""
    names = [*HEADS, *IMAGE_HEADS]
    columns = [column for name in names for column in (name, f"{name}_sd")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "split", "method", "average", *columns])
    for split, result in results["splits"].items():
        for row in rows(split, result):
            scores = [row.scores.get(name) or ("", "") for name in names]
            values = [value for score in scores for value in score]
            writer.writerow([row.dataset, split, row.method, row.kind, *values])
    return text.getvalue()


def latex(results: Mapping[str, Any]) -> str:
    r"""A `tabular` for each split; needs \usepackage{booktabs}."""
    tables = []
    for split, result in results["splits"].items():
        heading = title(split, result).replace("`", "")
        head = ["Method", "Dataset", "Average", *HEADS.values()]
        lines = [" & ".join(head) + r" \\", r"\midrule"]
        for row in rows(split, result):
            first = [row.method, row.dataset, row.kind]
            cells = first + [cell(row.scores[name]) for name in HEADS]
            lines.append(" & ".join(map(_escape, cells)) + r" \\")
        columns = "lll" + "c" * len(metrics.METRICS)
        body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *lines]
        remarks = [f"% {x}".replace("**", "") for x in _remarks(split, result)]
        tables.append("\n".join([f"% {heading}", *remarks, *body, _LATEX_END]))
    return "\n\n".join(tables) + "\n"


_LATEX_END = "\\bottomrule\n\\end{tabular}"


def _escape(text: str) -> str:
    for character in "&%#_":
        text = text.replace(character, f"\\{character}")
    return text.replace("±", r"$\pm$")
