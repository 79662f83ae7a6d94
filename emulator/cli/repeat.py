"""Runs of a scenario with a seed, and `geoemu run --repeat`: many runs, and a summary with the worst run first."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.cli.application import INTERRUPTED_EXIT_CODE
from emulator.cli.run_command import RunCommand
from emulator.errors import ConfigurationError, GeoemuError, Refused
from emulator.runtimes.contract import Runtime
from emulator.runtimes.listening import listening_on
from emulator.runtimes.verifier import VerifierResult
from spark_jobs.verdict import EXIT_CODES, worst_first

if TYPE_CHECKING:
    from emulator.config.topology import Topology
    from emulator.scenarios.run_context import ScenarioEnvironment
    from emulator.scenarios.scenario import Scenario

SCENARIO_FILE = "scenario.yaml"
"""File in a run directory with the scenario and its random kills."""


@dataclass(slots=True)
class Repetition:
    """One run of a scenario: its seed, and what became of it."""

    seed: int
    command: str = ""
    """The command that repeats it."""
    run_dir: Path | None = None
    exit_code: int = EXIT_CODES["unknown"]
    verdict: str = "unknown"
    headline: str = ""
    checks: tuple[str, ...] = ()
    """Checks that have the verdict of the run, unless it is valid."""
    limits: tuple[str, ...] = ()
    """Limits that were not kept."""

    def judge(self, result: VerifierResult) -> None:
        """Take over the verdict of the verifier; a verifier without output means unknown."""
        self.exit_code = result.exit_code
        if not result.output:
            self.headline = result.error_output.strip() or "no verdict was computed"
            return
        report = json.loads(result.output)
        self.verdict, self.headline = report["verdict"], report["headline"]
        if self.verdict != "valid":
            self.checks = tuple(one["name"] for one in report["checks"] if one["verdict"] == self.verdict)
        self.limits = tuple(one["limit"] for one in report["limits"] if one["outcome"] != "kept")

    def as_json(self) -> dict[str, Any]:
        run = None if self.run_dir is None else str(self.run_dir)
        return {
            **{"seed": self.seed, "run": run, "verdict": self.verdict, "exit_code": self.exit_code},
            **{"headline": self.headline, "checks": list(self.checks), "limits": list(self.limits)},
            "command": self.command,
        }

    def as_lines(self) -> list[str]:
        lines = [f"  {self.verdict:<8} seed {self.seed:<7} {self.run_dir or ''}".rstrip()]
        if self.exit_code:
            lines += [f"           {self.headline}"] if self.headline else []
            lines += [f"           checks: {', '.join(self.checks)}"] if self.checks else []
            lines += [f"           limits not kept: {', '.join(self.limits)}"] if self.limits else []
            lines += [f"           repeat: {self.command}"]
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededRun(RunCommand):
    """A run of a scenario whose seed decides random kills, and the `chaos` steps that have no seed of their own."""

    seed: int
    random_kills: bool

    def _read(self) -> tuple[Topology, Scenario]:
        from emulator.config.loading import load_topology
        from emulator.scenarios.scenario import parse_scenario

        if not self.random_kills:
            return RunCommand._read(self)
        topology = listening_on(load_topology(self.topology), self.listen)
        scenario = parse_scenario(self._text(topology), topology, f"{self.scenario} with random kills")
        return scenario.settings.obeyed_by(topology), scenario

    def _text(self, topology: Topology) -> str:
        from emulator.scenarios.chaos.random_kills import with_random_kills
        from emulator.scenarios.scenario import find_scenario

        return with_random_kills(find_scenario(self.scenario), topology, self.seed)

    def _seed_options(self) -> list[str]:
        return [*["--random-kills"] * self.random_kills, "--seed", str(self.seed)]

    def _record(self, run: Runtime, scenario: Scenario) -> None:
        RunCommand._record(self, run, scenario)
        if self.random_kills:
            (run.run_dir / SCENARIO_FILE).write_text(self._text(run.topology))

    def _environment(self, run: Runtime) -> ScenarioEnvironment:
        from emulator.scenarios.chaos.control import ChaosControl
        from emulator.scenarios.run_context import real_environment

        return real_environment(run, ChaosControl(seed=self.seed))

    def _print_verdict(self, verdict: VerifierResult) -> int:
        code = RunCommand._print_verdict(self, verdict)
        self._print_line(f"repeat it: {self._command}")
        return code


@dataclass(frozen=True, slots=True, kw_only=True)
class _RepeatedRun(SeededRun):
    """A run whose verdict is kept for the summary; its progress is printed on standard error."""

    repetition: Repetition

    def _record(self, run: Runtime, scenario: Scenario) -> None:
        SeededRun._record(self, run, scenario)
        self.repetition.run_dir = run.run_dir

    def _print_verdict(self, verdict: VerifierResult) -> int:
        self.repetition.judge(verdict)
        return verdict.exit_code


@dataclass(slots=True)
class RepeatCommand:
    """`geoemu run --repeat N`: the runs with seeds `first`, `first + 1` and so on, one after the other."""

    run: SeededRun
    """The first run; the others differ by seed and run directory."""
    count: int
    as_json: bool
    done: list[Repetition] = field(default_factory=list)

    async def perform(self) -> int:
        """Run them all, print the summary, and return the exit code of the worst run. A run that fails counts as
        unknown; wrong input is reported by the first one. Ctrl-C ends the running one and skips the others."""
        interrupted = False
        for number in range(1, self.count + 1):
            repetition = Repetition(self.run.seed + number - 1)
            interrupted = await self._perform_one(repetition, number) == INTERRUPTED_EXIT_CODE
            if interrupted:
                break
            self.done.append(repetition)
            where = f": {repetition.run_dir}" if repetition.run_dir else ""
            _print_progress(
                f"run {number} of {self.count}, seed {repetition.seed}: {repetition.verdict}{where}"
            )
        ordered = sorted(self.done, key=lambda one: worst_first(one.exit_code, len(one.checks)))
        self._print(ordered)
        return INTERRUPTED_EXIT_CODE if interrupted else ordered[0].exit_code

    async def _perform_one(self, repetition: Repetition, number: int) -> int:
        command = self._command_of(repetition, number)
        repetition.command = command._command
        try:
            return await command.perform()
        except GeoemuError as failure:
            if number == 1 and isinstance(failure, ConfigurationError | Refused):
                raise
            repetition.headline = str(failure)
            return repetition.exit_code

    def _command_of(self, repetition: Repetition, number: int) -> _RepeatedRun:
        fields = {name: getattr(self.run, name) for name in SeededRun.__dataclass_fields__}
        directory = None if self.run.run_dir is None else self.run.run_dir / str(number)
        fields |= {"seed": repetition.seed, "run_dir": directory, "as_json": True}
        return _RepeatedRun(**fields, repetition=repetition)

    def _print(self, ordered: Sequence[Repetition]) -> None:
        if self.as_json:
            worst = ordered[0].exit_code if ordered else EXIT_CODES["unknown"]
            content = {"exit_code": worst, "runs": [one.as_json() for one in ordered]}
            print(json.dumps(content), flush=True)
        elif ordered:
            verdicts = Counter(one.verdict for one in ordered)
            head = ", ".join(
                f"{verdicts[name]} {name}" for name in ("invalid", "unknown", "valid") if verdicts[name]
            )
            runs = f"{len(ordered)} run{'' if len(ordered) == 1 else 's'}"
            print(f"{runs} of {self.run.scenario}: {head}")
            print("\n".join(line for one in ordered for line in one.as_lines()), flush=True)


def _print_progress(line: str) -> None:
    with suppress(OSError):  # after the terminal is closed, the runs still go on
        print(line, file=sys.stderr, flush=True)
