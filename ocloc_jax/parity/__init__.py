"""Comparison with golden numbers of the released program."""

from ocloc_jax.parity.compare import Row, compare, compare_file

__all__ = ["Row", "compare", "compare_file"]
