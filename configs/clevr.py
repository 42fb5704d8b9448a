"""CLEVR, 128x128, 4.8 M parameters: 100k single-view, then 500k multi-view steps.

python -m tfds_builders build multiview_clevr --config released --data_dir data
python launch.py --config=configs/clevr.py --workdir=runs/clevr

The paper reports ARI-A 0.791 and ARI-O 0.924 on Test 1, for the best of 10
single-view and 5 multi-view runs. Variants: configs/clevr.py:no_shadow, :paper, :smoke.
"""

import ml_collections

from configs import common


def get_config(variant: str = "published") -> ml_collections.ConfigDict:
    return common.published("clevr", variant)
