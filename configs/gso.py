"""GSO, 128x128, 15.9 M parameters: 200k single-view, then 500k multi-view steps.

python -m tfds_builders build multiview_gso --config released --data_dir data
python launch.py --config=configs/gso.py --workdir=runs/gso

All 10 + 5 runs of the paper: python -m configs.sweep gso | sh

The paper reports ARI-A 0.856 and ARI-O 0.946 on Test 1, for the best of 10
single-view and 5 multi-view runs. Variants: configs/gso.py:no_shadow, :paper, :smoke.
"""

from collections.abc import Iterator
from typing import Any

import ml_collections

from configs import common


def get_config(variant: str = "published") -> ml_collections.ConfigDict:
    return common.published("gso", variant)


def sweep(workdir: str = "runs/gso") -> Iterator[dict[str, Any]]:
    """The 15 runs of the published protocol; see `configs/common.py`."""
    return common.sweep(workdir)
