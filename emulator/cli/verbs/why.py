"""`geoemu explain` and `geoemu diff`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import (
    AsCurl,
    AsJson,
    ExplainedKind,
    ExplainedName,
    OnlyRegion,
    RunDir,
)
from emulator.cli.verbs.acting import open_run_of, print_curl
from emulator.cli.verbs.application import app


@app.command(epilog="Example: geoemu explain replication orders eu-central")
def explain(
    kind: ExplainedKind,
    name: ExplainedName,
    region: OnlyRegion = None,
    as_json: AsJson = False,
    as_curl: AsCurl = False,
    run_dir: RunDir = None,
) -> None:
    """Show the state of a topic, subscription or link and why it is waiting."""
    from emulator.cli.explain import as_json as answers_as_json
    from emulator.cli.explain import as_text, ask_regions, request_of

    if as_curl:
        print_curl(run_dir, request_of(kind, name), None if region is None else [region])
        return
    said = asyncio.run(ask_regions(open_run_of(run_dir), kind, name, region))
    print(answers_as_json(kind, name, said) if as_json else as_text(said))
    raise typer.Exit(0 if any(one.explanation for one in said) else 1)


@app.command(epilog="Example: geoemu diff .geoemu/runs/1 .geoemu/runs/2")
def diff(
    one: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another run directory.")],
    as_json: AsJson = False,
) -> None:
    """Compare the configuration of two runs: regions, settings, links, policies. Exit code 1 if they
    differ."""
    from emulator.cli.differences import as_json as differences_as_json
    from emulator.cli.differences import as_text, differences

    found = differences(one, other)
    print(differences_as_json(found) if as_json else as_text(found, one, other))
    raise typer.Exit(1 if found else 0)
