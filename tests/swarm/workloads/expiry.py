"""Programs whose messages expire or are evicted by a policy that is set and removed
(`expiry_policy.py`), or whose topic is deleted by force with clients attached. No message
expires early, every expired message is removed, and a topic that is used after its deletion has all messages that
are published to it then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from emulator.client import ClientError, Consumer, InitialPosition, Producer
from emulator.core.policies.lifetime import Quotas
from emulator.core.topic.retention import AgedEntry, Ages, Backlog, Exceeded, exceeded
from emulator.model.stored_keys import CursorKey
from emulator.simulation.disk import DiskStore, SimulatedDisk
from tests.swarm.mutant import medium, part
from tests.swarm.plan import Plan
from tests.swarm.topics import DELETED
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    NAME,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)
from tests.swarm.workloads.expiry_policy import EARLY, STAYS, Eviction, Expiry, by_quota

BACK = "back: "
LOST = "lost: "


WORKLOAD = Workload(NAME)


@dataclass(frozen=True, slots=True)
class Deletion(OwnTopicProgram):
    """A program that publishes, reads a part, deletes the topic with open clients, and continues with these clients."""

    def topic(self, context: ActContext) -> str:
        return f"{DELETED}{context.name}"

    async def perform(self, context: ActContext) -> None:
        reader = self.reader(context)
        try:
            consumer = await self.subscribed(reader, context, SUBSCRIPTION)
            producer = await reader.producer(self.topic(context), name=context.name)
            first = await self._publish(producer, context, "first")
            await self._read_some(consumer, context)
            if not await self.retry_until_done(context, "DELETE", "?force=true"):
                return
            await self.wait_for_repair(context)
            second = await self._publish(producer, context, "second")
            arrived = await self.everything(consumer, context, second)
            late = await reader.subscribe(
                self.topic(context), "late", initial_position=InitialPosition.EARLIEST
            )
            back = first & await self.everything(late, context, second)
            self._report(context, second - arrived, back)
        finally:
            await reader.close()

    async def _publish(self, producer: Producer, context: ActContext, incarnation: str) -> set[bytes]:
        """Publish all messages of one life of the topic. Return the payloads with a receipt."""
        stored: set[bytes] = set()
        for number in range(self.messages):
            payload = f"{context.name}/{incarnation}/{number}".encode()
            try:
                async with asyncio.timeout(CONVERGENCE_SECONDS):
                    await producer.send(payload)
            except (ClientError, TimeoutError):
                continue
            stored.add(payload)
            await asyncio.sleep(self.pause_seconds)
        return stored

    async def _read_some(self, consumer: Consumer, context: ActContext) -> None:
        """Read some messages, so that the subscription has a position when the topic is deleted."""
        for _ in range(self.messages // 2):
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await consumer.acknowledge(await self.next_message(consumer, context), confirmed=True)
            except (TimeoutError, ClientError):
                return

    def _report(self, context: ActContext, lost: set[bytes], back: set[bytes]) -> None:
        for what, payloads in ((LOST, lost), (BACK, back)):
            if payloads:
                reported = f"{what}{min(payloads).decode()} and {len(payloads) - 1} more"
                context.note_result("refused", topic=self.topic(context), detail=reported)
                return
        context.note_result("accepted", topic=self.topic(context))


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs whose messages expire or are evicted, and programs that delete their topic."""
    seconds = plan.break_seconds

    def mortal(make: Callable[..., OwnTopicProgram], *more: object) -> OwnTopicProgram:
        count, region = random.randint(4, 30), random.choice(plan.regions)
        reading = region if make is Deletion else random.choice(plan.regions)
        pause = round(seconds / count * random.uniform(0.1, 0.8), 4)
        begin = round(random.uniform(0.2, seconds * 0.4), 3)
        return make(begin, region, reading, count, pause, seconds + 1.0, *more)

    def letting_go() -> OwnTopicProgram:
        lasts = round(random.uniform(0.0, seconds * 0.5), 3) if random.random() < 0.7 else None
        begin = round(random.uniform(0.5, seconds), 3)
        if random.random() < 0.6:
            return mortal(Expiry, begin, lasts, random.randint(1, 4))
        return mortal(Eviction, begin, lasts, random.randint(600, 6_000))

    acts = [letting_go() if random.random() < 0.7 else mortal(Deletion) for _ in range(random.randint(2, 5))]
    # Every second one, without a random draw: so all other draws of a seed stay the same.
    ageing = [(number, act) for number, act in enumerate(acts) if isinstance(act, Expiry)]
    for number, act in ageing[1::2]:
        acts[number] = by_quota(act)
    return replace(plan, acts=(*plan.acts, *acts))


# INV-87 to INV-89


@WORKLOAD.mutant("expiry-ignores-age", "INV-87", patch=part("ages"))
class _ExpiryIgnoresAge(Ages):
    """A message expires before its time to live."""

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return True


@WORKLOAD.mutant("nothing-expires", "INV-88", patch=part("ages"))
class _NothingExpires(Ages):
    """No message expires, regardless of its age."""

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return False


@WORKLOAD.mutant("quota-always-exceeded", "INV-87", patch=part("backlog_bytes"))
def _quota_always_exceeded(*_: int) -> int:
    """Every backlog counts as over its quota."""
    return 2**40


@WORKLOAD.mutant("quota-never-exceeded", "INV-88", patch=part("backlog_bytes"))
def _quota_never_exceeded(*_: int) -> int:
    """No backlog counts as over its quota."""
    return 0


@WORKLOAD.mutant("quota-never-too-old", "INV-88", patch=part("exceeded"))
def _quota_never_too_old(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """A quota by age is never exceeded, regardless of the age of the backlog."""
    return exceeded(quotas, backlog._replace(age_ms=0))


class _KeepsCursorsStore(DiskStore):
    """A store that keeps the cursors of a deleted topic."""

    def delete(self, key: str) -> asyncio.Future[None]:
        if not key.startswith(CursorKey.prefix()):
            return super().delete(key)
        kept: asyncio.Future[None] = self.loop.create_future()
        kept.set_result(None)
        return kept


@WORKLOAD.mutant("cursors-outlive-topics", "INV-89", patch=medium("disk"))
class _CursorsOutliveTopics(SimulatedDisk):
    """Deleting a topic does not delete the cursors of its subscriptions."""

    def make_store(self, owner: int) -> DiskStore:
        return _KeepsCursorsStore(self, owner)


WORKLOAD.reports(
    "nothing-expires-early", "INV-87", EARLY, "skipped by its subscription before the policy allows it"
)
WORKLOAD.reports("expired-is-removed", "INV-88", STAYS, "beyond its policy, and still stored")
WORKLOAD.reports("deleted-messages-stay-deleted", "INV-89", BACK, "delivered after its topic was deleted")
WORKLOAD.reports(
    "recreated-topic-complete", "INV-89", LOST, "published after the topic was deleted, and never delivered"
)
