"""What the TPU compiler says of a training step, without a TPU.

make libtpu
python -m benchmarks.tpu_cost

Compiles the step of the CLEVR networks (128x128, K = 7) for one v5e chip, once for each
row of `VARIANTS`, and prints operations, bytes moved and peak memory by the compiler's
own analysis, beside the least that matrix products and convolutions take by arithmetic
(forward, gradients of inputs and of weights; no product with an inserted zero). There
is one refinement iteration, T = 1: the compiler counts the inside of a loop only once.
So of rows with one image at a time, which is such a loop, only the memory counts.
"""

import argparse

import ml_collections

from configs import common
from ocloc_jax.plan import flops, steps, targets

VARIANTS = {  # what the model is told, or the stage
    "float32": {},
    "float32, one image at a time": {"images_at_a_time": 1},
    "float32, remat=decoder": {"remat": "decoder"},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, remat=decoder": {"dtype": "bfloat16", "remat": "decoder"},
}


def main() -> None:
    """Compiles and prints, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--target", default="tpu:v5e")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    args = parser.parse_args()
    target = targets.find(args.target)
    least = least_operations(make_config(args.batch, args.views), args.views, target)
    print(f"{args.batch} x {args.views} views: at least {least / 1e9:.1f} GFLOP")
    print("| | GFLOP | of the least | GB moved | peak, GB | compiled in |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in args.variants:
        config = make_config(args.batch, args.views, **VARIANTS[name])
        (program,) = steps.plan_stage(config, "multi", target)
        print(_row(name, program, least), flush=True)


def make_config(
    batch: int, views: int, images_at_a_time: int = 0, **options: str
) -> ml_collections.ConfigDict:
    """CLEVR's second stage with batches of this size."""
    config = common.published("clevr")
    config.model.update(num_iterations=1, **options)
    stage = dict(batch_size=batch, images_at_a_time=images_at_a_time)
    config.stages.multi.update(stage)
    config.stages.multi.views.update(min_views=views, max_views=views)
    return config


def least_operations(
    config: ml_collections.ConfigDict, views: int, target: targets.Target
) -> int:
    """Of the step as it is written, which computes nothing twice."""
    step, state = steps.abstract_step(config, "multi", target)
    return flops.count(step, state, steps.batch_of(config, "multi", views))


def _row(name: str, program: steps.Program, least: int) -> str:
    counted = program.compiler_flops or float("nan")
    moved = (program.bytes or float("nan")) / 1e9
    peak = (program.memory or float("nan")) / 1e9
    return (
        f"| {name} | {counted / 1e9:.1f} | {counted / least:.2f} | {moved:.1f} | "
        f"{peak:.2f} | {program.compile_seconds} s |"
    )


if __name__ == "__main__":
    main()
