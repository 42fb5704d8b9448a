"""CLEVR, 128x128, 4.8 M parameters: 100k single-view, then 500k multi-view steps.

python -m tfds_builders build multiview_clevr --config released --data_dir data
python launch.py --config=configs/clevr.py --workdir=runs/clevr

All 10 + 5 runs of the paper: python -m configs.sweep clevr | sh

The paper reports ARI-A 0.791 and ARI-O 0.924 on Test 1, for the best of 10
single-view and 5 multi-view runs. Variants: configs/clevr.py:no_shadow, :paper, :smoke.
"""

from collections.abc import Iterator
from typing import Any

import ml_collections

from configs import common


def get_config(variant: str = "published") -> ml_collections.ConfigDict:
    return common.published("clevr", variant)


def sweep(workdir: str = "runs/clevr") -> Iterator[dict[str, Any]]:
    """The 15 runs of the published protocol; see `configs/common.py`."""
    return common.sweep(workdir)
