"""The commands `build`, `import` and `doctor`."""

import argparse
import ast
import contextlib
import importlib
import io
import os
import pathlib
import shutil
from typing import Any

from tfds_builders.sources import SPLITS, DataError

NAMES = ("multiview_clevr", "multiview_shop", "multiview_gso", "multiview_shapenet")


def add_build(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `build`."""
    parser.set_defaults(run=build)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--config", help="such as released or raytraced_64")
    _add_data_dir(parser)
    parser.add_argument("--manual_dir", help="folder that holds the released .h5 file")
    parser.add_argument("--workers", type=int, default=0, help="processes (0: all)")
    scale = parser.add_argument_group("another scale than that of the config")
    scale.add_argument("--size", type=int, help="height and width of the views")
    scale.add_argument("--num_views", type=int)
    scale.add_argument("--num_scenes", type=_counts, metavar="N or train=N,test=N")
    scale.add_argument("--num_objects", type=_ranges, metavar="A-B or train=A-B,...")
    scale.add_argument("--seed", type=int)
    scale.add_argument(
        "--scene", type=_fields, metavar="FIELD=VALUE,...", help="fields of SceneSpec"
    )
    _add_blender(parser.add_argument_group("configs blender_*"))
    parser.add_argument(
        "--beam", metavar="OPTIONS", help="Apache Beam, such as runner=DirectRunner"
    )


def _add_blender(group: Any) -> None:
    group.add_argument("--meshes", help="folder of .obj, .glb or .gltf files")
    group.add_argument("--environments", help="folder of .hdr, .exr, .png panoramas")
    group.add_argument("--samples", type=int, help="paths of light for each pixel")
    group.add_argument("--device", choices=("cpu", "gpu"))
    group.add_argument("--up_axis", choices=("y", "z"), help="of .obj files")


def _add_data_dir(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    parser.add_argument("--data_dir", default=default, help=f"default {default}")


def _pairs(text: str, every: tuple[str, ...] = ()) -> dict[str, str]:
    """Reads `a=1,b=2`; a lone value holds for all of `every`."""
    if "=" not in text and every:
        return dict.fromkeys(every, text)
    pairs = dict(item.split("=", 1) for item in text.split(","))
    return {key.strip(): value.strip() for key, value in pairs.items()}


def _counts(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in _pairs(text, SPLITS).items()}


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    pairs = {k: v.split("-") for k, v in _pairs(text, SPLITS).items()}
    return {key: (int(ends[0]), int(ends[-1])) for key, ends in pairs.items()}


def _fields(text: str) -> dict[str, Any]:
    def value(word: str) -> Any:
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError):
            return word  # A plain string needs no quotes.

    return {key: value(word) for key, word in _pairs(text).items()}


def build(options: argparse.Namespace) -> int:
    """Builds a dataset, or goes on with a build that was stopped."""
    builder = make_builder(options)
    if builder.is_prepared():
        builder.check_inputs()
        shutil.rmtree(builder.work_path, ignore_errors=True)  # Killed at the very end.
        print(f"already built: {builder.data_dir}")
        return 0
    prepare(builder, options.manual_dir, options.beam)
    expected = {k: n for k, n in builder.builder_config.num_scenes.items() if n}
    if expected != (counts := _counts_of(builder)):
        print(f"note: expected {expected} scenes as in the paper, found {counts}")
    return 0


def _counts_of(builder: Any) -> dict[str, int]:
    return {str(split): n.num_examples for split, n in builder.info.splits.items()}


def make_builder(options: argparse.Namespace) -> Any:
    """Returns the builder that the options of `build` ask for."""
    from tfds_builders import configs

    name = options.name
    module = importlib.import_module(f"tfds_builders.{name}.{name}_dataset_builder")
    known = {config.name: config for config in module.Builder.BUILDER_CONFIGS}
    chosen = options.config or next(iter(known))
    if chosen not in known:
        raise DataError(f"{name} has no config {chosen!r}; it has {list(known)}")
    keys = ("size", "num_views", "num_scenes", "num_objects", "seed", "scene")
    keys += ("samples", "up_axis")
    changes = {key: getattr(options, key) for key in keys}
    config = configs.customise(known[chosen], **changes)
    builder = module.Builder(config=config, data_dir=_writable(options.data_dir))
    # Several Blenders would only fight for the memory of one GPU.
    builder.workers = options.workers or int(options.device == "gpu")
    for key in ("meshes", "environments", "device"):
        if (value := getattr(options, key)) is not None:
            configs.check_blender(config, [key])
            setattr(builder, key, value)
    return builder


def prepare(builder: Any, manual_dir: str | None = None, beam: str | None = None):
    """Runs the builder without the chatter of TFDS."""
    import tensorflow_datasets as tfds

    config = tfds.download.DownloadConfig(try_download_gcs=False, manual_dir=manual_dir)
    if beam is not None:
        config = config.replace(beam_options=_beam_options(beam))
    print(f"building {builder.data_dir}", flush=True)
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(download_config=config)
    print(f"built {_counts_of(builder)}, {builder.info.dataset_size}")


def _beam_options(text: str) -> Any:
    try:
        from apache_beam.options import pipeline_options
    except ImportError as error:
        raise DataError("--beam needs Apache Beam; install ocloc-jax[beam]") from error
    flags = [f"--{key}={value}" for key, value in _pairs(text).items()]
    return pipeline_options.PipelineOptions(flags=flags)


def _writable(data_dir: str) -> pathlib.Path:
    if "://" in data_dir:
        raise DataError(f"data_dir: {data_dir}; mount it and give its folder")
    path = pathlib.Path(data_dir).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror}); choose another --data_dir"
        ) from error
    return path


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `import`."""
    parser.set_defaults(run=import_photographs)
    parser.add_argument("folder", help="one sub-folder of images for each scene")
    parser.add_argument("--name", required=True, help="name of the new dataset")
    _add_data_dir(parser)
    parser.add_argument("--size", type=int, default=128, help="size of stored views")
    parser.add_argument("--workers", type=int, default=0, help="processes (0: all)")
    parser.add_argument(
        "--shares",
        type=_shares,
        default=(80, 10, 10),
        help="train,validation,test in percent, default 80,10,10",
    )


def _shares(text: str) -> tuple[int, int, int]:
    train, validation, test = map(int, text.split(","))
    if min(train, validation, test) < 0 or train + validation + test != 100:
        raise ValueError("shares must add up to 100")
    return train, validation, test


def import_photographs(options: argparse.Namespace) -> int:
    """Makes a dataset of a folder of photographs; nothing is overwritten."""
    from tfds_builders import photographs

    builder = photographs.make_builder(
        options.folder,
        options.name,
        _writable(options.data_dir),
        options.size,
        options.shares,
    )
    builder.workers = options.workers
    prepare(builder)
    return 0


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `doctor`."""
    parser.set_defaults(run=doctor)
    parser.add_argument("data", help="folder of a dataset, or a released .h5 file")
    parser.add_argument("--report", help="folder for report.json and the pictures")


def doctor(options: argparse.Namespace) -> int:
    """Prints a report; exit status 1 means that problems were found."""
    from tfds_builders import doctor as doctor_lib

    report = doctor_lib.examine(options.data, options.report)
    print(doctor_lib.as_text(report))
    return 1 if report["problems"] else 0
