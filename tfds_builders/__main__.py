"""Command line: build a dataset, import photographs, or look a dataset over.

python -m tfds_builders build multiview_clevr --config raytraced_64
python -m tfds_builders import photographs/ --name my_table
python -m tfds_builders doctor ~/tensorflow_datasets/my_table
"""

import argparse
import sys
from collections.abc import Sequence

from absl import logging

from tfds_builders import commands
from tfds_builders.sources import DataError


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the parsed arguments; `run` among them is the command."""
    parser = argparse.ArgumentParser(
        "python -m tfds_builders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_build(subparsers.add_parser("build", help="build a dataset"))
    commands.add_import(
        subparsers.add_parser("import", help="make a dataset of your photographs")
    )
    commands.add_doctor(subparsers.add_parser("doctor", help="look a dataset over"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; bad input is reported in one line, with exit status 2."""
    options = parse(arguments)
    logging.set_verbosity(logging.ERROR)  # TFDS warns about its own habits.
    try:
        return options.run(options)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
