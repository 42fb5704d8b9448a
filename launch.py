"""Trains a config: python launch.py --config=configs/demo.py --workdir=runs/demo."""

import datetime
import pathlib

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file("config", None, "What to run.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where results go; an existing run there is resumed."
)
flags.mark_flag_as_required("config")


def main(_: list[str]) -> None:
    """Runs the experiment and prints where its weights are."""
    # After the flags, so that --help does not wait for JAX.
    import jax

    from ocloc_jax import experiment, loop

    if not jax.config.jax_compilation_cache_dir:  # nor JAX_COMPILATION_CACHE_DIR
        cache = pathlib.Path.home() / ".cache" / "ocloc_jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # Orbax tells of every file it writes
    workdir = pathlib.Path(_WORKDIR.value or _new_workdir())
    print(f"workdir: {workdir}", flush=True)
    try:
        best = experiment.run(_CONFIG.value, workdir)
    except (ValueError, OSError, loop.NotFinite) as error:
        raise SystemExit(f"error: {error}") from error
    print(f"best weights: {best}")


def _new_workdir() -> pathlib.Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = pathlib.Path(flags.FLAGS["config"].config_filename).stem
    return pathlib.Path("runs") / f"{name}-{now}"


if __name__ == "__main__":
    app.run(main)
