"""A scene whose pixels are known: squares on a plain ground, drawn without networks.

A viewpoint latent shifts everything (down, right); an object latent is the centre of a
square (row, column) and its colour; the lower one is nearer. Each square casts a shadow
to its right, which leaves a fifth of the light.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ocloc_jax.inferred import InferredScene
from ocloc_jax.models import compose
from ocloc_jax.models.compose import Scene
from ocloc_jax.models.decoder import Layers
from ocloc_jax.models.latents import Latents
from ocloc_jax.schedules import Coefficients

SURE = 40.0  # the logit of certainty: its sigmoid is 1, or nearly 0
RED, GREEN, BLUE = (1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, 1.0)
GROUND = (0.2, 0.4, 0.6)


@jax.jit
def _compose(layers: Layers, found: Latents) -> Scene:
    return compose.compose(layers, found, Coefficients())


class Squares:
    """Decodes squares of a given half side."""

    def __init__(self, half: int = 2):
        self.half, self.num_decoded = half, []

    def decode(self, found: Latents, size: tuple[int, int]) -> Layers:
        self.num_decoded.append(len(found.view))
        height, width = size
        centre = np.asarray(found.view)[:, None] + np.asarray(found.obj)[None, :, :2]
        square = self._square(centre, size)
        shadow = self._square(centre + np.float32([0, 2 * self.half]), size) & ~square
        colour = np.asarray(found.obj)[None, :, None, None, 2:]
        views, slots = centre.shape[:2]
        ground = np.broadcast_to(np.asarray(found.bck), (views, height, width, 3))
        layers = {
            "background": ground,
            "appearance": np.broadcast_to(colour, (views, slots, height, width, 3)),
            "shape_logit": np.where(square, SURE, -SURE),
            "order": centre[..., 0],
            "position": centre,
            "shadow_logit": np.full(square.shape, -SURE),
            "shadow_shape_logit": np.where(shadow, SURE, -SURE),
        }
        return Layers(**{k: jnp.asarray(v, jnp.float32) for k, v in layers.items()})

    def compose(self, layers: Layers, found: Latents) -> Scene:
        return _compose(layers, found)

    def _square(self, centre: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        rows, columns = np.mgrid[: size[0], : size[1]]
        far = np.maximum(
            np.abs(rows - centre[..., 0, None, None]),
            np.abs(columns - centre[..., 1, None, None]),
        )
        return far <= self.half


def scene(
    decoder: Squares,
    squares: list[tuple[float, ...]],
    *,
    views: list[tuple[float, float]],
    size: int = 16,
    presence: list[float] | None = None,
) -> InferredScene:
    """Squares (row, column, r, g, b) seen from viewpoints (down, right)."""
    present = np.float32(presence or [1 - 1e-6] * len(squares))
    latents = Latents(
        view=jnp.float32(views),
        obj=jnp.float32(squares),
        bck=jnp.float32(GROUND),
        presence_logit=jnp.asarray(np.log(present) - np.log1p(-present)),
    )
    made = InferredScene(decoder, latents, (size, size), len(views))
    return InferredScene(
        decoder, latents, (size, size), len(views), made.reconstruction
    )
