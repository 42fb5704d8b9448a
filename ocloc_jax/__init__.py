"""Object-centric learning from multiple unspecified viewpoints, in JAX."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from ocloc_jax.api import Loaded

__all__ = ["load"]


def load(path: "str | os.PathLike[str]") -> "Loaded":
    """A trained model, from a .safetensors file or the directory of a run.

    See `ocloc_jax.api.Loaded`. JAX is imported here, not with the package.
    """
    from ocloc_jax import api

    return api.load(path)
