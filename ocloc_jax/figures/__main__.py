"""Draws a figure: `random` takes a scene apart with weights nobody has trained.

python -m ocloc_jax.figures random OUT.png [--views 4] [--slots 5] [--size 64]
"""

import argparse
import sys

import jax
import jax.numpy as jnp

from ocloc_jax import scenes
from ocloc_jax.figures import files
from ocloc_jax.figures.grid import Picture
from ocloc_jax.figures.parts import decomposition
from ocloc_jax.models import initial
from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.ocloc import Ocloc, Outputs
from ocloc_jax.models.sizes import check_image_size


def random_weights(
    model: Ocloc, *, num_views: int, num_slots: int, size: int, seed: int = 0
) -> Picture:
    """What a model makes of a ray-traced scene before any training.

    Args:
      model: Its sizes must fit the image size.
      num_views: M.
      num_slots: K.
      size: Height and width of the images.
      seed: Of scene, weights and sampled latents.
    """
    if num_slots < 1:
        raise ValueError(f"{num_slots} slots; use 1 or more.")
    check_image_size(model.sizes, size, size)
    spec = scenes.SceneSpec(size=size, num_views=num_views)
    pixels = scenes.render(spec, seed, 0)["image"]
    images = jnp.asarray(pixels, jnp.float32) / 127.5 - 1

    @jax.jit
    def run(key: jax.Array, images: jax.Array) -> Outputs:
        for_params, for_noise = jax.random.split(key)
        noise = noise_lib.draw(
            for_noise, model.sizes, batch=(), num_views=num_views, num_slots=num_slots
        )
        params = initial.init(model, for_params)
        return model.apply({"params": params}, images, noise)

    outputs = run(jax.random.key(seed), images)
    return decomposition(images, outputs.scene, outputs.latents.presence)


def main(argv: list[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m ocloc_jax.figures", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("random", help="a model with random weights")
    command.add_argument("out", help="PNG file to write")
    command.add_argument("--views", type=int, default=4)
    command.add_argument("--slots", type=int, default=5)
    command.add_argument("--size", type=int, default=64)
    command.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    try:
        files.check_path(args.out)
        picture = random_weights(
            Ocloc(),
            num_views=args.views,
            num_slots=args.slots,
            size=args.size,
            seed=args.seed,
        )
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    files.save(args.out, picture)
    print(f"{args.out}: {picture.shape[1]} x {picture.shape[0]} pixels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
