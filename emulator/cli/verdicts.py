"""Verbs that run a scenario and compute verdicts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from emulator.cli.application import app
from emulator.cli.completion import complete_scenario
from emulator.cli.options import (
    DEFAULT_TOPOLOGY,
    AsJson,
    ContractFile,
    EngineName,
    Expect,
    Followed,
    FollowRun,
    InNetwork,
    Insecure,
    JunitFile,
    Listen,
    MarkdownFile,
    Master,
    NewRunDir,
    ReportDir,
    RuntimeName,
    TopologyFile,
    VerifiedRun,
    VerifiedRunOption,
    verified_run,
)
from emulator.cli.run_command import RunCommand
from emulator.errors import Refused
from emulator.runtimes.verifier import verify_command

Repeat = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        metavar="N",
        min=1,
        max=10_000,
        help="Run the scenario N times, each in a new run directory, and print the worst run first.",
    ),
]
RandomKills = Annotated[
    bool,
    typer.Option(
        "--random-kills",
        help="Kill programs and regions at random between the steps, and start them again before the next step.",
    ),
]
RunSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="S",
        min=0,
        help="Seed of random kills, and of `chaos` steps without a seed; each repetition has the next one. "
        "Default: a new one, which is printed.",
    ),
]


@app.command(
    epilog="Example: geoemu run region-failover --report report; with your service: geoemu run billing.yaml "
    "--repeat 20 --random-kills"
)
def run(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO",
            help="A scenario file, or the name of a shipped scenario.",
            autocompletion=complete_scenario,
        ),
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
    follow: FollowRun = False,
    repeat: Repeat = None,
    random_kills: RandomKills = False,
    seed: RunSeed = None,
) -> None:
    """Start a topology, run a scenario on it, and print the verdict; with --repeat several times, the worst run first.

    Exit code 0 valid, 1 invalid or a limit was missed, 2 unknown; of several runs, that of the worst."""
    options = (scenario, file, runtime, run_dir, report, as_json, expect, junit, markdown, engine)
    places = (listen, insecure, follow)
    if repeat is None and seed is None and not random_kills:
        raise typer.Exit(asyncio.run(RunCommand(*options, *places).perform()))
    from emulator.cli.repeat import RepeatCommand, SeededRun

    first = secrets.randbelow(1_000_000) if seed is None else seed
    seeded = SeededRun(*options, *places, seed=first, random_kills=random_kills)
    if repeat is None:
        raise typer.Exit(asyncio.run(seeded.perform()))
    single = {"--report": report, "--junit": junit, "--markdown": markdown, "--follow": follow}
    if given := next((option for option, value in single.items() if value), None):
        raise typer.BadParameter("applies to a single run, not to --repeat", param_hint=given)
    raise typer.Exit(asyncio.run(RepeatCommand(seeded, repeat, as_json).perform()))


@app.command(epilog="Example: geoemu verify .geoemu/runs/1 --json")
def verify(
    directory: VerifiedRun = None,
    run_dir: VerifiedRunOption = None,
    master: Master = None,
    in_network: InNetwork = False,
    report: ReportDir = None,
    as_json: AsJson = False,
    expect: Expect = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    engine: EngineName = None,
    message: Followed = None,
    contract: ContractFile = None,
    follow: FollowRun = False,
) -> None:
    """Check the stored logs of a run against its clients' histories. Exit code 0 valid, 1 invalid or a
    limit was missed, 2 unknown."""
    if master is not None and engine == "embedded":
        raise typer.BadParameter("only Spark uses a cluster", param_hint="--engine")
    options = {
        "master": master,
        "report": report,
        "expect": expect,
        "junit": junit,
        "markdown": markdown,
        "engine": engine,
        "message": message,
        "follow": follow,
    }
    path = verified_run(directory, run_dir)
    if contract is not None:
        _store_contract(contract, path)
    command = _command_in_network if in_network else _command_here
    raise typer.Exit(_perform(command(path, as_json, options), follow=follow))


def _store_contract(file: Path, run_dir: Path) -> None:
    """Store what a contract file requires in a run directory. Raises ConfigurationError for an invalid file, Refused
    for a directory without a run."""
    from emulator.scenarios.contract_file import load_contract
    from spark_jobs.sources.run_folder import looks_like_a_run

    terms = load_contract(file)
    if not looks_like_a_run(run_dir):
        raise Refused(f"{run_dir} is not a run directory; use one that `geoemu up` or `geoemu run` created")
    terms.store(run_dir)


def _command_here(path: Path, as_json: bool, options: Mapping[str, Any]) -> list[str]:
    others = {name: value for name, value in options.items() if name != "message"}
    return verify_command(path, as_json=as_json, messages=options["message"] or (), **others)


def _command_in_network(path: Path, as_json: bool, options: Mapping[str, Any]) -> list[str]:
    """Return the command of a verdict in a container. Raises BadParameter for options that have no effect there."""
    from emulator.runtimes.verifier import in_network_command

    follow = bool(options["follow"])
    if unsupported := next((name for name, given in options.items() if given and name != "follow"), None):
        raise typer.BadParameter(
            f"--{unsupported} applies only to a verdict on this machine", param_hint="--in-network"
        )
    return in_network_command(path.resolve(), as_json=as_json, follow=follow)


def _perform(command: list[str], *, follow: bool) -> int:
    """Compute and print the verdict, and return the exit code."""
    from emulator.runtimes.verifier import follow_now, verify_now

    if follow:
        return follow_now(command)
    verdict = verify_now(command)
    print(verdict.output, end="")
    return verdict.exit_code
