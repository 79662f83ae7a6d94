"""Verbs of a whole run: what is declared comes up, is told about, and is taken down."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from emulator import __version__
from emulator.cli.options import (
    DEFAULT_TOPOLOGY,
    AsCurl,
    AsJson,
    Insecure,
    Listen,
    LogFormat,
    NewRunDir,
    Region,
    RunDir,
    RuntimeName,
    TopologyFile,
)
from emulator.cli.verbs.acting import open_run_of, print_curl
from emulator.cli.verbs.application import app


@app.command(epilog="Example: geoemu check -f topology.yaml")
def check(file: TopologyFile = DEFAULT_TOPOLOGY) -> None:
    """Validate a topology and print all errors."""
    from emulator.config.loading import load_topology

    topology = load_topology(file)
    print(
        f"{file} is fine: {_count(topology.regions, 'region')} in {_count(topology.clusters, 'cluster')}, "
        f"{_count(topology.links, 'link')}, {_count(topology.namespaces, 'namespace')}"
    )


@app.command(epilog="Example: geoemu up -f topology.yaml --detach")
def up(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    runtime: RuntimeName = None,
    run_dir: NewRunDir = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help=("Return when all regions are ready; `geoemu down` ends the run.")
        ),
    ] = False,
    log_format: LogFormat = "text",
    listen: Listen = None,
    insecure: Insecure = False,
) -> None:
    """Start a new run with all regions of a topology. Ctrl-C ends it, unless detached."""
    from emulator.cli.session import come_up
    from emulator.config.loading import load_topology
    from emulator.run.manifest import note_made_by
    from emulator.runtimes.listening import listening_on
    from emulator.runtimes.opening import create_run

    topology = listening_on(load_topology(file), listen)
    run = create_run(
        runtime or topology.runtime,
        topology,
        run_dir,
        detached=detach,
        log_format=log_format,
        insecure=insecure,
    )
    given = [] if file == DEFAULT_TOPOLOGY else ["--file", str(file)]
    given += [] if runtime is None else ["--runtime", runtime]
    given += [] if log_format == "text" else ["--log-format", log_format]
    given += [] if listen is None else ["--listen", listen]
    given += ["--insecure"] if insecure else []
    note_made_by(run.run_dir, __version__, shlex.join(["geoemu", "up", *given]))
    raise typer.Exit(asyncio.run(come_up(run, stay=not detach)))


@app.command(
    epilog="Example: geoemu render -o containers; docker compose -f containers/compose.yaml up --detach --wait"
)
def render(
    file: TopologyFile = DEFAULT_TOPOLOGY,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="A new folder that becomes a run directory."),
    ] = Path("containers"),
    log_format: LogFormat = "text",
    dashboards: Annotated[
        bool,
        typer.Option("--dashboards", help="Add Prometheus and Grafana, in the Compose profile `dashboards`."),
    ] = False,
    listen: Listen = None,
    insecure: Insecure = False,
) -> None:
    """Write the files that `up --runtime compose` would use, without starting anything."""
    from emulator.config.loading import load_topology
    from emulator.runtimes.compose import render as render_run
    from emulator.runtimes.listening import listening_on

    topology = listening_on(load_topology(file), listen)
    render_run(topology, output, log_format=log_format, dashboards=dashboards, insecure=insecure)
    print(
        f"{output}/compose.yaml is written: `docker compose --file {output}/compose.yaml up --detach --wait`"
    )
    if dashboards:
        print("with --profile dashboards before `up`: dashboards at http://127.0.0.1:3000")


@app.command(epilog="Example: geoemu status --json")
def status(as_json: AsJson = False, as_curl: AsCurl = False, run_dir: RunDir = None) -> None:
    """Show the present state of all regions and links, and subscriptions that only some regions replicate."""
    from emulator.cli.curl import Request
    from emulator.cli.explain import CONFLICTS, replication_conflicts
    from emulator.cli.output import show_status, status_as_json

    if as_curl:
        for target in ("/geoemu/v1/status", CONFLICTS):
            print_curl(run_dir, Request("GET", target))
        return
    found = asyncio.run(open_run_of(run_dir).status())
    conflicts = asyncio.run(replication_conflicts(found))
    if as_json:
        print(json.dumps(status_as_json(found, conflicts), indent=1))
    else:
        show_status(found, conflicts)


@app.command(epilog="Example: geoemu down")
def down(run_dir: RunDir = None) -> None:
    """Stop all regions gracefully and end the run. The run directory stays."""
    run = open_run_of(run_dir)

    async def end() -> str:
        was_over = (await run.status()).ended
        await run.down()  # all the same: what somebody started by hand ends, too
        return "had already ended" if was_over else "has ended"

    print(f"the run in {run.run_dir} {asyncio.run(end())}")


@app.command(epilog="Example: geoemu logs us-east -f")
def logs(
    region: Region,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until Ctrl-C.")] = False,
    run_dir: RunDir = None,
) -> None:
    """Print the output of a region."""

    async def print_lines() -> None:
        async for line in open_run_of(run_dir).logs(region, follow=follow):
            print(line, flush=follow)

    asyncio.run(print_lines())


def _count(things: tuple[object, ...], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
