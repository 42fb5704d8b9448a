"""python -m ocloc_jax.parity [-v] FILE.npz ...

Prints one JSON object for each golden file (and with -v a table of all its keys) and
ends with status 1 if any file fails.
"""

import argparse
import json
import math
import sys

from ocloc_jax.parity.compare import compare_file
from ocloc_jax.parity.golden import GoldenError


def main(argv: list[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m ocloc_jax.parity",
        description="Compare golden files of the released program with this one.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE.npz")
    parser.add_argument("-v", "--verbose", action="store_true", help="list all keys")
    args = parser.parse_args(argv)
    # Every file is compared, also after one that fails.
    return 0 if all([_report(path, args.verbose) for path in args.files]) else 1


def _report(path: str, verbose: bool) -> bool:
    try:
        summary = compare_file(path)
    except (GoldenError, KeyError) as error:
        print(json.dumps({"file": path, "ok": False, "error": str(error)}), flush=True)
        return False
    rows = summary.pop("rows")
    if not math.isfinite(summary["worst"]["error"]):
        summary["worst"]["error"] = None  # JSON knows neither infinity nor nan
    print(json.dumps(summary), flush=True)
    if verbose:
        for row in rows:
            mark = "ok  " if row.ok else "FAIL"
            print(f"{mark} {row.error:10.3e} of {row.allowed:9.3e}  {row.key}")
    return summary["ok"]


if __name__ == "__main__":
    sys.exit(main())
