"""`geoemu chaos`: random faults under a workload, a verdict, and the command that repeats them."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from emulator.cli.application import (
    INTERRUPTED_EXIT_CODE,
    Interruption,
    app,
    done_or_interrupted,
    interruption,
)
from emulator.cli.completion import complete_workload
from emulator.cli.options import DEFAULT_TOPOLOGY, AsJson, EngineName, ReportDir, RuntimeName, chaos_seconds
from emulator.cli.run_command import RunCommand, choose_engine
from emulator.runtimes.contract import Runtime
from emulator.runtimes.opening import open_run
from emulator.runtimes.verifier import VerifierResult, verify_command, verify_now

if TYPE_CHECKING:
    from emulator.config.topology import Topology
    from emulator.scenarios.chaos.control import ChaosControl
    from emulator.scenarios.chaos.plan import ChaosPlan
    from emulator.scenarios.run_context import ScenarioEnvironment
    from emulator.scenarios.scenario import Scenario

CATCH_UP_SECONDS = 60.0
"""Time after the faults for replication to catch up."""


Duration = Annotated[
    float,
    typer.Option("--for", metavar="TIME", parser=chaos_seconds, help="Time that the faults take together."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Number that decides the faults and their times. Default: a new one, which is printed.",
    ),
]
ProfileOption = Annotated[
    Literal["mild", "harsh"],
    typer.Option(
        "--profile",
        help="mild: one fault at a time. harsh: several at a time, several regions at once, also clocks and disks.",
    ),
]
WithLoss = Annotated[
    bool, typer.Option("--lose", help="Also lose one region for good, with what only it stored.")
]
Workload = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="SCENARIO",
        help=(
            "Start a new run with the actors of this scenario, without its steps and limits; `built-in`: producers and "
            "consumers in every region. Default: your own clients, on the run of `geoemu up`."
        ),
        autocompletion=complete_workload,
    ),
]
PrintPlan = Annotated[
    bool, typer.Option("--plan", help="Print the faults as a scenario file, and inject none.")
]
NewTopology = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", "--topology", metavar="FILE", help="Topology of a new run. Default: topology.yaml."
    ),
]
EitherRunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="The run directory; with --workload a new one. Default: the latest run of this folder.",
    ),
]


@app.command(
    epilog="Example: geoemu chaos --for 60s --seed 7; without a run: geoemu chaos --workload built-in --seed 7"
)
def chaos(
    duration: Duration = "60s",  # type: ignore[assignment]
    seed: Seed = None,
    profile: ProfileOption = "mild",
    lose: WithLoss = False,
    workload: Workload = None,
    plan: PrintPlan = False,
    file: NewTopology = None,
    runtime: RuntimeName = None,
    run_dir: EitherRunDir = None,
    report: ReportDir = None,
    as_json: AsJson = False,
    engine: EngineName = None,
) -> None:
    """Inject random faults, repair everything, print the verdict and the command that repeats the faults.

    Ctrl-C ends the faults early. Exit code 0 valid, 1 invalid, 2 unknown or a fault failed, 130
    interrupted."""
    number = secrets.randbelow(1_000_000) if seed is None else seed
    chosen = ChaosChoice(duration, number, profile, lose, workload, file, runtime)
    if plan:
        print(chosen.plan_file(run_dir), end="")
        return
    if workload is None:
        for option, given in (("--runtime", runtime), ("--file", file)):
            if given is not None:
                raise typer.BadParameter("needs --workload, which starts a new run", param_hint=option)
        raise typer.Exit(RunningChaos(chosen, run_dir, report, as_json, engine).perform())
    command = WorkloadChaos.of(chosen, run_dir, report, as_json, engine)
    raise typer.Exit(asyncio.run(command.perform()))


@dataclass(frozen=True, slots=True)
class ChaosChoice:
    """The options that decide the faults."""

    seconds: float
    seed: int
    profile: Literal["mild", "harsh"]
    lose: bool
    workload: str | None
    topology: Path | None
    runtime: str | None

    @property
    def command(self) -> str:
        """The command that repeats the faults."""
        options = [("--workload", self.workload), ("--file", self.topology), ("--runtime", self.runtime)]
        given = [word for option, value in options if value is not None for word in (option, str(value))]
        words = ["--for", f"{self.seconds:g}s", "--seed", str(self.seed), "--profile", self.profile]
        return shlex.join(["geoemu", "chaos", *words, *["--lose"] * self.lose, *given])

    def plan_for(self, topology: Topology) -> ChaosPlan:
        from emulator.scenarios.chaos.plan import plan_chaos

        return plan_chaos(topology, self.seed, self.profile, self.seconds, lose=self.lose)

    def plan_file(self, run_dir: Path | None) -> str:
        """Return the plan as a scenario file: for the topology file, or for the run if no file is named and there is
        one."""
        from emulator.config.loading import load_topology
        from emulator.scenarios.chaos.workload import BUILT_IN, find_workload, plan_as_scenario

        if run_dir is not None and self.topology is None:
            topology = open_run(run_dir).topology
        else:
            topology = load_topology(self.topology or DEFAULT_TOPOLOGY)
        return plan_as_scenario(
            find_workload(self.workload or BUILT_IN, topology), self.plan_for(topology), self.command
        )


class FaultLines:
    """Prints faults as they begin and end: on standard error if standard output is for JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, seconds: float, text: str, failure: str | None) -> None:
        problem = "" if failure is None else f"  FAILED: {failure}"
        self.print(f"{seconds:7.2f} s  {text}{problem}")

    def control(self) -> ChaosControl:
        """Return the control of a run that prints its faults here and samples the memory of its regions."""
        from emulator.scenarios.chaos.control import ChaosControl
        from emulator.scenarios.chaos.memory import MemoryCurves

        return ChaosControl(observe=self, memory=MemoryCurves())

    def print_end(self, control: ChaosControl, choice: ChaosChoice) -> None:
        """Print the memory of the regions, and the command that repeats the faults."""
        for line in control.memory.summary() if control.memory else ():
            self.print(line)
        self.print(f"repeat the faults: {choice.command}")

    def print(self, line: str) -> None:
        with suppress(OSError):  # after the terminal is closed, the faults still have to end
            # The live progress replaces sys.stdout while it runs.
            print(line, file=sys.stderr if self._as_json else sys.stdout, flush=True)


@dataclass(frozen=True, slots=True)
class RunningChaos:
    """Random faults on a run that is up."""

    choice: ChaosChoice
    run_dir: Path | None
    report: Path | None
    as_json: bool
    engine: Literal["spark", "embedded"] | None

    def perform(self) -> int:
        """Inject the faults, repair the run, print the verdict and the command. Return the exit code."""
        run = open_run(self.run_dir)
        engine = choose_engine(self.engine)
        lines = FaultLines(as_json=self.as_json)
        control = lines.control()
        interruptions = asyncio.run(self._disturb(run, control, lines))
        if interruptions > 1:
            return INTERRUPTED_EXIT_CODE
        command = verify_command(run.run_dir, engine=engine, report=self.report, as_json=self.as_json)
        verdict = verify_now(command)
        print(verdict.output, end="", flush=True)
        lines.print_end(control, self.choice)
        return INTERRUPTED_EXIT_CODE if interruptions else verdict.exit_code

    async def _disturb(self, run: Runtime, control: ChaosControl, lines: FaultLines) -> int:
        """Inject the faults and repair the run. Return the number of interruptions."""
        from emulator.scenarios.chaos.running import disturb_run

        plan = self.choice.plan_for(run.topology)
        lines.print(f"{describe(plan)}; run directory: {run.run_dir}")
        with interruption() as signals:
            faults = asyncio.create_task(disturb_run(run, plan, control, CATCH_UP_SECONDS))
            await done_or_interrupted(faults, signals)
            if not faults.done():
                lines.print("interrupted: ending the faults; press Ctrl-C again to skip the verdict")
                control.stop.set()
                await done_or_interrupted(faults, signals, times=2)
            if not faults.done():
                faults.cancel()  # it repairs the run first
                with suppress(asyncio.CancelledError):
                    await faults
                lines.print("all faults have ended")
                return 2
            await faults
            return int(signals.happened)


def describe(plan: ChaosPlan) -> str:
    return f"{len(plan.faults)} random faults in {plan.seconds:g} s, seed {plan.seed}, profile {plan.profile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChaos(RunCommand):
    """Random faults on a new run with the actors of a scenario."""

    choice: ChaosChoice
    control: ChaosControl
    lines: FaultLines

    @classmethod
    def of(
        cls,
        choice: ChaosChoice,
        run_dir: Path | None,
        report: Path | None,
        as_json: bool,
        engine: Literal["spark", "embedded"] | None,
    ) -> WorkloadChaos:
        from emulator.scenarios.chaos.workload import BUILT_IN

        lines = FaultLines(as_json=as_json)
        return cls(
            scenario=Path(choice.workload or BUILT_IN),
            topology=choice.topology or DEFAULT_TOPOLOGY,
            runtime=choice.runtime,
            run_dir=run_dir,
            report=report,
            as_json=as_json,
            engine=engine,
            choice=choice,
            control=lines.control(),
            lines=lines,
        )

    def _read(self) -> tuple[Topology, Scenario]:
        from emulator.config.loading import load_topology
        from emulator.scenarios.chaos.workload import chaos_object, find_workload, under_chaos

        topology = load_topology(self.topology)
        workload = find_workload(str(self.scenario), topology)
        self.lines.print(describe(self.choice.plan_for(topology)))
        step = chaos_object(self.choice.seed, self.choice.profile, self.choice.seconds, lose=self.choice.lose)
        scenario = under_chaos(workload, topology, step)
        return scenario.settings.obeyed_by(topology), scenario

    @property
    def _command(self) -> str:
        return self.choice.command

    def _environment(self, run: Runtime) -> ScenarioEnvironment:
        from emulator.scenarios.run_context import real_environment

        return real_environment(run, self.control)

    async def _until_done_or_interrupted(
        self, execution: asyncio.Task[VerifierResult], signals: Interruption
    ) -> None:
        await done_or_interrupted(execution, signals)
        if not execution.done():
            self.lines.print("interrupted: ending the faults; press Ctrl-C again to skip the verdict")
            self.control.stop.set()
            await done_or_interrupted(execution, signals, times=2)

    def _print_verdict(self, verdict: VerifierResult) -> int:
        code = RunCommand._print_verdict(self, verdict)
        self.lines.print_end(self.control, self.choice)
        return INTERRUPTED_EXIT_CODE if self.control.stop.is_set() else code
