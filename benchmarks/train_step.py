"""A training step beside the same networks in plain PyTorch, taking turns.

pip install -e .[bench]
python -m benchmarks.train_step

Torch may live elsewhere: `--torch-python=/path/to/python` names an interpreter that has
it. For each case both programs run in a process of their own, two threads each, a few
steps after the other's, so that whatever else the machine does hits both alike. (On a
busy machine compare processor time with `--threads=1`, which concerns PyTorch alone:
its threads wait for each other in a loop, and that counts; XLA's sleep.) With
`--devices=2` our side splits the scenes of a batch over two virtual devices, as
`config.cpu_devices` does. It decodes one image (view of a scene) at a time, as
`config.stages.*.images_at_a_time` says; `--images-at-a-time=0` decodes all together.
With `--parts=4`, the default, the image networks take a quarter of the objects at a
time, as `config.model.num_parts` says.
Our side has huge pages, as `launch.py` asks for them; PyTorch, which does not ask, gets
them with `--torch-huge-pages`. Printed are ratios (ours to PyTorch's; below 1 is
faster) with their quartiles, by the clock and by processor time, operations per second
against those of a matrix product, seconds to compile, the peak of resident memory while
stepping (that of compiling is apart), and how much of it came with the steps: what is
beyond the memory before the first one, when model, programs and libraries are there.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks import turns
from ocloc_jax import huge_pages

CASES = {  # networks, batch, views, image size, slots
    "CLEVR 1x1": ("clevr", 1, 1, 128, 7),
    "CLEVR 2x2": ("clevr", 2, 2, 128, 7),
    "CLEVR 1x4": ("clevr", 1, 4, 128, 7),
    "GSO 1x1": ("gso", 1, 1, 128, 7),
    "demo 16x1": ("demo", 16, 1, 32, 5),
    "demo 4x4": ("demo", 4, 4, 32, 5),
}

# Steps of a turn, and how many before them are not counted: those find that the other
# side has taken the memory that is given back after every step.
_STEPS, _UNCOUNTED = 8, 4


def main() -> None:
    """Measures the chosen cases, or serves as our side of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--devices", type=int, default=1, help="of JAX")
    parser.add_argument("--parts", type=int, default=4, help="of JAX")
    parser.add_argument("--images-at-a-time", type=int, default=1, help="of JAX")
    parser.add_argument("--torch-huge-pages", action="store_true")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--serve", help="(used by the benchmark itself)")
    args = parser.parse_args()
    if args.serve:
        serve(json.loads(args.serve))
        return
    options = dict(
        threads=args.threads,
        devices=args.devices,
        parts=args.parts,
        images_at_a_time=args.images_at_a_time,
        torch_huge_pages=args.torch_huge_pages,
    )
    for name in args.cases:
        if CASES[name][1] % args.devices:
            print(f"\n{name}: left out, its scenes cannot be split")
            continue
        compare(name, args.turns, options, args.torch_python)


def compare(
    name: str, num_turns: int, options: dict[str, Any], torch_python: str
) -> None:
    """Prints what one case takes on either side."""
    case = json.dumps(describe(name) | options)
    pages = {huge_pages.VARIABLE: huge_pages.REQUEST}
    command = [sys.executable, "-m", "benchmarks.train_step", "--serve", case]
    ours = turns.Side(command, **pages)
    command = [torch_python, "-m", "benchmarks.torch_yardstick", case]
    torch = turns.Side(command, **(pages if options["torch_huge_pages"] else {}))
    sides = {"jax": ours, "torch": torch}
    try:
        took = {
            what: _alternate(sides, what, num_turns)
            for what in ("train", "forward", "matmul")
        }
    finally:
        for side in sides.values():
            side.close()
    _print(name, sides, took)


def _alternate(
    sides: dict[str, turns.Side], what: str, num_turns: int
) -> dict[str, list[dict[str, float]]]:
    for side in sides.values():  # warm
        side.ask(what)
        side.ask(what)
        side.ask("reset")
    rows: dict[str, list[dict[str, float]]] = {key: [] for key in sides}
    for _ in range(num_turns):
        for key, side in sides.items():
            steps = [side.ask(what) for _ in range(_UNCOUNTED + _STEPS)][-_STEPS:]
            rows[key].append({k: np.mean([x[k] for x in steps]) for k in steps[0]})
    return rows


def _print(
    name: str,
    sides: dict[str, turns.Side],
    took: dict[str, dict[str, list[dict[str, float]]]],
) -> None:
    flops = sides["torch"].facts["flops"]
    jax_facts, torch_facts = (sides[key].facts for key in ("jax", "torch"))
    assert jax_facts["parameters"] == torch_facts["parameters"]
    print(f"\n{name}: {flops / 1e9:.1f} GFLOP a step", end=", ")
    print(f"compiled in {jax_facts['compile']:.0f} s", end=", ")
    print(f"{jax_facts['peak'] / 1e6:.0f} MB at most while compiling", end=", ")
    print(f"{jax_facts['temporary'] / 1e6:.0f} MB of buffers in a step")
    for what in ("train", "forward"):
        for clock in ("wall", "cpu"):
            print(f"  {what:8}{clock:5}{_ratio(took[what], clock)}")
    for key in sides:
        peak = _seconds(took["matmul"][key], "cpu").min()
        step = _seconds(took["train"][key], "cpu").min()
        share = flops / step / (2 * 2048**3 / peak)
        print(
            f"  {key:6} {flops / step / 1e9:5.1f} GFLOP/s on a core, "
            f"{share:.0%} of its matrix product"
        )
    memory = {key: max(x["peak"] for x in took["train"][key]) / 1e6 for key in sides}
    beyond = {key: memory[key] - sides[key].facts["resident"] / 1e6 for key in sides}
    for what, mb in (("memory", memory), ("of steps", beyond)):
        ratio = mb["jax"] / mb["torch"]
        print(f"  {what:9}{mb['jax']:.0f} / {mb['torch']:.0f} MB = {ratio:.2f}")


def _ratio(rows: dict[str, list[dict[str, float]]], clock: str) -> str:
    ours, torch = (_seconds(rows[key], clock) for key in ("jax", "torch"))
    low, middle, high = np.percentile(ours / torch, [25, 50, 75])
    return (
        f"{np.median(ours):7.3f} / {np.median(torch):.3f} s = {middle:.2f} "
        f"({low:.2f} to {high:.2f}); of the fastest {ours.min() / torch.min():.2f}"
    )


def _seconds(rows: list[dict[str, float]], clock: str) -> np.ndarray:
    return np.array([row[clock] for row in rows])


def describe(name: str) -> dict[str, Any]:
    """A case as plain values, for either side."""
    from configs import demo
    from ocloc_jax.models import sizes

    networks, batch, views, size, slots = CASES[name]
    small = networks == "demo"
    chosen = demo.small_sizes() if small else sizes.BY_DATASET[networks]
    return dict(
        sizes=dataclasses.asdict(chosen),
        batch=batch,
        views=views,
        size=size,
        slots=slots,
    )


def serve(case: dict[str, Any]) -> None:
    """Our side: compiles the step and the forward pass of a case, then serves."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from ocloc_jax import (
        data,
        distributed,
        optimizers,
        programs,
        recipes,
        schedules,
        train,
    )
    from ocloc_jax.models import initial, sizes
    from ocloc_jax.models.ocloc import Ocloc

    distributed.split_cpu(case["devices"])
    model = Ocloc(sizes.from_dict(case["sizes"]), num_parts=case["parts"])
    steps = 100_000
    table = recipes.coefficients("blender", "single", steps)
    rate = dict(base=1e-4, num_steps=steps, decay=0.1, warmup_steps=0)
    optimizer = optimizers.make(rate, 5.0)
    objective = train.Objective(case["slots"])
    params = jax.jit(lambda key: initial.init(model, key))(jax.random.key(0))
    state = train.create_state(params, optimizer, 0)
    state = state.replace(step=jnp.int32(0.75 * steps))  # every term in use
    shape = (case["batch"], case["views"], case["size"], case["size"], 3)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    split = data.data_sharding()
    whole = NamedSharding(split.mesh, PartitionSpec())
    params, state = jax.device_put((params, state), whole)
    batch = jax.device_put({"image": images}, split)
    step = train.make_train_step(
        *(model, optimizer, table, objective), images_at_a_time=case["images_at_a_time"]
    )
    step = train.jit_data_parallel(step, split)
    start = time.perf_counter()
    step = step.lower(state, batch).compile()
    seconds = time.perf_counter() - start
    coefficients = schedules.coefficients(table, steps * 3 // 4)

    def loss(params: Any, images: Any) -> Any:
        key = jax.random.key(1)
        return train.forward(model, params, images, key, coefficients, objective)[0]

    floats = jax.device_put(np.float32(images / 127.5 - 1), split)
    forward = jax.jit(loss).lower(params, floats).compile()
    matrix = jax.random.uniform(jax.random.key(0), (2048, 2048))
    product = jax.jit(lambda x: x @ x)

    def one_step() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        jax.block_until_ready((state, metrics))

    peak = turns.peak_memory()
    programs.give_back_memory()  # as training does
    facts = {
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "compile": seconds,
        "temporary": step.memory_analysis().temp_size_in_bytes,
        "peak": peak,
        "resident": turns.resident_memory(),
    }
    turns.serve(
        {
            "train": one_step,
            "forward": lambda: forward(state.params, floats).block_until_ready(),
            "matmul": lambda: product(matrix).block_until_ready(),
        },
        facts,
    )


if __name__ == "__main__":
    main()
