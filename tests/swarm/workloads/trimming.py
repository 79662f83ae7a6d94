"""Programs that publish in one region and consume in another while acknowledged messages are trimmed: every
unacknowledged message is delivered to its subscription, regardless of crashes, and finally the disk space is
released.

Each program has a topic of its own. What it published and acknowledged it knows itself: the logs no longer tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar

from emulator.broker.topic.retention import Trimmer
from emulator.broker.topic.topic import Topic
from emulator.client import Client, ClientError, Consumer
from emulator.core.topic.retention import LogHold
from emulator.net.http import NoHttpResponse
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import topic
from tests.swarm.plan import Plan
from tests.swarm.workload import ActContext, Workload, has_operations
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "trim"
WORKLOAD = Workload(NAME)
SUBSCRIPTION = "keeper"
STEP_SECONDS = 8.0
"""Timeout of operations that may be impossible during faults; the program then continues without their result."""
CONVERGENCE_SECONDS = 60.0
"""Deadline for convergence after healing, in virtual seconds."""
LOST = "lost: "
STAYS = "stays: "


@dataclass(frozen=True, slots=True)
class TrimmingProgram(OwnTopic):
    """A program that publishes in `region`, consumes in `reading`, acknowledges a part, and consumes the rest later."""

    acknowledged: tuple[bool, ...]
    """For each message, whether the first consumer acknowledges it."""
    pause_seconds: float
    """Pause between two messages."""
    faults_end_seconds: float
    """Time at which the faults end and the program consumes the rest."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        writer, reader = context.client(), self.reader(context)
        try:
            consumer = await self.subscribed(reader, context, SUBSCRIPTION)
            expected: set[bytes] = set()
            publishing = asyncio.ensure_future(self._publish(writer, context, expected))
            touched = await self._take_first(consumer, context)
            await publishing
            await consumer.close()
            await asyncio.sleep(max(0.0, self.faults_end_seconds - context.now))
            missing = await self._take_rest(
                await self.subscribed(reader, context, SUBSCRIPTION), context, expected - touched
            )
            if missing:
                reported = f"{LOST}{min(missing).decode()} and {len(missing) - 1} more of {len(expected)}"
                context.note_result("refused", topic=full(context.name), detail=reported)
                return
            await self._given_back(context)
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, context: ActContext, expected: set[bytes]) -> None:
        """Publish all messages, and add those with a receipt to `expected`."""
        producer = await client.producer(full(context.name), name=context.name)
        for number in range(len(self.acknowledged)):
            payload = f"{context.name}/{number}".encode()
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return  # neither this message nor a later one has a receipt
            expected.add(payload)
            await asyncio.sleep(self.pause_seconds)

    async def _take_first(self, consumer: Consumer, context: ActContext) -> set[bytes]:
        """Consume once and acknowledge a part. Return the messages that are or may be acknowledged."""
        touched: set[bytes] = set()
        for _ in self.acknowledged:
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    message = await self.next_message(consumer, context)
                    if self.acknowledged[int(message.payload.rpartition(b"/")[2])]:
                        touched.add(message.payload)
                        await consumer.acknowledge(message, confirmed=True)
            except (TimeoutError, ClientError):
                break
        return touched

    async def _take_rest(self, consumer: Consumer, context: ActContext, missing: set[bytes]) -> set[bytes]:
        """Consume and acknowledge the rest; return the messages that were not delivered. Messages whose publish has an
        unknown outcome are acknowledged, too: otherwise the log would rightly keep them."""
        missing = set(missing)
        while True:
            try:
                async with asyncio.timeout(CONVERGENCE_SECONDS if missing else STEP_SECONDS):
                    message = await self.next_message(consumer, context)
                    missing.discard(message.payload)
                    await consumer.acknowledge(message, confirmed=True)
            except TimeoutError:
                return missing

    async def _given_back(self, context: ActContext) -> None:
        """Wait until neither region stores any byte: everything is acknowledged."""
        deadline = context.now + CONVERGENCE_SECONDS
        while True:
            kept = {region: await _log_bytes(self, context, region) for region in dict.fromkeys(self.places)}
            if not any(kept.values()):
                context.note_result("accepted", topic=full(context.name))
                return
            if context.now > deadline:
                context.note_result("refused", topic=full(context.name), detail=f"{STAYS}{kept}")
                return
            await asyncio.sleep(1.0)


async def _log_bytes(act: TrimmingProgram, context: ActContext, region: str) -> int | None:
    """Return the size of the topic's log; None: the topic does not exist; -1: no response."""
    try:
        stats = await act.stats(context, region)
    except NoHttpResponse:
        return -1
    return None if stats is None else int(stats["storageSize"])


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, most of which read in another one."""
    seconds = plan.break_seconds

    def stream() -> TrimmingProgram:
        count = random.randint(4, 40)
        return TrimmingProgram(
            round(random.uniform(0.2, seconds * 0.5), 3),
            random.choice(plan.regions),
            random.choice(plan.regions),
            tuple(random.random() < 0.7 for _ in range(count)),
            round(seconds / count * random.uniform(0.1, 0.8), 4),
            seconds + 1.0,
        )

    return replace(plan, acts=(*plan.acts, *(stream() for _ in range(random.randint(2, 5)))))


# INV-36 and INV-60


@WORKLOAD.checker("nothing-needed-is-trimmed", "INV-36", applies=has_operations)
def nothing_needed_goes(evidence: Evidence) -> Found:
    """Every message with a receipt that is not yet acknowledged is delivered to the subscription."""
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(LOST):
            sentence = f"{operation.topic}: never delivered: {operation.detail.removeprefix(LOST)}"
            yield sentence, {"region": operation.region, "topic": operation.topic}


@WORKLOAD.checker("disk-space-released", "INV-60", applies=has_operations)
def disks_are_given_back(evidence: Evidence) -> Found:
    """Messages that every subscription has acknowledged are trimmed."""
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(STAYS):
            size = operation.detail.removeprefix(STAYS)
            sentence = f"{operation.topic} is acknowledged, and its logs still have bytes: {size}"
            yield sentence, {"region": operation.region, "topic": operation.topic}


def _with(careless: type[Trimmer]) -> type[Topic]:
    class TrimmedCarelessly(Topic):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.retention.trimmer = careless(self, self.subscriptions, self.replicators)

    return TrimmedCarelessly


@WORKLOAD.mutant("trimming-ignores-cursors", "INV-36", "INV-5", patch=lambda part: topic(_with(part)))
class _TrimmingIgnoresCursors(Trimmer):
    """Trimming ignores the positions of subscriptions."""

    def _cursor_holds(self) -> Iterable[LogHold]:
        return ()


@WORKLOAD.mutant("trimming-ignores-replicators", "INV-36", patch=lambda part: topic(_with(part)))
class _TrimmingIgnoresReplicators(Trimmer):
    """Trimming ignores the positions of replicators."""

    def _replicator_holds(self) -> Iterable[LogHold]:
        return ()


@WORKLOAD.mutant("nothing-trimmed", "INV-60", patch=lambda part: topic(_with(part)))
class _NothingTrimmed(Trimmer):
    """Messages that every cursor has passed are not trimmed."""

    async def trim(self, before_entry_id: int) -> None:
        return
