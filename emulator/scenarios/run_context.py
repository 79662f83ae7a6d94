"""What is true while a scenario is played: its actors, its regions, its clock; and how long anything may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.conditions import ProgramDid
from emulator.scenarios.environment import Stage
from emulator.scenarios.scenario import Scenario, Step
from emulator.scenarios.workload import Actor, ActorFailure, Program, ProgramPart

POLL_SECONDS = 0.05
"""How often a condition is looked at."""


class StepFailed(Exception):
    """A step did not come true; the message says how far it came."""


class Playing:
    """One play of a scenario. Time passes only through its stage's clock."""

    def __init__(self, scenario: Scenario, runtime: Runtime, stage: Stage) -> None:
        self.scenario = scenario
        self.runtime = runtime
        self.stage = stage
        self.clock = stage.clock
        self.actors: dict[str, Actor] = {}
        """Those told to begin, in that order."""
        self.finished: set[str] = set()
        """Names of those that were told to."""
        self.steps_left: Sequence[Step] = scenario.steps
        """The step that is taken, and those behind it."""
        self.history = stage.open_history(runtime.run_dir)

    def fact(self, op: str, **fields: Any) -> None:
        """Write it down."""
        self.history.write(op, "fact", **fields)

    async def regions(self) -> dict[str, RegionStatus]:
        """As they are now, by name."""
        return {region.name: region for region in (await self.runtime.status()).regions}

    def program(self, name: str) -> Program:
        """The actor of that name, which is somebody's own program."""
        return cast(Program, self.actors[name])

    def programs(self) -> Iterator[str]:
        """Names of all of them."""
        return (name for name, actor in self.actors.items() if isinstance(actor.part, ProgramPart))

    def problem(self) -> str | None:
        """Why an actor ended although no step asked for it; None while all is well."""
        found = (actor.problem for name, actor in self.actors.items() if not self._end_is_asked_for(name))
        return next((problem for problem in found if problem is not None), None)

    def _end_is_asked_for(self, name: str) -> bool:
        """Whether this step or a later one waits for the exit code with which the program has ended."""
        if not isinstance(self.actors[name].part, ProgramPart):
            return False
        codes = (
            step.action.exit_code
            for step in self.steps_left
            if isinstance(step.action, ProgramDid) and step.action.program == name
        )
        exit_code = self.program(name).exit_code
        return exit_code is not None and exit_code in codes

    async def until(self, seconds: float, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until nothing is missing any more. StepFailed at the deadline, or when an actor is gone."""
        deadline = self.clock.now() + seconds
        while (lacking := await missing()) is not None:
            if (problem := self.problem()) is not None:
                raise StepFailed(f"{lacking} when {problem}")
            left = deadline - self.clock.now()
            if left <= 0:
                raise StepFailed(f"{lacking} within {seconds:g} s")
            await self.clock.sleep(min(POLL_SECONDS, left))

    async def let_pass(self, seconds: float) -> None:
        """Wait. StepFailed when an actor is gone."""
        passing = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            if (problem := await self._while_all_is_well(passing)) is not None:
                raise StepFailed(problem)
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)

    async def in_time(self, seconds: float, work: Awaitable[None], so_far: Callable[[], str]) -> None:
        """Do `work`, which is cancelled at its deadline, or when an actor is gone: StepFailed then."""
        task = asyncio.ensure_future(work)
        deadline = asyncio.ensure_future(self.clock.sleep(seconds))
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
            await self.clock.sleep(POLL_SECONDS)
        return problem

    async def each_in_time(
        self,
        seconds: float,
        names: tuple[str, ...],
        do: Callable[[Actor], Awaitable[None]],
        so_far: Callable[[Actor], str],
    ) -> None:
        """Have several actors do something at once; StepFailed says who has not done it in time."""
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
