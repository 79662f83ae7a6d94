"""Programs whose topic has a used and an unused subscription, with a policy that lets unused ones expire: the used
one stays, receives everything, and its deletion is rejected; the unused one is removed by expiry or on request, and
never before its time.

Each program has a topic of its own. What was taken from it, it knows itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.topic_directory.inactivity import InactivityTracker
from emulator.client import Client, Consumer
from emulator.core.policies.lifetime import MS_PER_MINUTE
from emulator.net.http import NoHttpResponse
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import CONVERGENCE_SECONDS
from tests.swarm.workloads.topic_termination_acts import Receipts, TerminatingProgram

NAME = "idle"
WORKLOAD = Workload(NAME)
USED_NAME, UNUSED_NAME = "used", "unused"
MINUTES = 1
GONE, STAYS, LOST, EARLY = "gone: ", "stays: ", "lost: ", "early: "
IN_USE = 412
NOBODY_ELSE = 404
NAMESPACE = "public/default"


@dataclass(frozen=True, slots=True)
class SubscriptionExpiryProgram(TerminatingProgram):
    """A program that publishes and consumes, with a second subscription that stays unused."""

    is_deleted: bool
    """True: an administrator deletes the unused subscription. False: it expires."""
    stays_away_seconds: float
    """Interval between two checks whether the unused subscription is removed."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        client, receipts = self.reader(context), Receipts()
        try:
            used = await self.subscribed(client, context, USED_NAME)
            if not await self._expires(context):
                return
            unused = await self.subscribed(client, context, UNUSED_NAME)
            arrived: set[bytes] = set()
            taking = asyncio.ensure_future(self._take(used, context, arrived))
            await self._publish(client, context, receipts)
            await self.wait_for_repair(context)
            await self._is_back(context)
            await unused.close()
            reported = await self._checked(client, context, receipts, arrived, context.now)
            taking.cancel()
            context.note_result(
                "refused" if reported else "accepted",
                topic=self.topic(context),
                detail=reported or "as it should be",
            )
        finally:
            await client.close()

    async def _expires(self, context: ActContext) -> bool:
        """Set the expiration time of the namespace's subscriptions. Return False: not before the deadline."""
        host = context.world.client_host(context.name, self.region)
        target = f"/admin/v2/namespaces/{NAMESPACE}/subscriptionExpirationTime"
        while context.now < self.faults_end_seconds + CONVERGENCE_SECONDS:
            try:
                answer = await context.world.ask_admin(self.reading, "POST", target, MINUTES, host=host)
                if answer.status == 204:
                    return True
            except NoHttpResponse:
                pass
            await asyncio.sleep(0.2)
        return False

    async def _publish(self, client: Client, context: ActContext, receipts: Receipts) -> None:
        producer = None
        for _ in range(self.messages):
            producer = await self.publish_one(client, producer, context, receipts)
            await asyncio.sleep(self.pause_seconds)
        if producer is not None:
            await self._close_producer(producer)

    async def _take(self, consumer: Consumer, context: ActContext, arrived: set[bytes]) -> None:
        while True:
            message = await self.next_message(consumer, context)
            arrived.add(message.payload)
            await consumer.acknowledge(message)

    # After the faults.

    async def _is_back(self, context: ActContext) -> None:
        """Wait until the consumer of the used subscription is connected, or until the deadline."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            try:
                stats = await self.stats(context, self.reading)
                if stats is not None and stats["subscriptions"].get(USED_NAME, {}).get("consumers"):
                    return
            except NoHttpResponse:
                pass
            await asyncio.sleep(0.1)

    async def _checked(
        self, client: Client, context: ActContext, receipts: Receipts, arrived: set[bytes], left: float
    ) -> str:
        status = await self.ask(context, "DELETE", f"/subscription/{USED_NAME}")
        if status != IN_USE:
            return f"{GONE}{USED_NAME} has a consumer, and its deletion returns {status}"
        if self.is_deleted:
            await self.retry_until_done(
                context, "DELETE", f"/subscription/{UNUSED_NAME}", done=(204, NOBODY_ELSE)
            )
        elif await self._goes(context, left + MINUTES * 60 - 1.0):
            return f"{EARLY}after {context.now - left:.3f} s, the policy is {MINUTES * 60} s"
        if not await self._goes(context, context.now + CONVERGENCE_SECONDS + self.stays_away_seconds):
            return f"{STAYS}{context.now - left:.3f} s after its consumer left or its deletion was requested"
        return await self._missing(client, context, receipts, arrived)

    async def _goes(self, context: ActContext, until: float) -> bool:
        """Whether the unused subscription is removed before `until`. The admin requests do not count as its use."""
        while context.now < until:
            try:
                stats = await self.stats(context, self.reading)
                if stats is not None and UNUSED_NAME not in stats["subscriptions"]:
                    return True
            except NoHttpResponse:
                pass
            await asyncio.sleep(min(self.stays_away_seconds, max(0.1, until - context.now)))
        return False

    async def _missing(
        self, client: Client, context: ActContext, receipts: Receipts, arrived: set[bytes]
    ) -> str:
        """Check that the used subscription receives everything, and that the other one is new when it is created again.
        Return the violation; empty: none."""
        producer = await client.producer(self.topic(context), name=f"{context.name}-last")
        last = f"{context.name}/last".encode()
        await producer.send(last)
        wanted = {*receipts.taken, last}
        give_up_at = context.now + CONVERGENCE_SECONDS
        while wanted - arrived and context.now < give_up_at:
            await asyncio.sleep(0.2)
        if wanted - arrived:
            return f"{LOST}{USED_NAME} has a consumer and did not receive {min(wanted - arrived).decode()}"
        anew = await self.subscribed(client, context, UNUSED_NAME)
        missing = wanted - await self.everything(anew, context, wanted)
        return (
            f"{LOST}{UNUSED_NAME} was created again and did not receive {min(missing).decode()}"
            if missing
            else ""
        )


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> SubscriptionExpiryProgram:
    seconds, region, count = plan.break_seconds, random.choice(plan.regions), random.randint(4, 20)
    return SubscriptionExpiryProgram(
        round(random.uniform(0.2, seconds * 0.4), 3),
        region,
        region,
        count,
        round(seconds / count * 0.4, 4),
        seconds + 1.0,
        random.random() < 0.4,
        random.choice((0.5, 5.0, 100.0)),
    )


# INV-116


@WORKLOAD.mutant("subscription-expires-immediately", "INV-116", patch=part("inactivity"))
class _SubscriptionExpiresImmediately(InactivityTracker):
    """A subscription without consumers expires at the first check."""

    async def expire_subscriptions(self, minutes: int, now_ms: int) -> None:
        await super().expire_subscriptions(minutes, now_ms)
        await super().expire_subscriptions(minutes, now_ms + minutes * MS_PER_MINUTE)


@WORKLOAD.mutant("subscription-never-expires", "INV-116", patch=part("inactivity"))
class _SubscriptionNeverExpires(InactivityTracker):
    """Unused subscriptions never expire, regardless of the policy."""

    async def expire_subscriptions(self, minutes: int, now_ms: int) -> None:
        return


@WORKLOAD.mutant("used-subscription-expires", "INV-116", patch=part("inactivity"))
class _UsedSubscriptionExpires(InactivityTracker):
    """Subscriptions expire although consumers are attached."""

    async def expire_subscriptions(self, minutes: int, now_ms: int) -> None:
        for subscription in list(self._topic.subscriptions.values()):
            await subscription.delete()


WORKLOAD.reports("used-subscription-kept", "INV-116", GONE, "in use, and its deletion was not rejected")
WORKLOAD.reports("no-early-subscription-expiry", "INV-116", EARLY, "removed before its time")
WORKLOAD.reports("unused-subscription-removed", "INV-116", STAYS, "unused, and still there")
WORKLOAD.reports(
    "other-subscriptions-complete", "INV-116", LOST, "acknowledged to its producer, and never delivered"
)
