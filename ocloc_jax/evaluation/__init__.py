"""Parts of `ocloc_jax.evaluate`: passes over a split, object constancy, tables."""
