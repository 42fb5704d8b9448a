"""Pictures of what the model does: arrays in, a uint8 RGB array out, one way to save.

`decomposition` draws one scene, `strip` any labelled grid of images, `curves` what a
training run logged, `lines` any numbers against each other. `save_animation` makes a
film of pictures.
"""

from ocloc_jax.figures.files import encode, save, save_animation
from ocloc_jax.figures.grid import Label, Picture, strip
from ocloc_jax.figures.parts import decomposition
from ocloc_jax.figures.plots import curves, lines

__all__ = [
    "Label",
    "Picture",
    "curves",
    "decomposition",
    "encode",
    "lines",
    "save",
    "save_animation",
    "strip",
]
