"""Run one scenario: start its regions and the verifier, run its steps, print the verdict."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from emulator import __version__
from emulator.cli.application import (
    INTERRUPTED_EXIT_CODE,
    Interruption,
    done_or_interrupted,
    interruption,
)
from emulator.cli.options import DEFAULT_TOPOLOGY
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
        self._record(run, scenario)
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
        return shlex.join(["geoemu", "run", str(self.scenario), *given, *self._seed_options()])

    def _seed_options(self) -> list[str]:
        """Return the options that decide what is random in a run."""
        return []

    def _record(self, run: Runtime, scenario: Scenario) -> None:
        """Write the manifest to the run directory, and limits and contracts, so that every verdict on the run checks
        them."""
        write_manifest(
            run.run_dir,
            __version__,
            self._command,
            scenario=scenario.name,
            description=scenario.description,
            steps=[step.text for step in scenario.steps],
        )
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
