"""How a training step grows with scenes, views, slots and pixels.

python -m benchmarks.scaling --figure=docs/figures/scaling.png

Networks of the demo on the CPU. One quantity grows at a time, the others stay where
`BASE` says. Printed are the median time of a step, and the exponent between the two
largest values: 1 is in proportion, less means that a fixed cost still shows.
"""

import argparse
import math
import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

from configs import demo
from ocloc_jax import huge_pages, optimizers, train
from ocloc_jax.models import initial
from ocloc_jax.models.ocloc import Ocloc

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

BASE = dict(scenes=4, views=2, slots=4, size=32)
GROWTH = dict(
    scenes=(2, 4, 8, 16), views=(1, 2, 4, 8), slots=(2, 4, 8, 16), size=(32, 64, 96)
)


def main() -> None:
    """Measures every growth, prints a table, draws a figure if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--figure", help="PNG to write")
    args = parser.parse_args()
    measured = {}
    for name, values in GROWTH.items():
        seconds = [seconds_of_step({**BASE, name: v}, args.repeats) for v in values]
        work = [v * v if name == "size" else v for v in values]  # pixels count
        measured[name] = work, seconds
        between = math.log(seconds[-1] / seconds[-2]) / math.log(work[-1] / work[-2])
        times = ", ".join(
            f"{v}: {1e3 * s:.0f} ms" for v, s in zip(values, seconds, strict=True)
        )
        print(f"{name:7} {times}; exponent {between:.2f}", flush=True)
    if args.figure:
        draw(measured, args.figure)


def seconds_of_step(case: dict[str, int], repeats: int) -> float:
    """Median time of a step, compiled before."""
    model = Ocloc(demo.small_sizes())
    rate = dict(base=1e-4, num_steps=1000, decay=0.1, warmup_steps=0)
    optimizer = optimizers.make(rate, 5.0)
    table = demo.single_schedule(1000)
    objective = train.Objective(case["slots"])
    params = jax.jit(lambda key: initial.init(model, key))(jax.random.key(0))
    state = train.create_state(params, optimizer, 0)
    shape = case["scenes"], case["views"], case["size"], case["size"], 3
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    batch = {"image": jnp.asarray(images)}
    step = jax.jit(
        train.make_train_step(model, optimizer, table, objective), donate_argnums=0
    )
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(step(state, batch))
        times.append(time.perf_counter() - start)
    return float(np.median(times[2:]))


def draw(measured: dict[str, tuple[list[int], list[float]]], path: str) -> None:
    """A panel for each quantity, with the line through zero and the last point."""
    figure, axes = pyplot.subplots(
        1, len(measured), figsize=(3 * len(measured), 2.6), layout="constrained"
    )
    for axis, (name, (work, seconds)) in zip(axes, measured.items(), strict=True):
        slope = 1e3 * seconds[-1] / work[-1]
        axis.plot([0, work[-1]], [0, slope * work[-1]], "--", color="#999999")
        axis.plot(work, 1e3 * np.array(seconds), "o-", color="#1f5fa8")
        axis.set_xlabel("pixels of an image" if name == "size" else name)
        axis.set_xlim(0), axis.set_ylim(0)
    axes[0].set_ylabel("a training step, ms")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    huge_pages.ask_for()  # as training does
    main()
