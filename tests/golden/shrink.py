"""Makes the small copies in this folder from whole golden files.

python tests/golden/shrink.py WHOLE.npz ... (writes beside this script)

Keeps every key; maps of every slot are stored at stride 4 under `<key>@s4`, as the
golden format allows, and the per-pixel draws, which the recipe rebuilds, as checksums.
"""

import pathlib
import sys

import numpy as np

PIXEL_DRAWS = ("uniform_shp", "uniform_sdw_shp", "noise_apc_aux")


def shrink(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    small = {}
    for key, value in arrays.items():
        group, _, name = key.partition("/")
        if group == "noise" and name in PIXEL_DRAWS:
            flat = value.astype(np.float64).reshape(-1)
            sums = [flat.sum(), np.abs(flat).sum(), flat[0], flat[-1]]
            small[f"noise_checksum/{name}"] = np.array(sums)
        elif group == "dec" and value.ndim == 6:
            small[f"{key}@s4"] = value[:, :, :, ::4, ::4]
        elif key.startswith("f32err/dec/") and arrays[key[7:]].ndim == 6:
            small[f"{key}@s4"] = value
        else:
            small[key] = value
    return small


if __name__ == "__main__":
    for path in map(pathlib.Path, sys.argv[1:]):
        with np.load(path, allow_pickle=False) as whole:
            arrays = {key: whole[key] for key in whole.files}
        out = pathlib.Path(__file__).parent / path.name
        np.savez_compressed(out, **shrink(arrays))
        print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")
