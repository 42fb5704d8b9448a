"""CLEVR-like multi-view scenes, ray traced in JAX: nothing to download."""

from ocloc_jax.scenes.renderer import KEYS, render, render_batch, render_cameras
from ocloc_jax.scenes.spec import SceneSpec

__all__ = ["KEYS", "SceneSpec", "render", "render_batch", "render_cameras"]
