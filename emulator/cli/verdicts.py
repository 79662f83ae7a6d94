"""Verbs that run a scenario and compute verdicts."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from emulator import __version__
from emulator.cli.application import (
    INTERRUPTED_EXIT_CODE,
    Interruption,
    app,
    done_or_interrupted,
    interruption,
)
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
from emulator.errors import Refused, RuntimeFailure
from emulator.run.limits import LIMITS_FILE, as_text, parse_limits
from emulator.run.manifest import write_manifest
from emulator.run.service_contract import write_contract
from emulator.runtimes.contract import Runtime
from emulator.runtimes.listening import listening_on
from emulator.runtimes.opening import create_run
from emulator.runtimes.spinner import spinner
from emulator.runtimes.verifier import VerifierResult, WaitingVerifier, verify_command

if TYPE_CHECKING:
    from emulator.config.topology import Topology
    from emulator.scenarios.run_context import ScenarioEnvironment
    from emulator.scenarios.scenario import Scenario


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
    follow: FollowRun = False,
) -> None:
    """Start a topology, run a scenario on it, and print the verdict.

    Exit code 0 valid, 1 invalid or a limit was missed, 2 unknown."""
    command = RunCommand(
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
        follow,
    )
    raise typer.Exit(asyncio.run(command.perform()))


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

    if unsupported := next((option for option, given in options.items() if given), None):
        raise typer.BadParameter(
            f"--{unsupported} applies only to a verdict on this machine", param_hint="--in-network"
        )
    return in_network_command(path.resolve(), as_json=as_json)


def _perform(command: list[str], *, follow: bool) -> int:
    """Compute and print the verdict, and return the exit code."""
    from emulator.runtimes.verifier import follow_now, verify_now

    if follow:
        return follow_now(command)
    verdict = verify_now(command)
    print(verdict.output, end="")
    return verdict.exit_code


@dataclass(frozen=True, slots=True)
class RunCommand:
    scenario: Path
    topology: Path
    runtime: str | None
    run_dir: Path | None
    report: Path | None
    as_json: bool
    expect: str | None = None
    """Limits that replace those of the scenario."""
    junit: Path | None = None
    markdown: Path | None = None
    engine: Literal["spark", "embedded"] | None = None
    listen: str | None = None
    insecure: bool = False
    follow: bool = False

    async def perform(self) -> int:
        """Run the scenario, print the verdict and return the exit code. After an error all regions are stopped."""
        topology, scenario = self._read()
        engine = choose_engine(self.engine)
        run = create_run(self.runtime or topology.runtime, topology, self.run_dir, insecure=self.insecure)
        self._write_limits(run, scenario)
        write_manifest(
            run.run_dir,
            __version__,
            self._command,
            scenario=scenario.name,
            description=scenario.description,
            steps=[step.text for step in scenario.steps],
        )
        with interruption() as signals:
            execution = asyncio.create_task(self._run_on(run, scenario, engine))
            await self._until_done_or_interrupted(execution, signals)
            if execution.done():
                return self._print_verdict(await execution)
            self._print_line("interrupted: stopping all regions")
            execution.cancel()
            with suppress(asyncio.CancelledError):
                await execution
            self._print_line(f"all regions and actors have stopped; the recorded history is in {run.run_dir}")
            return INTERRUPTED_EXIT_CODE

    async def _until_done_or_interrupted(
        self, execution: asyncio.Task[VerifierResult], signals: Interruption
    ) -> None:
        await done_or_interrupted(execution, signals)

    def _read(self) -> tuple[Topology, Scenario]:
        from emulator.config.loading import load_topology
        from emulator.scenarios.scenario import find_scenario, load_scenario

        topology = listening_on(load_topology(self.topology), self.listen)
        scenario = load_scenario(find_scenario(self.scenario), topology)
        return scenario.settings.obeyed_by(topology), scenario

    @property
    def _command(self) -> str:
        """The command that creates a run like this one."""
        options = [
            ("--file", None if self.topology == DEFAULT_TOPOLOGY else self.topology),
            ("--runtime", self.runtime),
            ("--expect", self.expect),
            ("--listen", self.listen),
        ]
        given = [word for option, value in options if value is not None for word in (option, str(value))]
        given += ["--insecure"] if self.insecure else []
        return shlex.join(["geoemu", "run", str(self.scenario), *given])

    def _write_limits(self, run: Runtime, scenario: Scenario) -> None:
        """Store limits and contracts in the run directory, so that every verdict on the run checks them."""
        limits = parse_limits(self.expect) if self.expect is not None else scenario.limits
        if limits:
            (run.run_dir / LIMITS_FILE).write_text(as_text(limits) + "\n")
        if scenario.contract:
            write_contract(run.run_dir, scenario.contract)

    async def _run_on(self, run: Runtime, scenario: Scenario, engine: str) -> VerifierResult:
        verifier: WaitingVerifier | None = None
        try:
            # The verifier is started first, because it takes longer than regions until it is ready.
            verifier = await WaitingVerifier.start(
                verify_command(
                    run.run_dir,
                    engine=engine,
                    report=self.report,
                    as_json=self.as_json,
                    wait=True,
                    junit=self.junit,
                    markdown=self.markdown,
                    follow=self.follow,
                ),
                self._print_followed if self.follow else None,
            )
            self._print_line(f"starting {len(run.topology.regions)} regions; run directory: {run.run_dir}")
            with spinner("starting", self._progress_stream):
                await run.up()
            await self._execute(run, scenario)
            # `down` follows later, because it also stops the regions' own Kafkas, which the verifier reads.
            await asyncio.gather(*(run.stop(region) for region in run.topology.region_names))
            self._print_line("verifying …")
            with spinner("verifying", self._progress_stream):
                return await verifier.verify()
        finally:
            if verifier is not None:
                await verifier.end()
            with suppress(RuntimeFailure):
                await run.down()

    async def _execute(self, run: Runtime, scenario: Scenario) -> None:
        from rich.console import Console

        from emulator.scenarios.progress import progress_for
        from emulator.scenarios.runner import execute_scenario

        progress = progress_for(Console(file=self._progress_stream))
        try:
            await execute_scenario(scenario, run, progress, self._environment(run))
        finally:
            progress.close()

    def _environment(self, run: Runtime) -> ScenarioEnvironment:
        from emulator.scenarios.run_context import real_environment

        return real_environment(run)

    def _print_followed(self, line: str) -> None:
        with suppress(OSError):
            print(line, flush=True)

    def _print_verdict(self, verdict: VerifierResult) -> int:
        if not self.follow:  # else each line was printed when it arrived
            print(verdict.output, end="", flush=True)
        print(verdict.error_output, end="", file=sys.stderr, flush=True)
        return verdict.exit_code

    @property
    def _progress_stream(self) -> IO[str]:
        """Stream for all output except the result."""
        return sys.stderr if self.as_json else sys.stdout

    def _print_line(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=self._progress_stream, flush=True)


def choose_engine(name: Literal["spark", "embedded"] | None) -> str:
    """Return the engine that computes the verdict, and print a remark on a default. Raises Refused if the engine is not
    available."""
    from spark_jobs.engines.starting import choose, why_not

    engine, remark = choose(name)
    if problem := why_not(engine):
        raise Refused(problem)
    if remark:
        print(remark, file=sys.stderr)
    return engine
