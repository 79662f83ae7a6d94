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
from emulator.net.http import NoAnswer
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Stage, Workload
from tests.swarm.workloads.expiring_program import PATIENCE_SECONDS
from tests.swarm.workloads.topic_termination_acts import Finishing, Receipts

NAME = "idle"
WORKLOAD = Workload(NAME)
USED_NAME, UNUSED_NAME = "used", "unused"
MINUTES = 1
GONE, STAYS, LOST, EARLY = "gone: ", "stays: ", "lost: ", "early: "
IN_USE = 412
NOBODY_ELSE = 404
NAMESPACE = "public/default"


@dataclass(frozen=True, slots=True)
class Idle(Finishing):
    """Publishes and consumes; a second subscription stays unused."""

    is_deleted: bool
    """An administrator deletes the unused subscription; otherwise it expires."""
    stays_away_seconds: float
    """How long no client publishes or consumes in the end."""

    workload: ClassVar[str] = NAME

    async def perform(self, stage: Stage) -> None:
        client, receipts = self.reader(stage), Receipts()
        try:
            used = await self.subscribed(client, stage, USED_NAME)
            if not await self._expires(stage):
                return
            unused = await self.subscribed(client, stage, UNUSED_NAME)
            came: set[bytes] = set()
            taking = asyncio.ensure_future(self._take(used, stage, came))
            await self._publish(client, stage, receipts)
            await self.calm(stage)
            await self._is_back(stage)
            await unused.close()
            told = await self._judged(client, stage, receipts, came, stage.now)
            taking.cancel()
            stage.did(
                "refused" if told else "accepted", topic=self.topic(stage), detail=told or "as it should be"
            )
        finally:
            await client.close()

    async def _expires(self, stage: Stage) -> bool:
        """Subscriptions of the namespace do, from now on."""
        host = stage.world.client_host(stage.name, self.region)
        target = f"/admin/v2/namespaces/{NAMESPACE}/subscriptionExpirationTime"
        while stage.now < self.breaks_end_seconds + PATIENCE_SECONDS:
            try:
                answer = await stage.world.ask_admin(self.reading, "POST", target, MINUTES, host=host)
                if answer.status == 204:
                    return True
            except NoAnswer:
                pass
            await asyncio.sleep(0.2)
        return False

    async def _publish(self, client: Client, stage: Stage, receipts: Receipts) -> None:
        producer = None
        for _ in range(self.messages):
            producer = await self.publish_one(client, producer, stage, receipts)
            await asyncio.sleep(self.pause_seconds)
        if producer is not None:
            await self._let_go(producer)

    async def _take(self, consumer: Consumer, stage: Stage, came: set[bytes]) -> None:
        while True:
            message = await self.given(consumer, stage)
            came.add(message.payload)
            await consumer.acknowledge(message)

    # In the end.

    async def _is_back(self, stage: Stage) -> None:
        """The region has the consumer that uses its subscription, or never will."""
        give_up_at = stage.now + PATIENCE_SECONDS
        while stage.now < give_up_at:
            try:
                stats = await self.stats(stage, self.reading)
                if stats is not None and stats["subscriptions"].get(USED_NAME, {}).get("consumers"):
                    return
            except NoAnswer:
                pass
            await asyncio.sleep(0.1)

    async def _judged(
        self, client: Client, stage: Stage, receipts: Receipts, came: set[bytes], left: float
    ) -> str:
        status = await self.ask(stage, "DELETE", f"/subscription/{USED_NAME}")
        if status != IN_USE:
            return f"{GONE}{USED_NAME} has a consumer, and its deletion returns {status}"
        if self.is_deleted:
            await self.insist(stage, "DELETE", f"/subscription/{UNUSED_NAME}", done=(204, NOBODY_ELSE))
        elif await self._goes(stage, left + MINUTES * 60 - 1.0):
            return f"{EARLY}after {stage.now - left:.3f} s, the policy is {MINUTES * 60} s"
        if not await self._goes(stage, stage.now + PATIENCE_SECONDS + self.stays_away_seconds):
            return f"{STAYS}{stage.now - left:.3f} s after its consumer left or its deletion was requested"
        return await self._missing(client, stage, receipts, came)

    async def _goes(self, stage: Stage, until: float) -> bool:
        """The unused one, before that moment. What asks the region is no use of it."""
        while stage.now < until:
            try:
                stats = await self.stats(stage, self.reading)
                if stats is not None and UNUSED_NAME not in stats["subscriptions"]:
                    return True
            except NoAnswer:
                pass
            await asyncio.sleep(min(self.stays_away_seconds, max(0.1, until - stage.now)))
        return False

    async def _missing(self, client: Client, stage: Stage, receipts: Receipts, came: set[bytes]) -> str:
        """The used subscription has received everything and receives new messages; the other one starts anew."""
        producer = await client.producer(self.topic(stage), name=f"{stage.name}-last")
        last = f"{stage.name}/last".encode()
        await producer.send(last)
        wanted = {*receipts.taken, last}
        give_up_at = stage.now + PATIENCE_SECONDS
        while wanted - came and stage.now < give_up_at:
            await asyncio.sleep(0.2)
        if wanted - came:
            return f"{LOST}{USED_NAME} has a consumer and did not receive {min(wanted - came).decode()}"
        anew = await self.subscribed(client, stage, UNUSED_NAME)
        missing = wanted - await self.everything(anew, stage, wanted)
        return (
            f"{LOST}{UNUSED_NAME} was created again and did not receive {min(missing).decode()}"
            if missing
            else ""
        )


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    return replace(plan, acts=(*plan.acts, *(_program(random, plan) for _ in range(random.randint(1, 3)))))


def _program(random: Random, plan: Plan) -> Idle:
    seconds, region, count = plan.break_seconds, random.choice(plan.regions), random.randint(4, 20)
    return Idle(
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
