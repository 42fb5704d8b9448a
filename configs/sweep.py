"""Prints the runs of a config's sweep as commands, in the order they need.

python -m configs.sweep clevr | sh
python -m configs.sweep clevr:no_shadow --workdir=runs/no_shadow > runs.txt

The single-view runs do not depend on one another; the multi-view runs need all of them.
"""

import argparse
import importlib
import shlex
from collections.abc import Iterator


def commands(config: str, workdir: str) -> Iterator[str]:
    """A command for each run.

    Args:
      config: Name of a file of `configs/`, with or without a variant.
      workdir: Above those of the runs.
    """
    name, *variant = config.split(":", 1)
    module = importlib.import_module(f"configs.{name}")
    path = ":".join([f"configs/{name}.py", *variant])
    for changes in module.sweep(workdir):
        run = f"{workdir}/{changes['only_stage']}_{changes['seed']}"
        words = ["python", "launch.py", f"--config={path}", f"--workdir={run}"]
        words += [f"--config.{key}={value}" for key, value in changes.items()]
        yield shlex.join(words)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="clevr, shop, gso or shapenet, and a :variant")
    parser.add_argument("--workdir", help="default: runs/CONFIG")
    args = parser.parse_args()
    workdir = args.workdir or f"runs/{args.config.replace(':', '_')}"
    print("\n".join(commands(args.config, workdir)))


if __name__ == "__main__":
    main()
