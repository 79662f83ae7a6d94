"""Steps that actors take: they begin, finish, move, are killed, frozen and started."""

from __future__ import annotations

import asyncio
from typing import cast

from emulator.scenarios.actor_models.specs import (
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
    """Of one play."""

    def __init__(self, play: RunContext) -> None:
        self._play = play

    async def begin(self, names: tuple[str, ...], seconds: float) -> None:
        regions = await self._play.regions()
        for name in names:
            part = self._play.scenario.part(name)
            self._play.actors[name] = self._play.stage.hire(part)
            if not isinstance(part, ProgramSpec):
                self._play.fact("hire", file=name)

        async def begin(actor: Actor) -> None:
            await actor.begin(regions[actor.part.region].service_url)

        await self._play.each_in_time(
            seconds, names, begin, lambda actor: f"no connection to {actor.part.region}"
        )
        for name in names:  # one after the other: who comes first is no chance
            if isinstance(self._play.scenario.part(name), HostSpec):
                await self._line_up(name, seconds)

    async def _line_up(self, name: str, seconds: float) -> None:
        host = cast(HostActor, self._play.actors[name])
        await self._play.in_time(seconds, host.line_up(), lambda: f"{name} is not in every wait queue")

    async def finish(self, names: tuple[str, ...], seconds: float) -> None:
        self._play.finished.update(names)
        for name in names:
            if isinstance(self._play.actors[name].part, ProgramSpec):
                self._note("finish", name)
        await self._play.each_in_time(
            seconds,
            names,
            lambda actor: actor.finish(),
            lambda actor: f"{actor.counts.pending} publishes still pending",
        )

    async def move(self, move: Move) -> None:
        actor = self._play.actors[move.actor]
        ends = {"region": move.to, "other_region": actor.counts.region}
        service_url = (await self._play.regions())[move.to].service_url
        if isinstance(actor.part, ProgramSpec) and actor.counts.connected:
            self._note("stop", move.actor)
        self._play.fact("move", **ends, detail=f"{move.actor} begins to move")
        await self._play.each_in_time(
            move.within,
            (move.actor,),
            lambda actor: actor.move(move.to, service_url),
            lambda _: f"no connection to {move.to}",
        )
        self._play.fact("move", **ends, detail=f"{move.actor} has moved")

    async def change_program(self, verb: str, name: str, seconds: float) -> None:
        """A fact says when it is down on purpose: from before its end until after its start."""
        goes_on = verb in ("start", "resume")
        if not goes_on:
            self._note(verb, name)
        done = self._play.program(name).change(cast(ProgramVerb, verb))
        await self._play.in_time(seconds, done, lambda: f"{name} has not completed it")
        if goes_on:
            self._note(verb, name)

    def _note(self, verb: str, name: str) -> None:
        self._play.fact("note", region=self._play.actors[name].counts.region, detail=f"{verb} {name}")

    async def change_mortals(self, verb: str, names: tuple[str, ...], seconds: float) -> None:
        done: list[str] = []

        async def one(name: str) -> None:
            # Before: others may have taken over when it is done.
            self._note(verb, name)
            await cast(RestartableActor, self._play.actors[name]).change(cast(HostVerb, verb))
            done.append(name)

        async def all_of_them() -> None:
            await asyncio.gather(*map(one, names))

        def who_is_late() -> str:
            return f"not completed for {', '.join(name for name in names if name not in done)}"

        await self._play.in_time(seconds, all_of_them(), who_is_late)

    async def curtain(self) -> None:
        """Everybody leaves; twice is harmless."""
        await asyncio.gather(*(actor.leave() for actor in self._play.actors.values()))

    def account_for_programs(self) -> None:
        """Whose history there is shows in the end only: a program need not write one."""
        for name in self._play.programs():
            if self._play.program(name).has_history:
                self._play.fact("hire", file=name)
            else:
                self._play.fact("note", detail=f"{name} recorded no history")
