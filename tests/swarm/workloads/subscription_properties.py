"""Programs whose subscription has properties: the region returns those that it was created with or that an
administrator set last, regardless of crashes and of later subscribers with other properties; they are deleted with
the subscription.

Each program has a topic of its own. What was answered it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from emulator.client import Client, ClientError, Consumer, InitialPosition
from emulator.core.cursor.cursor import Cursor
from emulator.net.http import NoAnswer
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Stage, Workload
from tests.swarm.workloads.expiring_program import PATIENCE_SECONDS, STEP_SECONDS, SUBSCRIPTION, Mortal

NAME = "label"
WORKLOAD = Workload(NAME)
OTHER, LEFT = "other: ", "left: "
Step = Literal["put", "come", "ask", "unload"]
Notes = dict[str, str]


@dataclass(frozen=True, slots=True)
class Label(Mortal):
    """One step after the other; in the end the subscription is deleted and made anew."""

    steps: tuple[Step, ...]

    workload: ClassVar[str] = NAME

    @property
    def path(self) -> str:
        return f"/subscription/{SUBSCRIPTION}/properties"

    async def perform(self, stage: Stage) -> None:
        client = self.reader(stage)
        try:
            first = {"made-by": stage.name}
            if not await self._subscribed(client, stage, first, PATIENCE_SECONDS):
                return
            possible = [first]
            for number, step in enumerate(self.steps):
                told = await self._do(step, {"step": f"{number}"}, possible, client, stage)
                if told:
                    stage.did("refused", topic=self.topic(stage), detail=told)
                    return
                await asyncio.sleep(self.pause_seconds)
            await self.calm(stage)
            told = await self._judged(client, stage, possible)
            stage.did("refused" if told else "accepted", topic=self.topic(stage), detail=told or "kept")
        finally:
            await client.close()

    async def _do(self, step: Step, notes: Notes, possible: list[Notes], client: Client, stage: Stage) -> str:
        """Return what is wrong; empty: nothing. `possible` are the properties that may be stored."""
        match step:
            case "put":
                status = await self.ask(stage, "PUT", self.path, notes)
                if status == 204:
                    possible[0] = notes  # others, with an unknown outcome, may still be applied
                else:
                    possible.append(notes)
            case "come":
                await self._subscribed(client, stage, notes, STEP_SECONDS)
            case "unload":
                await self.ask(stage, "PUT", "/unload")
            case "ask":
                return self._compared(await self._told(stage), possible)
        return ""

    def _compared(self, told: Notes | None, possible: list[Notes]) -> str:
        return "" if told is None or told in possible else f"{OTHER}{told}, and {possible[0]} was confirmed"

    async def _subscribed(self, client: Client, stage: Stage, notes: Notes, seconds: float) -> bool:
        """Open a consumer with these properties, and close it."""
        try:
            async with asyncio.timeout(max(seconds, self.breaks_end_seconds - stage.now + seconds)):
                consumer = await self._consumer(client, stage, notes)
                await consumer.close()
        except (ClientError, TimeoutError):
            return False
        return True

    async def _consumer(self, client: Client, stage: Stage, notes: Mapping[str, str]) -> Consumer:
        return await client.subscribe(
            self.topic(stage),
            SUBSCRIPTION,
            initial_position=InitialPosition.EARLIEST,
            subscription_properties=notes,
        )

    async def _told(self, stage: Stage) -> Notes | None:
        """Return the properties that the region reports; None: no response."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(stage).partition('://')[2]}{self.path}"
        try:
            answer = await stage.world.ask_admin(self.reading, "GET", target, host=host)
        except NoAnswer:
            return None
        return dict(answer.json()) if answer.status == 200 else None

    # In the end.

    async def _judged(self, client: Client, stage: Stage, possible: list[Notes]) -> str:
        """Check the properties after the faults end."""
        told = self._compared(await self._surely_told(stage), possible)
        if told:
            return told
        last = {"last": "one", "": "a name may be empty"}
        if not await self.insist(stage, "PUT", self.path, last, done=(204,)):
            return ""
        await self.insist(stage, "PUT", "/unload", done=(204,))
        said = await self._surely_told(stage)
        if said != last:
            return f"{OTHER}{said} after the topic was unloaded, and {last} was confirmed"
        consumer = await self._consumer(client, stage, {"too": "late"})
        await consumer.unsubscribe()
        await self._consumer(client, stage, {"new": "one"})
        said = await self._surely_told(stage)
        return "" if said == {"new": "one"} else f"{LEFT}{said}, and it was created with {{'new': 'one'}}"

    async def _surely_told(self, stage: Stage) -> Notes | None:
        give_up_at = stage.now + PATIENCE_SECONDS
        while stage.now < give_up_at:
            told = await self._told(stage)
            if told is not None:
                return told
            await asyncio.sleep(0.2)
        return None


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    def program() -> Label:
        seconds = plan.break_seconds
        steps: tuple[Step, ...] = ("put", "put", "come", "ask", "ask", "unload")
        count = random.randint(10, 30)
        return Label(
            round(random.uniform(0.1, seconds * 0.3), 3),
            random.choice(plan.regions),
            random.choice(plan.regions),
            0,
            round(seconds / count * random.uniform(0.3, 1.0), 4),
            seconds + 1.0,
            tuple(random.choice(steps) for _ in range(count)),
        )

    return replace(plan, acts=(*plan.acts, *(program() for _ in range(random.randint(1, 4)))))


# INV-115


@WORKLOAD.mutant("properties-not-stored", "INV-115", patch=part("cursor"))
class _PropertiesNotStored(Cursor):
    """Changed properties of a subscription are not stored."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)


@WORKLOAD.mutant("properties-never-updated", "INV-115", patch=part("cursor"))
class _PropertiesNeverUpdated(Cursor):
    """Properties of a subscription cannot be changed by an administrator."""

    def set_properties(self, properties: Mapping[str, str]) -> None:
        if not self.properties:
            super().set_properties(properties)


WORKLOAD.reports("properties-kept", "INV-115", OTHER, "its properties differ")
WORKLOAD.reports(
    "properties-deleted-with-subscription",
    "INV-115",
    LEFT,
    "a new subscription has the properties of the deleted one",
)
