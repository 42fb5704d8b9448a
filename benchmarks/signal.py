"""How much of an image is left in what the networks compute, before any training.

python -m benchmarks.signal

For both kinds of initial parameters: how much features, latents and decoded objects
differ between images when all noise is the same, beside how much they vary at all.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from configs import demo
from ocloc_jax import data, scenes
from ocloc_jax.models import initial, latents
from ocloc_jax.models import noise as noise_lib
from ocloc_jax.models.ocloc import Ocloc

NUM_SCENES, NUM_SLOTS = 32, 4


def main() -> None:
    config = demo.get_config()
    spec = scenes.SceneSpec(**config.data.scenes.to_dict())
    one_view = dataclasses.replace(spec, num_views=1)
    batch = scenes.render_batch(one_view, 0, list(range(NUM_SCENES)))
    images = data.to_model_range(batch["image"])
    model = Ocloc(demo.small_sizes())
    print("| initial | computed | differs between images | varies at all |")
    print("|---|---|---:|---:|")
    for style in initial.STYLES:
        for name, value in stages(model, style, images).items():
            between, total = np.std(value, axis=0).mean(), np.std(value)
            print(f"| {style} | {name} | {between:.1e} | {total:.1e} |")


def stages(model: Ocloc, style: str, images: Array) -> dict[str, Array]:
    """What is computed on the way from images to objects, with the same noise."""
    params = initial.init(model, jax.random.key(0), style)
    noise = noise_lib.draw(
        jax.random.key(1),
        model.sizes,
        batch=(1,),
        num_views=1,
        num_slots=NUM_SLOTS,
    )
    noise = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (NUM_SCENES, *x.shape[1:])), noise
    )
    bound = model.bind({"params": params})
    slots = bound.infer_slots(images, noise)
    posterior = bound.encoder.posterior(slots)
    layers = bound.decode(latents.mode(posterior), *images.shape[2:4])
    return {
        "features": bound.encoder.features(images),
        "slots of objects": slots.attr,
        "latents of objects (mean)": posterior.obj_mean,
        "appearance of objects": layers.appearance,
        "background": layers.background,
    }


if __name__ == "__main__":
    main()
