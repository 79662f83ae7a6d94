"""Verbs for the evidence of runs: `export` writes it as tables, `sweep` evaluates many runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.application import app
from emulator.cli.options import (
    AsJson,
    EngineName,
    Expect,
    Master,
    VerifiedRun,
    VerifiedRunOption,
    verified_run,
)
from emulator.errors import Refused


@app.command(epilog="Example: geoemu export .geoemu/runs/1 --to /shared/run-1")
def export(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The new directory of the export.")],
    directory: VerifiedRun = None,
    run_dir: VerifiedRunOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the tables of a run as partitioned Parquet, without payloads. `geoemu verify DIR` computes the verdict on
    them, and docs/SPARK.md describes them."""
    from spark_jobs.sources.export_folder import ExportUnreadable
    from spark_jobs.tables.export import ExportRefused, export_run

    try:
        done = export_run(verified_run(directory, run_dir), to)
    except (ExportRefused, ExportUnreadable) as problem:
        raise Refused(str(problem)) from None
    except OSError as problem:
        raise Refused(f"{to} cannot be written: {problem}") from None
    if as_json:
        print(json.dumps({"export": str(done.folder), "rows": done.rows, "size_bytes": done.size_bytes}))
        return
    for name, rows in done.rows.items():
        print(f"{name:<16}{rows:>12,} rows")
    print(
        f"{done.folder}: {done.size_bytes / 1e6:,.1f} MB; `geoemu verify {done.folder}` computes its verdict"
    )


@app.command(epilog="Example: geoemu sweep .geoemu/runs --engine embedded")
def sweep(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Run directories, exports, or directories that contain them."),
    ],
    master: Master = None,
    engine: EngineName = None,
    as_json: AsJson = False,
    expect: Expect = None,
) -> None:
    """Compute the verdicts on many runs in one session, and print the worst first. Exit code 1 if any run is invalid or
    missed a limit, else 2 if any is unknown."""
    from emulator.runtimes.verifier import sweep_command, verify_now

    if master is not None and engine == "embedded":
        raise typer.BadParameter("only Spark uses a cluster", param_hint="--engine")
    command = sweep_command(directories, master=master, engine=engine, as_json=as_json, expect=expect)
    result = verify_now(command)
    print(result.output, end="")
    raise typer.Exit(result.exit_code)
