"""The state of a running scenario: its actors, its regions, its clock; waiting with deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from emulator.scenarios.format.conditions import ProgramCondition
from emulator.scenarios.region_queries import CallRegion, ReadTopics, call_over_http, read_topics_over_http
from emulator.scenarios.rehearsal import Step
from emulator.scenarios.scenario import Scenario

if TYPE_CHECKING:
    from emulator.scenarios.actors.program import ProgramProcess

POLL_SECONDS = 0.05
"""Interval at which a condition is evaluated."""


class StepFailed(Exception):
    """A step did not complete; the message contains its progress."""


class RunContext:
    """One run of a scenario. Time is that of the running event loop."""

    def __init__(self, scenario: Scenario, runtime: Runtime, environment: ScenarioEnvironment) -> None:
        self.scenario = scenario
        self.runtime = runtime
        self.environment = environment
        self.actors: dict[str, Actor] = {}
        """The started actors, in the order of their start."""
        self.finished: set[str] = set()
        """Names of the actors that received the command `finish`."""
        self.steps_left: Sequence[Step] = scenario.steps
        """The current step and those after it."""
        self.history = environment.open_history(runtime.run_dir)

    def fact(self, op: str, **fields: Any) -> None:
        """Write it down."""
        self.history.write(op, "fact", **fields)

    async def regions(self) -> dict[str, RegionStatus]:
        """As they are now, by name."""
        return {region.name: region for region in (await self.runtime.status()).regions}

    def program(self, name: str) -> ProgramProcess:
        """The actor of that name, which is a user's program."""
        return cast("ProgramProcess", self.actors[name])

    def programs(self) -> Iterator[str]:
        """Names of all of them."""
        return (name for name, actor in self.actors.items() if isinstance(actor.part, ProgramSpec))

    def problem(self) -> str | None:
        """Why an actor ended although no step asked for it; None while all is well."""
        found = (actor.problem for name, actor in self.actors.items() if not self._end_is_asked_for(name))
        return next((problem for problem in found if problem is not None), None)

    def _end_is_asked_for(self, name: str) -> bool:
        """Whether this step or a later one waits for the exit code with which the program has ended."""
        if not isinstance(self.actors[name].part, ProgramSpec):
            return False
        codes = (
            step.action.exit_code
            for step in self.steps_left
            if isinstance(step.action, ProgramCondition) and step.action.program == name
        )
        exit_code = self.program(name).exit_code
        return exit_code is not None and exit_code in codes

    async def until(self, seconds: float, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until nothing is missing any more. StepFailed at the deadline, or when an actor is gone."""
        deadline = now() + seconds
        while (lacking := await missing()) is not None:
            if (problem := self.problem()) is not None:
                raise StepFailed(f"{lacking} when {problem}")
            left = deadline - now()
            if left <= 0:
                raise StepFailed(f"{lacking} within {seconds:g} s")
            await asyncio.sleep(min(POLL_SECONDS, left))

    async def wait(self, seconds: float) -> None:
        """Wait. StepFailed when an actor is gone."""
        passing = asyncio.ensure_future(asyncio.sleep(seconds))
        try:
            if (problem := await self._while_all_is_well(passing)) is not None:
                raise StepFailed(problem)
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)

    async def in_time(self, seconds: float, work: Awaitable[None], so_far: Callable[[], str]) -> None:
        """Do `work`, which is cancelled at its deadline, or when an actor is gone: StepFailed then."""
        task = asyncio.ensure_future(work)
        deadline = asyncio.ensure_future(asyncio.sleep(seconds))
        try:
            problem = await self._while_all_is_well(task, deadline)
            if not task.done():
                raise StepFailed(problem or f"{so_far()} within {seconds:g} s")
            await task
        finally:
            task.cancel()
            deadline.cancel()
            await asyncio.gather(task, deadline, return_exceptions=True)

    async def _while_all_is_well(self, *tasks: asyncio.Future[None]) -> str | None:
        """Wait for the first of `tasks`, or until an actor is gone: returns why, then."""
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
        so_far: Callable[[Actor], str],
    ) -> None:
        """Run an operation on several actors at once; StepFailed names those that did not complete it in time."""
        waiting = dict.fromkeys(names)

        async def one(name: str) -> None:
            await do(self.actors[name])
            del waiting[name]

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(one(name))

        def who_is_late() -> str:
            return ", ".join(f"{name}: {so_far(self.actors[name])}" for name in waiting)

        try:
            await self.in_time(seconds, all_of_them(), who_is_late)
        except* ActorFailure as failures:
            raise StepFailed("; ".join(str(failure) for failure in failures.exceptions)) from None


def now() -> float:
    """Seconds of the running event loop, which is virtual in a simulation."""
    return asyncio.get_running_loop().time()


class ScenarioHistory(Protocol):
    """The history of the scenario itself."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ScenarioEnvironment:
    """What a run needs besides its runtime."""

    create_actor: CreateActor
    read_topics: ReadTopics = read_topics_over_http
    call_region: CallRegion = call_over_http
    open_history: Callable[[Path], ScenarioHistory] = lambda run_dir: HistoryWriter(
        run_dir / "history" / "scenario.jsonl", "scenario", program="geoemu run"
    )
    """Opens the history of the scenario's own facts; its argument is the run directory."""


def real_environment(runtime: Runtime) -> ScenarioEnvironment:
    """Real clients and programs, each in a process of its own."""
    from emulator.scenarios.actors.processes import actor_process
    from emulator.scenarios.actors.program import ProgramProcess

    async def ask_regions() -> tuple[RegionStatus, ...]:
        return (await runtime.status()).regions

    def create_actor(part: ActorSpec) -> Actor:
        if isinstance(part, ProgramSpec):
            return ProgramProcess(part, runtime.run_dir, ask_regions)
        return actor_process(part, runtime.run_dir)

    return ScenarioEnvironment(create_actor=create_actor)


AFTER_LAST_STEP = "after the last step"
"""How the failure of an actor begins that failed although every step came true."""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The state of a run at one moment."""

    seconds: float
    """Since the run began."""
    actors: tuple[tuple[ActorSpec, Counts], ...]
    """Those that have begun."""
    regions: tuple[RegionStatus, ...]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The result of a run of a scenario."""

    scenario: Scenario
    run_dir: Path
    seconds: float
    steps_done: int
    failure: str | None
    """The step that failed and how far it came, or the program that failed after the last step. None: no failure."""
    counts: Mapping[str, Counts]
    """What each actor had done in the end."""

    @property
    def completed(self) -> bool:
        return self.failure is None


class ScenarioObserver:
    """Observes a run, and does nothing. The methods are called in the order of events and must not block."""

    def run_began(self, scenario: Scenario) -> None: ...

    def step_began(self, step: Step) -> None: ...

    def step_ended(self, step: Step, seconds: float, failure: str | None) -> None: ...

    def snapshot_taken(self, snapshot: ProgressSnapshot) -> None:
        """Called a few times a second, also while a step goes on."""

    def run_ended(self, result: ScenarioResult) -> None:
        """Not called when the run is cancelled."""

    def close(self) -> None:
        """Leave the terminal as it was, also when the run was interrupted. A second call has no effect."""
