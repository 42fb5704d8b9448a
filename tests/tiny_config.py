"""Two short stages for tests that start `launch.py` as a process.

Both stages are the same program, and a simple one: starting takes most of the time.
"""

import dataclasses

import ml_collections
import small

from ocloc_jax import recipes

IMAGE = dataclasses.replace(small.IMAGE, hidden=(), channels=(6,), num_layers=1)
SIZES = dataclasses.replace(
    small.SIZES, background=IMAGE, objects=IMAGE, order_hidden=()
)


def get_config(variant: str = "8,single,multi") -> ml_collections.ConfigDict:
    """Takes the number of steps of a stage, and which stages there are."""
    steps, *stages = variant.split(",")
    num_steps = int(steps)
    config = ml_collections.ConfigDict()
    config.seed, config.init_from = 0, ""
    config.model = dict(
        sizes=dataclasses.asdict(SIZES),
        shadows=False,
        mode="paper",
        num_iterations=1,
        remat="none",
        dtype="float32",
    )
    config.objective = dict(num_slots=3, sigma_x=0.2, alpha=4.5)
    config.data = dict(
        scenes=dict(size=16, num_views=2, min_objects=1, max_objects=2, samples=1),
        num_scenes=dict(train=12, validation=6),
        seed=0,
    )
    config.stages = {
        name: dict(
            batch_size=4,
            views=dict(stage=name, max_views=1),
            learning_rate=recipes.learning_rate("blender", "single", num_steps),
            clip_norm=5.0,
            coefficients=recipes.elbo(),
        )
        for name in stages
    }
    config.log_every, config.validate_every, config.checkpoint_every = 1, 7, 3
    return config
