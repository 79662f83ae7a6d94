"""Verbs that play a story and tell verdicts, and those that record what a verdict needs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import (
    DEFAULT_TOPOLOGY,
    AsJson,
    EngineName,
    Expect,
    Followed,
    Insecure,
    JunitFile,
    Listen,
    MarkdownFile,
    NewRunDir,
    ReportDir,
    RunDir,
    RuntimeName,
    TopologyFile,
    seconds,
)
from emulator.cli.verbs.acting import open_run_of
from emulator.cli.verbs.application import app


@app.command(epilog="Example: geoemu run region-failover --report report")
def run(
    scenario: Annotated[
        Path,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped scenario."),
    ],
    file: TopologyFile = DEFAULT_TOPOLOGY,
    runtime: RuntimeName = None,
    run_dir: NewRunDir = None,
    report: ReportDir = None,
    as_json: AsJson = False,
    expect: Expect = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    engine: EngineName = None,
    listen: Listen = None,
    insecure: Insecure = False,
) -> None:
    """Start a topology, run a scenario on it, and print the verdict.

    Exit code 0 valid, 1 invalid or a limit was missed, 2 unknown."""
    from emulator.cli.scenario_run import Drill

    drill = Drill(
        scenario,
        file,
        runtime,
        run_dir,
        report,
        as_json,
        expect,
        junit,
        markdown,
        engine,
        listen,
        insecure,
    )
    raise typer.Exit(asyncio.run(drill.perform()))


@app.command(epilog="Example: geoemu verify .geoemu/runs/1 --json")
def verify(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="RUN_DIR", help="The run directory. Default: the latest run of this folder."),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help=("The run directory, instead of RUN_DIR."))
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help=("URL of a Spark cluster. Default: a local Spark.")),
    ] = None,
    in_network: Annotated[
        bool,
        typer.Option(
            "--in-network", help=("Verify in a container beside the regions; this machine needs no Java.")
        ),
    ] = False,
    report: ReportDir = None,
    as_json: AsJson = False,
    expect: Expect = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    engine: EngineName = None,
    message: Followed = None,
) -> None:
    """Check the stored logs of a run against its clients' histories. Exit code 0 valid, 1 invalid or a
    limit was missed, 2 unknown."""
    from emulator.cli.verifier import in_network_command, verify_command, verify_now
    from emulator.run.directory import find_run

    if directory and run_dir and directory != run_dir:
        raise typer.BadParameter("name one run directory only", param_hint="--run-dir")
    if master is not None and engine == "embedded":
        raise typer.BadParameter("only Spark uses a cluster", param_hint="--engine")
    path = directory or run_dir or find_run(None).path
    if in_network:
        here_only = {
            "--master": master,
            "--report": report,
            "--expect": expect,
            "--junit": junit,
            "--markdown": markdown,
            "--engine": engine,
            "--message": message,
        }
        if unfit := next((option for option, given in here_only.items() if given), None):
            raise typer.BadParameter(
                f"{unfit} applies only to a verdict on this machine", param_hint="--in-network"
            )
        command = in_network_command(path.resolve(), as_json=as_json)
    else:
        command = verify_command(
            path,
            master=master,
            engine=engine,
            report=report,
            as_json=as_json,
            expect=expect,
            junit=junit,
            markdown=markdown,
            messages=message or (),
        )
    verdict = verify_now(command)
    print(verdict.output, end="")
    raise typer.Exit(verdict.exit_code)


@app.command(epilog="Example: geoemu tap; then start the service with the service URLs that it prints")
def tap(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the history file.")] = "wire",
    run_dir: RunDir = None,
) -> None:
    """Record clients of any language: open a proxy port in front of each region until Ctrl-C."""
    from emulator.cli.tap import tap_run

    asyncio.run(tap_run(open_run_of(run_dir), name))


@app.command(epilog="Example: geoemu seal shop")
def seal(
    actors: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="History files, without their suffix.", autocompletion=_complete_actor
        ),
    ],
    run_dir: RunDir = None,
) -> None:
    """Close the history of programs that will not come back; their pending operations stay unknown."""
    from emulator.recording.sealing import seal_actors

    for sentence in seal_actors(run_dir, actors):
        print(sentence)


def _complete_actor(context: typer.Context, incomplete: str) -> list[str]:
    from emulator.recording.sealing import unsealed

    return unsealed(context.params.get("run_dir"), incomplete)


def _complete_world(incomplete: str) -> list[str]:
    from emulator.cli.simulate import worlds

    return [name for name in worlds() if name.startswith(incomplete)]


@app.command(epilog="Example: geoemu simulate region-failover --seeds 50 --jobs 2")
def simulate(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help=(
                "A scenario, as for `run`, or a workload: swarm (random), failover, no-faults, or another one "
                "of --list."
            ),
            autocompletion=_complete_world,
        ),
    ] = "swarm",
    list_: Annotated[
        bool,
        typer.Option("--list", help="List workloads and scenarios, and exit."),
    ] = False,
    file: TopologyFile = DEFAULT_TOPOLOGY,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=1,
            help=("Number of seeds. Default: 100, or as many as the time budget allows."),
        ),
    ] = None,
    first: Annotated[int, typer.Option("--from", metavar="S", min=0, help="The first seed.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", metavar="J", min=1, help="Number of processes.")] = 1,
    time_budget: Annotated[
        float | None,
        typer.Option(
            "--time-budget", metavar="TIME", parser=seconds, help=("Stop after this time: 90s, or 90.")
        ),
    ] = None,
    shrink: Annotated[bool, typer.Option("--shrink", help="Minimise the first failing seed.")] = False,
    without: Annotated[
        str | None,
        typer.Option(
            "--without", metavar="MUTANT", help="Remove one safeguard; docs/INVARIANTS.md lists the mutants."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run-dir",
            metavar="DIR",
            help="Run directory of the first failing seed. Default: a new one in .geoemu/simulated.",
        ),
    ] = None,
) -> None:
    """Run randomised faults against the brokers in virtual time. Exit code 0 if no seed failed, else 1."""
    from emulator.cli.interruption import INTERRUPTED_EXIT_CODE
    from emulator.cli.simulate import Simulate, tell_worlds

    if list_:
        tell_worlds()
        return
    if seeds is None and time_budget is None:
        seeds = 100
    try:
        exit_code = Simulate(
            subject, file, seeds, first, jobs, time_budget, shrink, without, run_dir
        ).perform()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    raise typer.Exit(exit_code)
