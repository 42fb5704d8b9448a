"""Object-centric learning from multiple unspecified viewpoints, in JAX."""
