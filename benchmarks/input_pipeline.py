"""Scenes per second of the input pipeline beside a plain h5py reader.

python -m benchmarks.input_pipeline

Every reader delivers the same batches, 8 scenes x 8 views of 128x128 out of scenes
with 60 views, to the device. The plain reader opens an HDF5 file of the authors'
layout, reads `image[scene]` for every scene of the batch, then selects the views. All
files are in the page cache (they were just written), so decoding and copying are
measured, not the disk. Readers take turns in every round; a ratio is taken within a
round.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import h5py
import jax
import numpy as np

from ocloc_jax import data
from tfds_builders import __main__ as builders

BATCH, VIEWS, SIZE, SCENE_VIEWS = 8, 8, 128, 60
GZIP = {"compression": "gzip"}
HDF5 = {
    "contiguous": {},
    "gzip, a chunk per view": GZIP | {"chunks": (1, 1, SIZE, SIZE, 3)},
    "gzip, default chunks": GZIP,
}
Reader = Callable[[], contextlib.AbstractContextManager[Iterator[dict]]]


def open_scenes(directory: pathlib.Path, num_scenes: int) -> data.RecordScenes:
    """Builds a small dataset with the ray tracer unless it is there."""
    counts = f"train={num_scenes},validation=0,test=0,test_general=0"
    arguments = f"build multiview_clevr --config raytraced_128 --num_scenes {counts}"
    if builders.main([*arguments.split(), "--data_dir", str(directory)]):
        sys.exit("The dataset could not be built.")
    (config,) = (directory / "multiview_clevr").glob(
        f"raytraced_128_train{num_scenes}_*"
    )
    return data.open_dataset(config, "train")


def write_hdf5(scenes: data.Scenes, directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes `image` in every flavour of storage."""
    views = range(SCENE_VIEWS)
    image = [scenes.decode(scenes[i], views, ["image"])["image"] for i in _ids(scenes)]
    paths = {}
    for flavour, options in HDF5.items():
        paths[flavour] = directory / f"{flavour.replace(' ', '_')}.h5"
        with h5py.File(paths[flavour], "w") as file:
            file.create_dataset("train/image", data=np.stack(image), **options)
    return paths


def _ids(scenes: data.Scenes) -> range:
    return range(len(scenes))


@contextlib.contextmanager
def plain_reader(path: pathlib.Path, train: data.TrainPipeline) -> Iterator:
    """Reads whole scenes, one after the other, and keeps the chosen views."""

    def batches() -> Iterator[dict]:
        step = 0
        while True:
            plan = train.plan(step)
            pairs = zip(plan.scenes.tolist(), plan.views, strict=True)
            rows = [image[scene][views] for scene, views in pairs]
            yield jax.device_put({"image": np.stack(rows)})
            step += 1

    with h5py.File(path) as file:
        image = file["train/image"]
        yield batches()


def scenes_per_second(reader: Reader, warm_up: int, steps: int) -> float:
    """Times a reader that starts afresh and has come to a steady state."""
    with reader() as batches:
        for _ in range(warm_up):
            next(batches)
        start = time.perf_counter()
        for _ in range(steps):
            jax.block_until_ready(next(batches)["image"])
        return BATCH * steps / (time.perf_counter() - start)


def check(readers: dict[str, Reader]) -> None:
    """Sees that all readers deliver the same pixels."""
    expected = None
    for name, reader in readers.items():
        with reader() as batches:
            images = [np.asarray(next(batches)["image"]) for _ in range(2)]
        expected = images if expected is None else expected
        if not np.array_equal(images, expected):
            sys.exit(f"The reader {name!r} delivers other pixels.")


def make_readers(directory: pathlib.Path, num_scenes: int) -> dict[str, Reader]:
    """All readers by name; those of HDF5 come first."""
    packed = open_scenes(directory, num_scenes)
    unpacked = data.unpack(packed, directory / f"unpacked{num_scenes}")

    def pipeline(scenes: data.Scenes) -> data.TrainPipeline:
        return data.TrainPipeline(scenes, BATCH, min_views=VIEWS, max_views=VIEWS)

    train, fast = pipeline(packed), pipeline(unpacked)
    plain = {
        f"h5py {flavour}": lambda path=path: plain_reader(path, train)
        for flavour, path in write_hdf5(packed, directory).items()
    }
    return plain | {
        "pipeline, 1 thread": lambda: train.batches(num_threads=1),
        "pipeline, threads": lambda: train.batches(),
        "pipeline, 2 processes": lambda: train.batches(num_workers=2, num_threads=1),
        "pipeline, unpacked": lambda: fast.batches(),
    }


def report(rates: dict[str, list[float]]) -> None:
    """Prints rates, and ratios to every plain reader with their range."""
    plain = [name for name in rates if name.startswith("h5py")]
    titles = " | ".join(f"times {name}" for name in plain)
    print(f"| reader | scenes/s | {titles} |\n|---|---|{'---|' * len(plain)}")
    for name, values in rates.items():
        cells = [f"{statistics.median(values):.0f}"]
        for other in plain:
            ratios = [a / b for a, b in zip(values, rates[other], strict=True)]
            cells.append(
                f"{statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Builds what is missing, checks the readers, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=pathlib.Path, default="runs/input_pipeline")
    parser.add_argument("--scenes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    readers = make_readers(options.data_dir, options.scenes)
    check(readers)
    rates = {name: [] for name in readers}
    for _ in range(options.rounds):
        for name, reader in readers.items():
            warm_up = 1 if name.startswith("h5py") else 8
            rates[name].append(scenes_per_second(reader, warm_up, options.steps))
    report(rates)


if __name__ == "__main__":
    main()
