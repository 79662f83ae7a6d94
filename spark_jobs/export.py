"""`python -m spark_jobs.export RUN_DIR --to DIR`: write the tables of a run as Parquet, by tasks of a Spark cluster.

The driver and all executors must see both directories. `geoemu export` without `--master` uses no Spark. Exit code 2,
with a sentence on standard error: there is no export.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from spark_jobs.engines.masters import DEFAULT_MASTER
from spark_jobs.engines.starting import started
from spark_jobs.sources.export_folder import ExportedFile, ExportUnreadable
from spark_jobs.tables.export import ExportRefused, ExportResult, WriteTask, export_run, performed
from spark_jobs.verdict import EXIT_CODES
from spark_jobs.verify import exit_code_of


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return exit_code_of(lambda: _perform(options))


def _perform(options: argparse.Namespace) -> int:
    try:
        done = export_with_spark(
            options.run_dir, options.to, master=options.master, in_network=options.in_network
        )
    except (ExportRefused, ExportUnreadable) as problem:
        print(problem, file=sys.stderr)
        return EXIT_CODES["unknown"]
    except OSError as problem:
        print(f"{options.to} cannot be written: {problem}", file=sys.stderr)
        return EXIT_CODES["unknown"]
    print(done.as_json() if options.json else done.as_text(), flush=True)
    return 0


def export_with_spark(
    run: Path, to: Path, *, master: str | None = None, in_network: bool = False
) -> ExportResult:
    """Write the tables of a run by tasks of Spark. Raises EngineUnavailable, and as `export_run`."""
    with started("spark", master=master) as engine:

        def perform(tasks: Iterable[WriteTask]) -> list[ExportedFile]:
            some = list(tasks)
            context = engine.session.sparkContext  # type: ignore[attr-defined]
            return list(context.parallelize(some, len(some)).flatMap(performed).collect()) if some else []

        return export_run(run, to, in_network=in_network, perform=perform)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.export",
        description="Write the tables of a run as partitioned Parquet, by the tasks of a Spark cluster.",
        epilog="example: python -m spark_jobs.export /shared/runs/1 --to /shared/run-1 --master spark://HOST:7077",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of the run")
    parser.add_argument(
        "--to", type=Path, metavar="DIR", required=True, help="the new directory of the export"
    )
    parser.add_argument(
        "--master",
        help=f"use this Spark cluster, which must see both directories (default: {DEFAULT_MASTER})",
    )
    parser.add_argument(
        "--in-network", action="store_true", help="connect to the regions from a container in their network"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
