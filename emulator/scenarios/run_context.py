"""The state of a running scenario, waits with deadlines, and the interfaces to its environment and observers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from emulator.run.history import HistoryWriter
from emulator.run.history_events import Outcome
from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.actors.specs import (
    Actor,
    ActorFailure,
    ActorSpec,
    Counts,
    CreateActor,
    ProgramSpec,
)
from emulator.scenarios.chaos.control import ChaosControl
from emulator.scenarios.format.conditions import ProgramCondition
from emulator.scenarios.region_queries import CallRegion, ReadTopics, call_over_http, read_topics_over_http
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from emulator.scenarios.actors.program import ProgramProcess

POLL_SECONDS = 0.05
"""Interval at which a condition is evaluated."""


class StepFailed(Exception):
    """A step did not complete; the message contains the reason and its progress."""


class RunContext:
    """The state of one run of a scenario. Times are those of the running event loop."""

    def __init__(self, scenario: Scenario, runtime: Runtime, environment: ScenarioEnvironment) -> None:
        self.scenario = scenario
        self.runtime = runtime
        self.environment = environment
        self.actors: dict[str, Actor] = {}
        """The actors that have begun, by name, in the order of their steps."""
        self.failed_faults: list[str] = []
        """A sentence for each random fault of a `chaos` step that failed."""
        self.finished: set[str] = set()
        """Names of the actors that received the command `finish`."""
        self.remaining_steps: Sequence[Step] = scenario.steps
        """The current step and all later steps."""
        self.history = environment.open_history(runtime.run_dir)

    def without_actors(self) -> RunContext:
        """Return a context of the same run whose waits do not end when an actor ends, for repairs."""
        other = copy(self)
        other.actors = {}
        return other

    def fact(self, op: str, **fields: Any) -> None:
        """Write a fact to the scenario's history."""
        self.history.write(op, "fact", **fields)

    async def regions(self) -> dict[str, RegionStatus]:
        """Return the current status of the regions, by name."""
        return {region.name: region for region in (await self.runtime.status()).regions}

    def program(self, name: str) -> ProgramProcess:
        """Return the actor of that name, which must be a user's program."""
        return cast("ProgramProcess", self.actors[name])

    def programs(self) -> Iterator[str]:
        """Return the names of all programs that have begun."""
        return (name for name, actor in self.actors.items() if isinstance(actor.part, ProgramSpec))

    def problem(self) -> str | None:
        """Return why an actor ended although no step ended it or expects its exit code; None if no actor did."""
        found = (actor.problem for name, actor in self.actors.items() if not self._is_end_expected(name))
        return next((problem for problem in found if problem is not None), None)

    def _is_end_expected(self, name: str) -> bool:
        """Return whether the current step or a later one waits for the exit code with which the program has ended."""
        if not isinstance(self.actors[name].part, ProgramSpec):
            return False
        codes = (
            step.action.exit_code
            for step in self.remaining_steps
            if isinstance(step.action, ProgramCondition) and step.action.program == name
        )
        exit_code = self.program(name).exit_code
        return exit_code is not None and exit_code in codes

    async def until(self, seconds: float, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until `missing` returns None. Raises StepFailed after `seconds`, or when an actor ends unexpectedly."""
        deadline = now() + seconds
        while (unmet := await missing()) is not None:
            if (problem := self.problem()) is not None:
                raise StepFailed(f"{unmet} when {problem}")
            remaining_seconds = deadline - now()
            if remaining_seconds <= 0:
                raise StepFailed(f"{unmet} within {seconds:g} s")
            await asyncio.sleep(min(POLL_SECONDS, remaining_seconds))

    async def wait(self, seconds: float) -> None:
        """Wait for this time. Raises StepFailed when an actor ends unexpectedly."""
        timer = asyncio.ensure_future(asyncio.sleep(seconds))
        try:
            if (problem := await self._wait_or_problem(timer)) is not None:
                raise StepFailed(problem)
        finally:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)

    async def in_time(
        self, seconds: float, work: Awaitable[object], describe_progress: Callable[[], str]
    ) -> None:
        """Await `work`. After `seconds`, or when an actor ends unexpectedly, cancel it and raise StepFailed."""
        task = asyncio.ensure_future(work)
        deadline = asyncio.ensure_future(asyncio.sleep(seconds))
        try:
            problem = await self._wait_or_problem(task, deadline)
            if not task.done():
                raise StepFailed(problem or f"{describe_progress()} within {seconds:g} s")
            await task
        finally:
            task.cancel()
            deadline.cancel()
            await asyncio.gather(task, deadline, return_exceptions=True)

    async def _wait_or_problem(self, *tasks: asyncio.Future[Any]) -> str | None:
        """Wait until one of `tasks` is done, or an actor ends unexpectedly. Return the reason in the second case."""
        watching = asyncio.ensure_future(self._first_problem())
        waiting: list[asyncio.Future[Any]] = [*tasks, watching]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return watching.result() if watching.done() else None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _first_problem(self) -> str:
        while (problem := self.problem()) is None:
            await asyncio.sleep(POLL_SECONDS)
        return problem

    async def each_in_time(
        self,
        seconds: float,
        names: tuple[str, ...],
        do: Callable[[Actor], Awaitable[None]],
        describe_progress: Callable[[Actor], str],
    ) -> None:
        """Run an operation on several actors concurrently. Raises StepFailed with the actors that did not complete it
        in time, or with the failures of actors."""
        waiting = dict.fromkeys(names)

        async def one(name: str) -> None:
            await do(self.actors[name])
            del waiting[name]

        async def run_all() -> None:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(one(name))

        def describe_late() -> str:
            return ", ".join(f"{name}: {describe_progress(self.actors[name])}" for name in waiting)

        try:
            await self.in_time(seconds, run_all(), describe_late)
        except* ActorFailure as failures:
            raise StepFailed("; ".join(str(failure) for failure in failures.exceptions)) from None


def now() -> float:
    """Return the time of the running event loop in seconds; virtual time in a simulation."""
    return asyncio.get_running_loop().time()


class ScenarioHistory(Protocol):
    """The history of the scenario's own facts: steps, faults and phases."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ScenarioEnvironment:
    """The functions with which a run creates actors, calls regions and opens its history."""

    create_actor: CreateActor
    read_topics: ReadTopics = read_topics_over_http
    call_region: CallRegion = call_over_http
    open_history: Callable[[Path], ScenarioHistory] = lambda run_dir: HistoryWriter(
        run_dir / "history" / "scenario.jsonl", "scenario", program="geoemu run"
    )
    """Opens the history of the scenario's own facts; its argument is the run directory."""
    now_ms: Callable[[], float] = lambda: time.time() * 1_000
    """Returns the time of the history in milliseconds since 1970."""
    chaos: ChaosControl = field(default_factory=ChaosControl)
    """Seed, observer and early end of the scenario's random faults."""


def real_environment(runtime: Runtime, chaos: ChaosControl | None = None) -> ScenarioEnvironment:
    """Return the environment of a run with real clients and programs, each in a separate process."""
    from emulator.scenarios.actors.processes import actor_process
    from emulator.scenarios.actors.program import ProgramProcess

    async def get_regions() -> tuple[RegionStatus, ...]:
        return (await runtime.status()).regions

    def create_actor(part: ActorSpec) -> Actor:
        if isinstance(part, ProgramSpec):
            return ProgramProcess(part, runtime.run_dir, get_regions)
        return actor_process(part, runtime.run_dir)

    return ScenarioEnvironment(create_actor=create_actor, chaos=chaos or ChaosControl())


AFTER_LAST_STEP = "after the last step"
"""Prefix of a failure of an actor that was detected after every step had completed."""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The state of a run at one moment."""

    seconds: float
    """Time since the beginning of the run."""
    actors: tuple[tuple[ActorSpec, Counts], ...]
    """The actors that have begun, with their counts."""
    regions: tuple[RegionStatus, ...]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The result of a run of a scenario."""

    scenario: Scenario
    run_dir: Path
    seconds: float
    steps_done: int
    failure: str | None
    """The step that failed and its progress, or the actor that failed after the last step. None: no failure."""
    counts: Mapping[str, Counts]
    """Final counts of each actor."""

    @property
    def completed(self) -> bool:
        return self.failure is None


class ScenarioObserver:
    """Base of observers of a run; its methods do nothing. They are called in the order of events and must not block."""

    def run_began(self, scenario: Scenario) -> None: ...

    def step_began(self, step: Step) -> None: ...

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None: ...

    def snapshot_taken(self, snapshot: ProgressSnapshot) -> None:
        """Called a few times per second, also during a step."""

    def run_ended(self, result: ScenarioResult) -> None:
        """Called at the end of the run, unless the run is cancelled."""

    def close(self) -> None:
        """Restore the terminal after the run, also after an interruption. A second call has no effect."""
