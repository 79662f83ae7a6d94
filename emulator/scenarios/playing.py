"""What is true while a scenario is played: its actors, its regions, its clock; and how long anything may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

from emulator.runtimes.contract import RegionStatus, Runtime
from emulator.scenarios.scenario import Scenario
from emulator.scenarios.stage import Stage
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

    async def until(self, seconds: float, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until nothing is missing any more. StepFailed at the deadline, or when an actor is gone."""
        deadline = self.clock.now() + seconds
        while (lacking := await missing()) is not None:
            for actor in self.actors.values():
                if actor.problem is not None:
                    raise StepFailed(f"{lacking} when {actor.problem}")
            left = deadline - self.clock.now()
            if left <= 0:
                raise StepFailed(f"{lacking} within {seconds:g} s")
            await self.clock.sleep(min(POLL_SECONDS, left))

    async def in_time(self, seconds: float, work: Awaitable[None], so_far: Callable[[], str]) -> None:
        """Do `work`, which is cancelled at its deadline: StepFailed then."""
        task = asyncio.ensure_future(work)
        deadline = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait({task, deadline}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StepFailed(f"{so_far()} within {seconds:g} s")
            await task
        finally:
            task.cancel()
            deadline.cancel()
            await asyncio.gather(task, deadline, return_exceptions=True)

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
