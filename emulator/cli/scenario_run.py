"""`geoemu run`: the whole job. Regions up, a scenario played on them, regions down, a verdict."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from emulator import __version__
from emulator.cli.interruption import INTERRUPTED_EXIT_CODE, interruption
from emulator.cli.options import DEFAULT_TOPOLOGY
from emulator.cli.spinner import patience
from emulator.cli.verifier import Verdict, WaitingVerifier, verify_command
from emulator.errors import Refused, RuntimeFailure
from emulator.run.limits import LIMITS_FILE, as_text, parse_limits
from emulator.run.manifest import note_made_by
from emulator.run.service_contract import write_answers
from emulator.runtimes.contract import Runtime
from emulator.runtimes.listening import listening_on
from emulator.runtimes.opening import create_run

if TYPE_CHECKING:
    from emulator.config.topology import Topology
    from emulator.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Drill:
    """What was typed."""

    scenario: Path
    topology: Path
    runtime: str | None
    run_dir: Path | None
    report: Path | None
    as_json: bool
    expect: str | None = None
    """Limits, instead of those of the scenario."""
    junit: Path | None = None
    markdown: Path | None = None
    engine: Literal["spark", "embedded"] | None = None
    listen: str | None = None
    insecure: bool = False

    async def perform(self) -> int:
        """The exit code. Raises before anything was started, or when regions failed and are down again."""
        topology, scenario = self._read()
        engine = _engine(self.engine)
        run = create_run(self.runtime or topology.runtime, topology, self.run_dir, insecure=self.insecure)
        self._note_limits(run, scenario)
        note_made_by(
            run.run_dir,
            __version__,
            self._command,
            scenario=scenario.name,
            description=scenario.description,
            steps=[step.text for step in scenario.steps],
        )
        with interruption() as told:
            working = asyncio.create_task(self._perform_on(run, scenario, engine))
            telling = asyncio.create_task(told.wait())
            await asyncio.wait({working, telling}, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
            if working.done():
                return self._tell(await working)
            self._say("interrupted: stopping all regions")
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            self._say(f"all regions and actors have stopped; the recorded history is in {run.run_dir}")
            return INTERRUPTED_EXIT_CODE

    def _read(self) -> tuple[Topology, Scenario]:
        from emulator.config.loading import load_topology
        from emulator.scenarios.scenario import find_scenario, load_scenario

        topology = listening_on(load_topology(self.topology), self.listen)
        scenario = load_scenario(find_scenario(self.scenario), topology)
        return scenario.settings.obeyed_by(topology), scenario

    @property
    def _command(self) -> str:
        """What makes another run like this one."""
        options = [
            ("--file", None if self.topology == DEFAULT_TOPOLOGY else self.topology),
            ("--runtime", self.runtime),
            ("--expect", self.expect),
            ("--listen", self.listen),
        ]
        given = [word for option, value in options if value is not None for word in (option, str(value))]
        given += ["--insecure"] if self.insecure else []
        return shlex.join(["geoemu", "run", str(self.scenario), *given])

    def _note_limits(self, run: Runtime, scenario: Scenario) -> None:
        """In the run directory, so that every later verdict on the run holds it against them."""
        limits = parse_limits(self.expect) if self.expect is not None else scenario.limits
        if limits:
            (run.run_dir / LIMITS_FILE).write_text(as_text(limits) + "\n")
        if scenario.contract:
            write_answers(run.run_dir, scenario.contract)

    async def _perform_on(self, run: Runtime, scenario: Scenario, engine: str) -> Verdict:
        verifier: WaitingVerifier | None = None
        try:
            # First: it has the more to do before it is ready.
            verifier = await WaitingVerifier.start(
                verify_command(
                    run.run_dir,
                    engine=engine,
                    report=self.report,
                    as_json=self.as_json,
                    wait=True,
                    junit=self.junit,
                    markdown=self.markdown,
                )
            )
            self._say(f"starting {len(run.topology.regions)} regions; run directory: {run.run_dir}")
            with patience("starting", self._talk):
                await run.up()
            await self._play(run, scenario)
            # Not `down` yet: a Kafka that was started for the regions is read before it goes, too.
            await asyncio.gather(*(run.stop(region) for region in run.topology.region_names))
            self._say("verifying …")
            with patience("verifying", self._talk):
                return await verifier.verify()
        finally:
            if verifier is not None:
                await verifier.end()
            with suppress(RuntimeFailure):
                await run.down()

    async def _play(self, run: Runtime, scenario: Scenario) -> None:
        from rich.console import Console

        from emulator.scenarios.progress import progress_for
        from emulator.scenarios.runner import play

        progress = progress_for(Console(file=self._talk))
        try:
            await play(scenario, run, progress)
        finally:
            progress.close()

    def _tell(self, verdict: Verdict) -> int:
        print(verdict.output, end="", flush=True)
        print(verdict.complaints, end="", file=sys.stderr, flush=True)
        return verdict.exit_code

    @property
    def _talk(self) -> IO[str]:
        """Where everything goes that is not the result."""
        return sys.stderr if self.as_json else sys.stdout

    def _say(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=self._talk, flush=True)


def _engine(name: Literal["spark", "embedded"] | None) -> str:
    """Who judges. Refused before anything was started where that one cannot."""
    from spark_jobs.engines.starting import choose, why_not

    engine, remark = choose(name)
    if problem := why_not(engine):
        raise Refused(problem)
    if remark:
        print(remark, file=sys.stderr)
    return engine
