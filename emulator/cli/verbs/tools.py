"""`geoemu pulsar-admin`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from emulator.cli.options import RunDir
from emulator.cli.verbs.acting import open_run_of
from emulator.cli.verbs.application import app

Region = Annotated[str, typer.Argument(metavar="REGION", help="The region to query.")]
Arguments = Annotated[
    list[str],
    typer.Argument(metavar="-- ARGUMENTS...", help="Arguments of pulsar-admin, such as topics stats orders."),
]


@app.command(name="pulsar-admin", epilog="Example: geoemu pulsar-admin us-east -- topics stats orders")
def pulsar_admin(region: Region, arguments: Arguments, run_dir: RunDir = None) -> None:
    """Run Java's pulsar-admin against a region. Needs Java, and Maven the first time; any HTTP client works
    as well: docs/ADMIN.md lists the paths."""
    from emulator.cli.pulsar_admin import run_against

    raise typer.Exit(run_against(asyncio.run(open_run_of(run_dir).status()), region, arguments))
