"""Programs whose topic becomes inactive repeatedly while its link to another region breaks: every message that is
published there arrives in the other region.

Each program has a topic of its own and knows which of its messages were acknowledged. The other region deletes the
topic first, so that it refuses the replicator for a while: retries are due when the link breaks and the topic rests.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.replication.link import PeerLink
from emulator.broker.replication.replicator import Replicator
from emulator.broker.replication.replicator_state import RetryTimer
from emulator.broker.topic.view import TopicView
from emulator.client import Client
from emulator.core.policies.lifetime import DeleteMode
from emulator.core.replication.progress import ReplicatorState
from tests.swarm.mutant import replicator
from tests.swarm.plan import Plan, with_programs
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import SUBSCRIPTION
from tests.swarm.workloads.topic_termination_acts import LOST, Receipts, TerminatingProgram

NAME = "inactive-topic"
WORKLOAD = Workload(NAME)
POLICY = {
    "inactiveTopicDeleteMode": DeleteMode.NO_SUBSCRIPTIONS.value,
    "maxInactiveDurationSeconds": 1,
    "deleteWhileInactive": True,
}


@dataclass(frozen=True, slots=True)
class InactiveTopicProgram(TerminatingProgram):
    """A program that publishes in `region`, with pauses in which the topic becomes inactive, and reads in `reading`."""

    refused_seconds: float
    """Time for which the other region rejects the replicator, until a consumer subscribes there."""
    pauses: tuple[float, ...]
    """Pause after each round of messages, in which the topic is unused."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        here = self.client_for(self.region, context, "here")
        there = self.client_for(self.reading, context, "there")
        try:
            await self._publish(here, context, Receipts(), until=1)
            if await self._deleted_there(context):
                await self._rounds(here, there, context)
        finally:
            await here.close()
            await there.close()

    async def _deleted_there(self, context: ActContext) -> bool:
        """Delete the topic in the other region, and set a short inactivity in `region`. Return False: not deleted."""
        if not await self.retry_until_done(context, "GET", "/stats", done=(200,)):
            return False
        if not await self.retry_until_done(context, "DELETE", "?force=true"):
            return False
        while await self._ask_here(context) != 204:
            await asyncio.sleep(0.2)
        return True

    async def _ask_here(self, context: ActContext) -> int | None:
        at_home = replace(self, reading=self.region)
        return await at_home.ask(context, "POST", "/inactiveTopicPolicies", POLICY)

    async def _rounds(self, here: Client, there: Client, context: ActContext) -> None:
        receipts = Receipts()
        await self._publish(here, context, receipts, until=self.messages)
        await asyncio.sleep(self.refused_seconds)
        await (await self.subscribed(there, context, SUBSCRIPTION)).close()
        for number, pause in enumerate(self.pauses, 2):
            context.world.simulation.network.reset(self.region, self.reading)
            await asyncio.sleep(pause)
            await self._publish(here, context, receipts, until=self.messages * number)
        await self.wait_for_repair(context)
        await self._publish(here, context, receipts, until=receipts.attempts + 1)
        if lost := await self.lost(there, context, SUBSCRIPTION, receipts):
            self.tell(context, f"{LOST}{lost}")
        else:
            context.note_result("accepted", topic=self.topic(context))

    async def _publish(self, client: Client, context: ActContext, receipts: Receipts, *, until: int) -> None:
        """Publish until `until` messages were sent in total, and close the producer."""
        producer = None
        while receipts.attempts < until:
            producer = await self.publish_one(client, producer, context, receipts)
            await asyncio.sleep(self.pause_seconds)
        if producer is not None:
            await self._close_producer(producer)


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return with_programs(random, plan, _program)


def _program(random: Random, plan: Plan) -> InactiveTopicProgram:
    here, there = random.sample(plan.regions, 2)
    return InactiveTopicProgram(
        round(random.uniform(0.1, 1.0), 3),
        here,
        there,
        random.randint(1, 4),
        0.02,
        plan.break_seconds + 1.0,
        round(random.uniform(0.5, 8.0), 3),
        tuple(round(random.uniform(0.5, 8.0), 3) for _ in range(random.randint(2, 4))),
    )


# INV-121


class _KeepsRunning(RetryTimer):
    """A timer that still fires after `stop`."""

    def stop(self) -> None:
        self._timer = None


@WORKLOAD.mutant("retry-timer-decides", "INV-121", patch=replicator)
class _RetryTimerDecides(Replicator):
    """A replicator opens its producer when a retry is due, although its state has changed since."""

    def __init__(self, topic: TopicView, peer: PeerLink) -> None:
        super().__init__(topic, peer)
        self._retry = _KeepsRunning(self._retry_due)

    def _retry_due(self) -> None:
        if (
            self.peer.connected
            and not self.lifecycle.is_connected
            and self.lifecycle.state is not ReplicatorState.CLOSED
        ):
            self.lifecycle.state = ReplicatorState.OPENING
            self.peer.open_producer(self, self.topic.full_name)


@WORKLOAD.mutant("inactive-replicator-never-resumes", "INV-121", patch=replicator)
class _InactiveReplicatorNeverResumes(Replicator):
    """The replicator of an inactive topic does not open its producer for a new message."""

    def pump(self) -> None:
        if self.lifecycle.state is not ReplicatorState.RESTING:
            super().pump()

    def wake(self) -> None:
        return


WORKLOAD.reports("inactive-topic-replicates", "INV-121", LOST, "acknowledged, and not in the other region")
