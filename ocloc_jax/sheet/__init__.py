"""A scene sheet: one HTML file in which a person takes scenes apart.

`write` runs a model on photographs and writes the file; `page` makes it from walks
through scenes that come from elsewhere.
"""

from ocloc_jax.sheet.document import page, write
from ocloc_jax.sheet.viewpoints import Walk, walks

__all__ = ["Walk", "page", "walks", "write"]
