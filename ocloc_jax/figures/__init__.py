"""Pictures of what the model does: arrays in, a uint8 RGB array out, one way to save.

`decomposition` draws one scene, `strip` any labelled grid of images, `curves` what a
training run logged.
"""

from ocloc_jax.figures.files import encode, save
from ocloc_jax.figures.grid import Label, strip
from ocloc_jax.figures.parts import decomposition
from ocloc_jax.figures.plots import curves

__all__ = ["Label", "curves", "decomposition", "encode", "save", "strip"]
