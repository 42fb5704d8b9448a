"""GSO, seen from 12 unspecified viewpoints."""

from tfds_builders import base, configs


class Builder(base.MultiviewBuilder):
    """One example is one scene; see `README.md` in this directory."""

    FILENAME = "gso.h5"
    BUILDER_CONFIGS = [
        configs.released(num_views=12),
        *configs.blender(num_views=12, up_axis="z"),
    ]
