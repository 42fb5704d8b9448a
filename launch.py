"""One command for everything: python launch.py --config=configs/demo.py."""

import datetime
import importlib
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from ocloc_jax import huge_pages

# Each mode is a module of ocloc_jax with a function `run(config, workdir)`, and those
# that take trained weights with `run(config, workdir, weights=None)`.
MODES = {
    "train": "experiment",
    "eval": "evaluate",
    "render": "render",
    "plan": "plan",
    "replay": "replay",
}
WITH_WEIGHTS = ("eval", "render")

_CONFIG = config_flags.DEFINE_config_file("config", None, "What to run.")
_MODE = flags.DEFINE_enum("mode", "train", list(MODES), "What to do with it.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where results go; an existing run there is resumed."
)
_WEIGHTS = flags.DEFINE_string(
    "weights", None, "For eval and render: a safetensors file, not the workdir's best."
)
flags.mark_flag_as_required("config")


def main(_: list[str]) -> None:
    """Runs one mode; what a user can mend ends with one sentence, no traceback."""
    # After the flags, so that --help does not wait for JAX.
    import jax

    from ocloc_jax import distributed

    if not jax.config.jax_compilation_cache_dir:  # nor JAX_COMPILATION_CACHE_DIR
        cache = pathlib.Path.home() / ".cache" / "ocloc_jax"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # Orbax tells of every file it writes
    options = _options()
    try:
        distributed.split_cpu(_CONFIG.value.get("cpu_devices", 1))
        distributed.initialize()
        workdir = pathlib.Path(_WORKDIR.value or _new_workdir())
        if distributed.is_main():
            print(f"workdir: {workdir}", flush=True)
        mode = importlib.import_module(f"ocloc_jax.{MODES[_MODE.value]}")
        mode.run(_CONFIG.value, workdir, **options)
    except (ValueError, OSError, FloatingPointError) as error:
        raise SystemExit(f"error: {error}") from error


def _options() -> dict[str, str | None]:
    """What a mode takes besides config and workdir."""
    if _MODE.value in WITH_WEIGHTS:
        return {"weights": _WEIGHTS.value}
    if _WEIGHTS.value:
        raise SystemExit(
            f"error: --weights is for --mode={' and '.join(WITH_WEIGHTS)}; to train "
            f"from weights use --config.init_from={_WEIGHTS.value}."
        )
    return {}


def _parse_flags(argv: list[str]) -> list[str]:
    """A misspelt --config.KEY ends with a sentence and the keys that there are."""
    try:
        return app.parse_flags_with_usage(argv)
    except (AttributeError, KeyError) as error:
        fault = _unknown_key(argv)
        if fault is None:
            raise
        raise SystemExit(f"error: {fault}") from error


def _unknown_key(argv: list[str]) -> str | None:
    from ocloc_jax import checks

    overrides = [arg for arg in argv if arg.startswith("--config.")]
    sys.argv[:] = [arg for arg in argv if arg not in overrides]
    flags.FLAGS.unparse_flags()
    flags.FLAGS(sys.argv)
    paths = (arg.removeprefix("--config.").partition("=")[0] for arg in overrides)
    faults = (checks.unknown_override(_CONFIG.value, path) for path in paths)
    return next(filter(None, faults), None)


def _new_workdir() -> pathlib.Path:
    import jax

    if jax.distributed.is_initialized() and jax.process_count() > 1:
        raise ValueError("Give --workdir: several processes must use the same one.")
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = pathlib.Path(flags.FLAGS["config"].config_filename).stem
    return pathlib.Path("runs") / f"{name}-{now}"


if __name__ == "__main__":
    huge_pages.ask_for()
    app.run(main, flags_parser=_parse_flags)
