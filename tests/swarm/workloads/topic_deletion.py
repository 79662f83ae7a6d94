"""Programs that publish to a topic in two regions and delete it by force in one of them: it stays deleted there until
a client uses it there; such a client has a new topic, to which the other region sends new messages and no earlier
ones; in regions where it was not deleted, nothing is lost.

Each program has a topic of its own. What was taken from it, and what came, it knows itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from emulator.broker.topic_directory.stored_topics import Deletions
from emulator.client import Client, ClientError, Consumer, InitialPosition, Producer
from emulator.net.http import NoHttpResponse
from tests.swarm.mutant import part
from tests.swarm.plan import Plan, with_programs
from tests.swarm.topics import DELETED
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)

NAME = "delete-here"
WORKLOAD = Workload(NAME)
BACK, LOST = "back: ", "lost: "
QUIET_SECONDS = 10.0
"""Time for which the program checks that an unused topic stays deleted."""


@dataclass(frozen=True, slots=True)
class TopicDeletionProgram(OwnTopicProgram):
    """A program that deletes its topic in `region` and keeps it in `reading`."""

    keeps_clients: bool
    """Whether the producer and consumer in `region` stay open during the deletion and are used afterwards."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        return f"{DELETED}{context.name}"

    async def perform(self, context: ActContext) -> None:
        here = self.client_for(self.region, context, "here")
        there = self.client_for(self.reading, context, "there")
        try:
            consumer = await self._consumer(here, context, SUBSCRIPTION)
            remote = await self._consumer(there, context, SUBSCRIPTION)
            ours = await self._producer(here, context, "ours")
            theirs = await self._producer(there, context, "theirs")
            await self._publish(ours, context, "old-ours")
            old = await self._publish(theirs, context, "old-theirs")
            had = await self._given(consumer, context, self.region)
            if not await self._all_is_confirmed(context):
                had = set()  # the other region sends messages without a receipt again
            if not self.keeps_clients:
                await consumer.close()
                await ours.close()
            if await self._deleted(context):
                reported = await self._checked(here, consumer, remote, (ours, theirs), old, had, context)
                context.note_result(
                    "refused" if reported else "accepted", topic=self.topic(context), detail=reported
                )
        finally:
            await here.close()
            await there.close()

    # Clients and requests.

    async def _consumer(self, client: Client, context: ActContext, name: str) -> Consumer:
        return await client.subscribe(self.topic(context), name, initial_position=InitialPosition.EARLIEST)

    async def _producer(self, client: Client, context: ActContext, which: str) -> Producer:
        return await client.producer(self.topic(context), name=f"{context.name}-{which}")

    async def _publish(self, producer: Producer, context: ActContext, incarnation: str) -> set[bytes]:
        """Publish messages. Return the payloads with a receipt."""
        taken: set[bytes] = set()
        for number in range(self.messages):
            payload = f"{context.name}/{incarnation}/{number}".encode()
            try:
                async with asyncio.timeout(CONVERGENCE_SECONDS):
                    await producer.send(payload)
                taken.add(payload)
            except (ClientError, TimeoutError):
                pass
            await asyncio.sleep(self.pause_seconds)
        return taken

    async def _given(self, consumer: Consumer, context: ActContext, region: str) -> set[bytes]:
        """Receive until no more messages arrive. Return the payloads."""
        arrived: set[bytes] = set()
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    message = await self.next_message(consumer, context, region)
                    arrived.add(message.payload)
                    await consumer.acknowledge(message)
            except (ClientError, TimeoutError):
                return arrived

    async def _all_is_confirmed(self, context: ActContext) -> bool:
        """Whether the other region has a receipt for every message that it replicated to `region`."""
        try:
            stats = await self.stats(context, self.reading)
        except NoHttpResponse:
            return False
        return stats is not None and stats["replication"].get(self.region, {}).get("replicationBacklog") == 0

    async def _deleted(self, context: ActContext) -> bool:
        """Delete the topic here until the region confirms it, and wait until the faults end."""
        give_up_at = max(context.now, self.faults_end_seconds) + CONVERGENCE_SECONDS
        done = False
        while not done and context.now < give_up_at:
            done = await self._ask_here(context, "DELETE", "?force=true") in (204, 404)
            await asyncio.sleep(0.2)
        await self.wait_for_repair(context)
        return done

    async def _ask_here(self, context: ActContext, method: str, what: str) -> int | None:
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/persistent/{self.topic(context).partition('://')[2]}{what}"
        try:
            return (await context.world.ask_admin(self.region, method, target, host=host)).status
        except NoHttpResponse:
            return None

    # After the faults.

    async def _checked(
        self,
        here: Client,
        consumer: Consumer,
        remote: Consumer,
        producers: tuple[Producer, Producer],
        old: set[bytes],
        had: set[bytes],
        context: ActContext,
    ) -> str:
        """Return the violation; empty: none. `old`: messages that the other region stored before the deletion; `had`:
        messages that were delivered here before it."""
        ours, theirs = producers
        new_theirs = await self._publish(theirs, context, "new-theirs")
        if not self.keeps_clients:
            if await self._comes_back(context):
                return f"{BACK}the topic itself, which no client uses here"
            consumer = await self._consumer(here, context, "anew")
            ours = await self._producer(here, context, "anew")
        new_ours = await self._publish(ours, context, "new-ours")
        last_theirs = await self._publish(theirs, context, "last-theirs")
        expected = new_ours | last_theirs
        arrived = await self._until_all(consumer, context, self.region, expected)
        if missing := expected - arrived:
            return f"{LOST}{self._some(missing)} in {self.region}, where it was deleted"
        if back := arrived & had:
            return f"{BACK}{self._some(back)} in {self.region}"
        expected = old | new_theirs | new_ours | last_theirs
        if missing := expected - await self._until_all(remote, context, self.reading, expected):
            return f"{LOST}{self._some(missing)} in {self.reading}, where it was not deleted"
        return ""

    async def _comes_back(self, context: ActContext) -> bool:
        """Whether the topic reappears within `QUIET_SECONDS` although no client here used it."""
        until = context.now + QUIET_SECONDS
        while context.now < until:
            if await self._ask_here(context, "GET", "/stats") == 200:
                return True
            await asyncio.sleep(0.5)
        return False

    async def _until_all(
        self, consumer: Consumer, context: ActContext, region: str, wanted: set[bytes]
    ) -> set[bytes]:
        arrived: set[bytes] = set()
        give_up_at = context.now + CONVERGENCE_SECONDS
        while wanted - arrived and context.now < give_up_at:
            arrived |= await self._given(consumer, context, region)
            await asyncio.sleep(0.1)
        return arrived

    def _some(self, payloads: set[bytes]) -> str:
        return f"{min(payloads).decode()} and {len(payloads) - 1} more"


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return with_programs(random, plan, _program)


def _program(random: Random, plan: Plan) -> TopicDeletionProgram:
    seconds, count = plan.break_seconds, random.randint(3, 12)
    here, there = random.sample(plan.regions, 2)
    pause = round(seconds / count * random.uniform(0.05, 0.3), 4)
    begin = round(random.uniform(0.1, seconds * 0.3), 3)
    return TopicDeletionProgram(begin, here, there, count, pause, seconds + 1.0, random.random() < 0.5)


# INV-38 and INV-118


@WORKLOAD.mutant("topic-deletion-forgotten", "INV-38", patch=part("deletions"))
class _TopicDeletionForgotten(Deletions):
    """A region forgets which topics were deleted in it."""

    async def remember(self, name: str, now_ms: int) -> None:
        return


WORKLOAD.reports("deleted-topic-stays-deleted", "INV-38", BACK, "deleted, and exists again")
WORKLOAD.reports(
    "new-messages-not-lost", "INV-118", LOST, "acknowledged to its producer, and never delivered"
)
