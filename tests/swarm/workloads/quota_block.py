"""Programs whose topic has a backlog quota by size or age that holds or rejects producers while no consumer reads.
Over the quota no client can publish, the subscription skips nothing (INV-5), and once everything is acknowledged
producers can publish again.

Each program has a topic of its own. What was taken from it, it knows itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.client import Client, ClientError, Producer
from emulator.core.policies.lifetime import QuotaAction, Quotas
from emulator.core.topic.retention import Backlog, Exceeded, exceeded
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload
from tests.swarm.workloads.expiring_program import (
    CONVERGENCE_SECONDS,
    STEP_SECONDS,
    SUBSCRIPTION,
    OwnTopicProgram,
)
from tests.swarm.workloads.expiry_policy import AGE, SIZE, STAYS

NAME = "keep-away"
WORKLOAD = Workload(NAME)
SHUT = "shut: "
FAILURES = 3
"""Number of consecutive failed publishes after which the producer counts as blocked. The faults have ended by then, and
the client retries every error."""
PAYLOAD_BYTES = 100


@dataclass(frozen=True, slots=True)
class QuotaBlockProgram(OwnTopicProgram):
    """A program that publishes until the quota blocks it, acknowledges everything, and publishes again."""

    kind: str
    limit: int
    """Limit of the quota, in bytes or in seconds of age."""
    action: str

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        client = self.reader(context)
        try:
            await (await self.subscribed(client, context, SUBSCRIPTION)).close()
            where = f"/backlogQuota?backlogQuotaType={self.kind}"
            if await self.retry_until_done(context, "POST", where, self._quota, done=(204,)):
                await self._fill_and_empty(client, context)
        finally:
            await client.close()

    @property
    def _quota(self) -> dict[str, Any]:
        by_size = self.kind == SIZE
        return {
            "limitSize": self.limit if by_size else -1,
            "limitTime": -1 if by_size else self.limit,
            "policy": self.action,
        }

    async def _fill_and_empty(self, client: Client, context: ActContext) -> None:
        writer = Writer(self, client, context)
        while context.now < self.faults_end_seconds:
            await writer.publish()
            await asyncio.sleep(self.pause_seconds)
        is_kept_away = await self._comes_about(context, writer, lambda: writer.failures >= FAILURES)
        consumer = await self.subscribed(client, context, SUBSCRIPTION)
        arrived = await self.everything(consumer, context, set(writer.taken))
        count = len(writer.taken)
        if not is_kept_away:
            self._report(
                context, f"{STAYS}{count} messages of {PAYLOAD_BYTES} bytes or more; the quota: {self._quota}"
            )
        elif not await self._comes_about(context, writer, lambda: len(writer.taken) > count):
            self._report(context, f"{SHUT}{len(arrived)} of {count} messages were delivered and acknowledged")
        else:
            context.note_result(
                "accepted", topic=self.topic(context), detail=f"{count} messages, {self._quota}"
            )

    async def _comes_about(self, context: ActContext, writer: Writer, is_so: Callable[[], bool]) -> bool:
        """Publish repeatedly until the condition holds. Return False at the deadline."""
        give_up_at = context.now + CONVERGENCE_SECONDS
        while context.now < give_up_at:
            await writer.publish()
            if is_so():
                return True
            await asyncio.sleep(0.2)
        return False

    def _report(self, context: ActContext, reported: str) -> None:
        context.note_result("refused", topic=self.topic(context), detail=reported)


class Writer:
    """Publishes with one producer at a time, and opens a new one after each failure."""

    def __init__(self, act: QuotaBlockProgram, client: Client, context: ActContext) -> None:
        self._act, self._client, self._stage = act, client, context
        self._producer: Producer | None = None
        self._requested = 0
        self.taken: set[bytes] = set()
        self.failures = 0
        """Number of consecutive failed publishes."""

    async def publish(self) -> None:
        """Publish a new message, and count a failure if there is no receipt in time."""
        self._requested += 1
        payload = f"{self._stage.name}/{self._requested}/".encode().ljust(PAYLOAD_BYTES, b".")
        try:
            async with asyncio.timeout(STEP_SECONDS):
                if self._producer is None:
                    name = f"{self._stage.name}-{self._requested}"
                    self._producer = await self._client.producer(self._act.topic(self._stage), name=name)
                await self._producer.send(payload)
            self.taken.add(payload)
            self.failures = 0
        except (ClientError, TimeoutError):
            self.failures += 1
            await self._close_producer()

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await producer.close()
        except (ClientError, TimeoutError):
            return


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in random regions, each with a small quota."""

    def keep_away() -> QuotaBlockProgram:
        region, seconds = random.choice(plan.regions), plan.break_seconds
        kind = random.choice((SIZE, SIZE, AGE))
        return QuotaBlockProgram(
            round(random.uniform(0.2, seconds * 0.6), 3),
            region,
            region,
            0,
            round(random.uniform(0.05, 0.5), 3),
            seconds + 1.0,
            kind,
            random.randint(300, 6_000) if kind == SIZE else random.randint(1, 8),
            random.choice((QuotaAction.HOLD, QuotaAction.EXCEPTION)).value,
        )

    return replace(plan, acts=(*plan.acts, *(keep_away() for _ in range(random.randint(1, 4)))))


@WORKLOAD.mutant("quota-never-blocks", "INV-88", patch=part("exceeded"))
def _quota_never_blocks(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """A quota that should hold or reject producers admits all of them."""
    return [one for one in exceeded(quotas, backlog) if one.action is QuotaAction.EVICT]


@WORKLOAD.mutant("quota-by-age-never-blocks", "INV-88", patch=part("exceeded"))
def _quota_by_age_never_blocks(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """A quota by age blocks no producer, regardless of the age of the oldest message."""
    return exceeded(quotas, backlog._replace(age_ms=0))


@WORKLOAD.mutant("blocking-quota-evicts", "INV-5", patch=part("exceeded"))
def _blocking_quota_evicts(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """A quota that should hold or reject producers evicts messages."""
    return [one._replace(action=QuotaAction.EVICT) for one in exceeded(quotas, backlog)]


@WORKLOAD.mutant("quota-blocks-forever", "INV-88", patch=part("exceeded"))
def _quota_blocks_forever(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """A topic with a quota always counts as over it, regardless of its backlog."""
    return exceeded(quotas, backlog._replace(size_bytes=2**40, age_ms=2**40))


WORKLOAD.reports("quota-blocks-producers", "INV-88", STAYS, "over its quota, and clients still publish")
WORKLOAD.reports(
    "producers-unblocked", "INV-88", SHUT, "everything was acknowledged, and no client can publish"
)
