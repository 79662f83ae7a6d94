"""Steps that control actors: begin, finish, move, kill, stop, pause, resume and start them."""

from __future__ import annotations

import asyncio
from typing import cast

from emulator.scenarios.actors.specs import (
    Actor,
    HostActor,
    HostSpec,
    HostVerb,
    ProgramSpec,
    ProgramVerb,
    RestartableActor,
)
from emulator.scenarios.format.steps import Move
from emulator.scenarios.run_context import RunContext


class ActorSteps:
    """The steps that control actors, in one run of a scenario."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    async def begin(self, names: tuple[str, ...], seconds: float) -> None:
        regions = await self._context.regions()
        for name in names:
            part = self._context.scenario.part(name)
            self._context.actors[name] = self._context.environment.create_actor(part)
            if not isinstance(part, ProgramSpec):
                self._context.fact("hire", file=name)

        async def begin(actor: Actor) -> None:
            await actor.begin(regions[actor.part.region].service_url)

        await self._context.each_in_time(
            seconds, names, begin, lambda actor: f"no connection to {actor.part.region}"
        )
        for name in names:  # one after the other, so that the order is the same in every run
            if isinstance(self._context.scenario.part(name), HostSpec):
                await self._join_queues(name, seconds)

    async def _join_queues(self, name: str, seconds: float) -> None:
        host = cast(HostActor, self._context.actors[name])
        await self._context.in_time(seconds, host.join_queues(), lambda: f"{name} is not in every wait queue")

    async def finish(self, names: tuple[str, ...], seconds: float) -> None:
        self._context.finished.update(names)
        for name in names:
            if isinstance(self._context.actors[name].part, ProgramSpec):
                self._note("finish", name)
        await self._context.each_in_time(
            seconds,
            names,
            lambda actor: actor.finish(),
            lambda actor: f"{actor.counts.pending} publishes still pending",
        )

    async def move(self, move: Move) -> None:
        actor = self._context.actors[move.actor]
        ends = {"region": move.to, "other_region": actor.counts.region}
        service_url = (await self._context.regions())[move.to].service_url
        if isinstance(actor.part, ProgramSpec) and actor.counts.connected:
            self._note("stop", move.actor)
        self._context.fact("move", **ends, detail=f"{move.actor} begins to move")
        await self._context.each_in_time(
            move.within,
            (move.actor,),
            lambda actor: actor.move(move.to, service_url),
            lambda _: f"no connection to {move.to}",
        )
        self._context.fact("move", **ends, detail=f"{move.actor} has moved")

    async def change_program(self, verb: str, name: str, seconds: float) -> None:
        """Apply a verb to a program. The fact is recorded before a kill, stop, pause or restart, and after a start or
        resume, so that the facts enclose the time in which the program is down on purpose."""
        runs_afterwards = verb in ("start", "resume")
        if not runs_afterwards:
            self._note(verb, name)
        done = self._context.program(name).change(cast(ProgramVerb, verb))
        await self._context.in_time(seconds, done, lambda: f"{name} has not completed it")
        if runs_afterwards:
            self._note(verb, name)

    def _note(self, verb: str, name: str) -> None:
        self._context.fact("note", region=self._context.actors[name].counts.region, detail=f"{verb} {name}")

    async def change_actors(self, verb: str, names: tuple[str, ...], seconds: float) -> None:
        done: list[str] = []

        async def one(name: str) -> None:
            # Recorded before the change, because other hosts may take over before it completes.
            self._note(verb, name)
            await cast(RestartableActor, self._context.actors[name]).change(cast(HostVerb, verb))
            done.append(name)

        async def run_all() -> None:
            await asyncio.gather(*map(one, names))

        def describe_late() -> str:
            return f"not completed for {', '.join(name for name in names if name not in done)}"

        await self._context.in_time(seconds, run_all(), describe_late)

    async def close_actors(self) -> None:
        """Close all actors. A second call has no effect."""
        await asyncio.gather(*(actor.leave() for actor in self._context.actors.values()))

    def record_programs(self) -> None:
        """Record which programs wrote a history. A program need not write one, so this is known only at the end."""
        for name in self._context.programs():
            if self._context.program(name).has_history:
                self._context.fact("hire", file=name)
            else:
                self._context.fact("note", detail=f"{name} recorded no history")
