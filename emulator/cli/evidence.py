"""Verbs for the evidence of runs: `export` writes it as tables, `sweep` evaluates many runs."""

from __future__ import annotations

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

ExportMaster = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="URL of a Spark cluster whose executors write the tables. Default: written without Spark.",
    ),
]


@app.command(epilog="Example: geoemu export .geoemu/runs/1 --to /shared/run-1")
def export(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The new directory of the export.")],
    directory: VerifiedRun = None,
    run_dir: VerifiedRunOption = None,
    master: ExportMaster = None,
    as_json: AsJson = False,
) -> None:
    """Write the tables of a run as partitioned Parquet, without payloads. `geoemu verify DIR` computes the verdict on
    them, and docs/SPARK.md describes them."""
    from emulator.runtimes.verifier import export_command, verify_now
    from spark_jobs.sources.export_folder import ExportUnreadable
    from spark_jobs.tables.export import ExportRefused, export_run

    path = verified_run(directory, run_dir)
    if master is not None:
        result = verify_now(export_command(path, to, master=master, as_json=as_json))
        print(result.output, end="")
        raise typer.Exit(result.exit_code)
    try:
        done = export_run(path, to)
    except (ExportRefused, ExportUnreadable) as problem:
        raise Refused(str(problem)) from None
    except OSError as problem:
        raise Refused(f"{to} cannot be written: {problem}") from None
    print(done.as_json() if as_json else done.as_text())


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
