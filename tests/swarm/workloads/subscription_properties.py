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
from emulator.net.http import NoHttpResponse
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)

NAME = "label"
WORKLOAD = Workload(NAME)
OTHER, LEFT = "other: ", "left: "
Step = Literal["put", "come", "ask", "unload"]
Notes = dict[str, str]


@dataclass(frozen=True, slots=True)
class SubscriptionPropertiesProgram(OwnTopicProgram):
    """A program that performs its steps in order, and finally deletes the subscription and creates it again."""

    steps: tuple[Step, ...]

    workload: ClassVar[str] = NAME

    @property
    def path(self) -> str:
        return f"/subscription/{SUBSCRIPTION}/properties"

    async def perform(self, context: ActContext) -> None:
        client = self.reader(context)
        try:
            first = {"made-by": context.name}
            if not await self._subscribed(client, context, first, CONVERGENCE_SECONDS):
                return
            possible = [first]
            for number, step in enumerate(self.steps):
                reported = await self._do(step, {"step": f"{number}"}, possible, client, context)
                if reported:
                    context.note_result("refused", topic=self.topic(context), detail=reported)
                    return
                await asyncio.sleep(self.pause_seconds)
            await self.wait_for_repair(context)
            reported = await self._checked(client, context, possible)
            context.note_result(
                "refused" if reported else "accepted", topic=self.topic(context), detail=reported or "kept"
            )
        finally:
            await client.close()

    async def _do(
        self, step: Step, notes: Notes, possible: list[Notes], client: Client, context: ActContext
    ) -> str:
        """Perform one step. Return the violation; empty: none. `possible`: the properties that may be stored."""
        match step:
            case "put":
                status = await self.ask(context, "PUT", self.path, notes)
                if status == 204:
                    possible[0] = notes  # changes with an unknown outcome may still be applied
                else:
                    possible.append(notes)
            case "come":
                await self._subscribed(client, context, notes, STEP_SECONDS)
            case "unload":
                await self.ask(context, "PUT", "/unload")
            case "ask":
                return self._compared(await self._reported(context), possible)
        return ""

    def _compared(self, reported: Notes | None, possible: list[Notes]) -> str:
        return (
            ""
            if reported is None or reported in possible
            else f"{OTHER}{reported}, and {possible[0]} was confirmed"
        )

    async def _subscribed(self, client: Client, context: ActContext, notes: Notes, seconds: float) -> bool:
        """Open a consumer with these properties, and close it."""
        try:
            async with asyncio.timeout(max(seconds, self.faults_end_seconds - context.now + seconds)):
                consumer = await self._consumer(client, context, notes)
                await consumer.close()
        except (ClientError, TimeoutError):
            return False
        return True

    async def _consumer(self, client: Client, context: ActContext, notes: Mapping[str, str]) -> Consumer:
        return await client.subscribe(
            self.topic(context),
            SUBSCRIPTION,
            initial_position=InitialPosition.EARLIEST,
            subscription_properties=notes,
        )

    async def _reported(self, context: ActContext) -> Notes | None:
        """Return the properties that the region reports; None: no response."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}{self.path}"
        try:
            answer = await context.world.ask_admin(self.reading, "GET", target, host=host)
        except NoHttpResponse:
            return None
        return dict(answer.json()) if answer.status == 200 else None

    # After the faults.

    async def _checked(self, client: Client, context: ActContext, possible: list[Notes]) -> str:
        """Check the properties after the faults, an unload and a deletion. Return the violation; empty: none."""
        reported = self._compared(await self._surely_told(context), possible)
        if reported:
            return reported
        last = {"last": "one", "": "a name may be empty"}
        if not await self.retry_until_done(context, "PUT", self.path, last, done=(204,)):
            return ""
        await self.retry_until_done(context, "PUT", "/unload", done=(204,))
        said = await self._surely_told(context)
        if said != last:
            return f"{OTHER}{said} after the topic was unloaded, and {last} was confirmed"
        consumer = await self._consumer(client, context, {"too": "late"})
        await consumer.unsubscribe()
        await self._consumer(client, context, {"new": "one"})
        said = await self._surely_told(context)
        return "" if said == {"new": "one"} else f"{LEFT}{said}, and it was created with {{'new': 'one'}}"

    async def _surely_told(self, context: ActContext) -> Notes | None:
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            reported = await self._reported(context)
            if reported is not None:
                return reported
            await asyncio.sleep(0.2)
        return None


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    def program() -> SubscriptionPropertiesProgram:
        seconds = plan.break_seconds
        steps: tuple[Step, ...] = ("put", "put", "come", "ask", "ask", "unload")
        count = random.randint(10, 30)
        return SubscriptionPropertiesProgram(
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
