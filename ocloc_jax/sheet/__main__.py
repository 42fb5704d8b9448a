"""Writes a scene sheet: an HTML file in which a person takes scenes apart.

python -m ocloc_jax.sheet WEIGHTS --out sheet.html
python -m ocloc_jax.sheet WEIGHTS --out sheet.html --data multiview_clevr/raytraced_64
python -m ocloc_jax.sheet WEIGHTS --out sheet.html --images photographs/

Without --data or --images the scenes are those of the run that made the weights (its
config.json is looked for in the folders above them), or else new ray-traced ones.
"""

import argparse
import sys

from ocloc_jax import weights
from ocloc_jax.sheet import document, sources


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m ocloc_jax.sheet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("weights", help="safetensors file of a training run")
    add("--out", default="sheet.html", help="file to write")
    add("--overwrite", action="store_true", help="replace a file of that name")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data", help="built dataset, such as multiview_clevr/released")
    where.add_argument("--images", help="folder of pictures, or one for each scene")
    add("--data_dir", help="where datasets are kept")
    add("--split", default="test")
    add("--scenes", type=int, nargs="+", default=[0, 1, 2, 3], help="which scenes")
    add("--views", type=int, default=4, help="photographs of each scene, at most")
    add("--size", type=int, default=64, help="pixels of pictures, or of new scenes")
    add("--slots", type=int, help="K; by default that of the run, or 7")
    add("--steps", type=int, default=8, help="from one photograph to the next")
    add("--seed", type=int, default=0, help="of the initial slots")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; what a user can mend ends with one sentence."""
    args = parse(argv)
    try:
        document.check_path(args.out, args.overwrite)
        model, params = weights.load(args.weights)
        scenes = sources.load(args, model.sizes)
        path = document.write(
            args.out,
            model,
            params,
            scenes.images,
            num_slots=args.slots or scenes.num_slots,
            steps=args.steps,
            seed=args.seed,
            names=scenes.names,
            note=f"Weights: {args.weights}. Scenes: {scenes.origin}.",
            overwrite=args.overwrite,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {len(scenes.images)} scenes, {path.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
