"""SHOP, seen from 60 unspecified viewpoints."""

from tfds_builders import base, configs


class Builder(base.MultiviewBuilder):
    """One example is one scene; see `README.md` in this directory."""

    FILENAME = "shop.h5"
    BUILDER_CONFIGS = [
        configs.released(num_views=60),
        *configs.blender(num_views=60),
    ]
