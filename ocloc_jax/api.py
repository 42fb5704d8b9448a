"""A trained model as a library: infer a scene from images, and render it anew.

```python
from ocloc_jax import load

scene = load("runs/demo").infer(images)  # NumPy [views, height, width, 3]
scene.count, scene.masks, scene.render(objects=[0, 2])
```
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ocloc_jax import inference, photos, weights
from ocloc_jax.inferred import InferredScene
from ocloc_jax.models.ocloc import Ocloc
from ocloc_jax.models.sizes import check_image_size

NUM_SLOTS = 7  # of the published models, for files that do not tell


def load(path: str | os.PathLike[str]) -> "Loaded":
    """Reads a .safetensors file, or the best weights of the directory of a run."""
    path = weights.find(os.fspath(path))
    model, params = weights.load(path)
    return Loaded(model, params, weights.num_slots(path) or NUM_SLOTS)


class Loaded:
    """A model with its parameters; makes scenes of images.

    What is compiled is kept, for each number of views and slots and size of images.

    Attributes:
      model: The Flax module.
      params: Its parameters.
      num_slots: K unless `infer` is told otherwise: that of training if the file
        tells, else 7.
    """

    def __init__(self, model: Ocloc, params: PyTree, num_slots: int = NUM_SLOTS):
        """Wraps a model; nothing is compiled yet."""
        self.model, self.params, self.num_slots = model, params, num_slots
        self._infer = jax.jit(inference.infer_latents, static_argnums=(0, 4))
        self._decode = jax.jit(inference.decode, static_argnums=(0, 3, 4))
        self._compose = jax.jit(inference.compose_layers, static_argnums=0)

    def infer(
        self,
        images: Any,
        num_slots: int | None = None,
        *,
        seed: int = 0,
        size: int | None = None,
    ) -> InferredScene:
        """Finds the objects of one scene, seen from any number of viewpoints.

        Args:
          images: `[views, height, width, 3]`, uint8 or floating point in [0, 1]; or a
            list of PIL images or names of files. The views need no order.
          num_slots: K, the most objects that can be found. At least one more than
            there are objects leaves room for doubt.
          seed: Of the initial slots; another one may find another decomposition.
          size: Cuts pictures and files to a square of this many pixels a side.
        """
        num_slots = self.num_slots if num_slots is None else num_slots
        if num_slots < 1:
            raise ValueError(f"num_slots is {num_slots}; use 1 or more.")
        views = photos.as_views(images, size)
        check_image_size(self.model.sizes, *views.shape[1:3])
        found = self._infer(
            self.model,
            self.params,
            jnp.asarray(2 * views - 1),
            jax.random.key(seed),
            num_slots,
        )
        return InferredScene(self, found, views.shape[1:3], len(views), views)

    def decode(self, found: Any, size: tuple[int, int]) -> Any:
        """Layers of latents."""
        return self._decode(self.model, self.params, found, *size)

    def compose(self, layers: Any, found: Any) -> Any:
        """A scene of layers."""
        return self._compose(self.model, layers, found)
