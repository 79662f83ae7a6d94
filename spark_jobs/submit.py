"""The program that `spark-submit` starts: a verdict, a sweep or an export on the cluster that its user names there.

    spark-submit --master URL --py-files geoemu.zip geoemu_submit.py verify RUN_DIR

`python -m spark_jobs.pack` copies this file to `geoemu_submit.py`, because `spark-submit` takes a file and no module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

VERBS = ("verify", "sweep", "export")
"""Modules of this package."""
USAGE = """\
usage: geoemu_submit.py verify|sweep|export ARGUMENT...
  verify RUN_DIR           compute the verdict on a run, and write a report
  sweep DIR...             compute the verdicts on many runs, and print the worst first
  export RUN_DIR --to DIR  write the tables of a run as partitioned Parquet
Each lists its options with --help."""


def main(arguments: Sequence[str]) -> int:
    verb, rest = (arguments[0], list(arguments[1:])) if arguments else ("", [])
    if verb not in VERBS:
        print(USAGE, file=sys.stdout if verb in ("-h", "--help") else sys.stderr)
        return 0 if verb in ("-h", "--help") else 2
    return int(import_module(f"spark_jobs.{verb}").main(rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
