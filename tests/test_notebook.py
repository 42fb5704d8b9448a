"""The notebook runs from top to bottom, on CPU and in its reduced setting."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "ocloc_colab.ipynb"
# What a cell puts out is kept by kind, as Jupyter does; the first error ends it all.
RUNNER = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()
outputs = []
for source in json.load(open(sys.argv[1])):
    with capture_output() as captured:
        result = shell.run_cell(source)
    if not result.success:
        sys.exit(captured.stdout)
    kinds = [kind for rich in captured.outputs for kind in rich.data]
    text = {"html": "", "markdown": ""}
    for rich in captured.outputs:
        for kind in text:
            text[kind] += rich.data.get(f"text/{kind}", "")
    outputs.append({"kinds": kinds, "stdout": captured.stdout, **text})
json.dump(outputs, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def notebook() -> dict:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def sources(notebook: dict, kind: str) -> list[str]:
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == kind]


def reduced(notebook: dict, workdir: pathlib.Path) -> list[str]:
    """The code cells, with smaller settings right after the cell of settings."""
    (at,) = [
        i
        for i, source in enumerate(sources(notebook, "code"))
        if source.lstrip().startswith("# The address") and "VARIANT" in source
    ]
    smaller = {
        "TRAIN": True,
        "VARIANT": "smoke",
        "CHANGES": {
            "data.scenes.size": 16,
            "data.scenes.samples": 1,
            "data.num_scenes.train": 16,
            "data.num_scenes.test": 2,
        },
        "WORKDIR": str(workdir),
        "NUM_VIEWS": 2,
        "NUM_TEST": 2,
        "NUM_SHEET": 1,
    }
    cells = sources(notebook, "code")
    assert all(re.search(rf"^{name} = ", cells[at], re.MULTILINE) for name in smaller)
    lines = [f"{name} = {value!r}" for name, value in smaller.items()]
    return [*cells[: at + 1], "\n".join(lines), *cells[at + 1 :]]


def test_notebook_is_stored_without_outputs(notebook):
    assert notebook["nbformat"] == 4 and notebook["nbformat_minor"] >= 5
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_badge_opens_the_repository_that_is_installed(notebook):
    owner = re.search(
        r'REPOSITORY = "https://github\.com/([^"]+)"',
        "".join(sources(notebook, "code")),
    )[1]
    address = f"colab.research.google.com/github/{owner}/blob/main/"
    assert address + NOTEBOOK.relative_to(ROOT).as_posix() in "".join(
        sources(notebook, "markdown")
    )


def test_notebook_runs(notebook, tmp_path):
    cells, outputs = tmp_path / "cells.json", tmp_path / "outputs.json"
    cells.write_text(json.dumps(reduced(notebook, tmp_path / "run")))
    (tmp_path / "runner.py").write_text(RUNNER)
    command = [sys.executable, tmp_path / "runner.py", cells, outputs]
    environment = os.environ | {
        "IPYTHONDIR": str(tmp_path),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    found = json.loads(outputs.read_text())
    assert sum(out["kinds"].count("image/png") for out in found) == 2
    (table,) = [out["markdown"] for out in found if out["markdown"]]
    assert re.search(r"\| ARI-A \|.*\n.*\n\| -?\d\.\d{3} \|", table)
    assert "<iframe" in found[-1]["html"] and "srcdoc=" in found[-1]["html"]
    assert (tmp_path / "run" / "sheet.html").stat().st_size > 30_000
    assert any("parameters" in out["stdout"] for out in found)
