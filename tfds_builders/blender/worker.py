"""Runs inside Blender's Python: renders scenes that arrive as lines of JSON.

A script, not a module to import: it is started by path with whatever Python has `bpy`,
which may lack everything else.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, TextIO


def main(folder: str) -> None:
    """Answers every line of standard input by one line on standard output.

    Args:
      folder: Belongs to this process; arrays are left there as `scene.npz`.
    """
    _watch_parent(folder)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Blender's own chatter goes where it cannot be taken for answers.
    # At the end of the path, so that packages of another Python never come first.
    sys.path[:] = [*sys.path[1:], str(pathlib.Path(__file__).parents[2])]
    try:
        import bpy
    except ImportError as error:
        _answer(answers, {"missing": " ".join(str(error).split())})
        return
    _answer(answers, {"blender": bpy.app.version_string})
    for line in sys.stdin:
        _answer(answers, _try(json.loads(line), folder))
    shutil.rmtree(folder, ignore_errors=True)  # The parent ended without a word.


def _watch_parent(folder: str) -> None:
    """Ends Blender when a killed build can no longer tell it to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides.
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _answer(answers: TextIO, answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def _try(job: Mapping[str, Any], folder: str) -> dict[str, Any]:
    try:
        render(job, folder)
    except ValueError as error:  # Bad input, such as a mesh without faces.
        return {"error": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"Blender failed: {type(error).__name__}: {error}"}
    return {}


def render(job: Mapping[str, Any], folder: str) -> None:
    """Renders one scene into `scene.npz` in a folder."""
    import bpy
    import numpy as np

    from tfds_builders.blender import cycles, models, surroundings

    bpy.ops.wm.read_factory_settings(use_empty=True)
    renderer = cycles.Renderer(folder, job["field_of_view"], job["threads"])
    renderer.use(job["device"])
    meshes = job["meshes"] or [None] * len(job["objects"])
    things = [
        models.add(thing, mesh, job["up_axis"], job["shadows"])
        for thing, mesh in zip(job["objects"], meshes, strict=True)
    ]
    ground = surroundings.add(job)
    poses, size = job["poses"], job["size"]
    image = renderer.picture(poses, size, job["samples"], job["noise"])
    side = size * job["label_side"]
    visible, complete = renderer.labels(poses, side, things, ground)
    centre = np.array([thing.centre() for thing in things]).reshape(-1, 3)
    arrays = {"image": image, "visible": visible, "complete": complete}
    np.savez(pathlib.Path(folder) / "scene.npz", centre=centre, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
