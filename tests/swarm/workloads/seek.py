"""Consumers and readers that seek to the beginning or end of the log, to a message they received, or to a time.

Only a seek may move mark-delete back (INV-8) or over undelivered messages (INV-5); acknowledgements from before it may
be lost (INV-9). In return every message from the new position on is delivered once more (INV-16).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import EARLIEST, MessageId
from emulator.core.cursor.cursor import Cursor
from emulator.run.history_events import HistoryEvent
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found, witness_of
from emulator.simulation.virtual_time import EPOCH_MS
from tests.swarm.actors.clients import ConsumerActor
from tests.swarm.evidence import Evidence, OperationResult
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload
from tests.swarm.workloads.consumer_acts import ConsumerAct

TARGETS = ("earliest", "known", "time", "end")
READ_SECONDS = 5.0
"""Timeout of a reader's messages before and after its seek."""


WORKLOAD = Workload("seek", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class Seek(ConsumerAct):
    """A seek of one of the plan's consumers, in its current region."""

    target: str

    workload: ClassVar[str] = "seek"

    async def perform(self, context: ActContext) -> None:
        actor = self.actor(context)
        consumer = actor.consumer
        if consumer is None:
            return
        region, topic, subscription = actor.region, full(actor.plan.topic), actor.plan.subscription
        goal = await self._goal(context, actor)
        if goal is None:
            return
        began = context.now
        window = context.record.windows.begin(region, topic, subscription)
        actor.forget_held()
        await consumer.seek(goal)
        context.record.windows.end(window)
        detail = f"time {goal}" if isinstance(goal, int) else f"entry {goal.entry}:{goal.batch_index}"
        context.note_result(
            "accepted", began=began, region=region, topic=topic, subscription=subscription, detail=detail
        )

    async def _goal(self, context: ActContext, actor: ConsumerActor) -> MessageId | int | None:
        assert actor.consumer is not None
        if self.target == "earliest":
            return EARLIEST
        if self.target == "time":
            return int(EPOCH_MS + 1000 * context.random.uniform(0, context.now))
        if self.target == "end":
            return await actor.consumer.last_message_id()
        known = actor.known_ids[-200:]
        return context.random.choice(known) if known else None


@dataclass(frozen=True, slots=True)
class SeekReader(Act):
    """A reader that reads a few messages and seeks to the earliest one."""

    topic: str
    by_time: bool

    workload: ClassVar[str] = "seek"

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        reader = await client.reader(self.topic, EARLIEST)
        try:
            async with asyncio.timeout(READ_SECONDS):
                for _ in range(context.random.randint(1, 5)):
                    await reader.receive()
                await reader.seek(0 if self.by_time else EARLIEST)
                first = (await reader.receive()).id
            where = f"reader {first}"
            context.note_result("accepted", region=self.region, topic=full(self.topic), detail=where)
        except TimeoutError:
            context.note_result("nothing")
        finally:
            await client.close()


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    acts: list[Act] = []
    if random.random() < 0.3:
        for _ in range(random.randint(1, 2)):
            consumer = random.choice(plan.consumers)
            at = round(random.uniform(1.0, plan.break_seconds), 3)
            acts.append(Seek(at, consumer.region, consumer.name, random.choice(TARGETS)))
    if random.random() < 0.1:
        producer = random.choice(plan.producers)
        at = round(random.uniform(1.0, plan.break_seconds), 3)
        acts.append(SeekReader(at, producer.region, producer.topic, random.random() < 0.5))
    return replace(plan, acts=(*plan.acts, *acts))


# INV-16


@WORKLOAD.checker("seek-redelivers", "INV-16", only_healed=True)
def redelivered_after_seek(evidence: Evidence) -> Found:
    """After a seek a subscription receives every message from the new position on once more.

    Checks only the last seek of a subscription, and only if no other region or operation may have moved it since.
    """
    for seek in lasting(evidence):
        entry, index = map(int, seek.detail.removeprefix("entry ").split(":"))
        yield from not_given(evidence, seek, (entry, index), f"was moved back to {seek.detail}")


def lasting(evidence: Evidence) -> Iterator[OperationResult]:
    """Yield the last accepted seek by message id of each subscription that only this region's consumers moved since."""
    last: dict[tuple[str, str, str], OperationResult] = {}
    beside: set[tuple[str, str, str]] = set()
    """Subscriptions whose last seek overlapped with another operation, so that their order is unknown."""
    for operation in evidence.operations:
        if operation.subscription:
            one = operation.region, operation.topic, operation.subscription
            if one in last and last[one].ended >= operation.began:
                beside.add(one)
            else:
                beside.discard(one)
            last[one] = operation
    for (region, topic, subscription), operation in last.items():
        alone = (topic, subscription) not in evidence.delivered.replicated or evidence.subscribed.get(
            (topic, subscription)
        ) == [region]
        by_id = operation.detail.startswith(
            "entry "
        )  # the position of a time depends on the timestamps of several clocks
        is_known = (region, topic, subscription) not in beside
        if (
            operation.workload == Seek.workload
            and operation.outcome == "accepted"
            and by_id
            and alone
            and is_known
        ):
            yield operation


def not_given(evidence: Evidence, seek: OperationResult, begin: tuple[int, int], happened: str) -> Found:
    """Yield the messages that the subscription did not receive since the seek, from (entry, batch index) on."""
    view = evidence.log(seek.region, seek.topic)
    began_ms = EPOCH_MS + seek.began * 1000
    next_message, done, upto = set[str](), set[str](), -1
    for event in evidence.events:
        if event.at_ms < began_ms or not _is_of(event, seek):
            continue
        if event.op == "receive":
            next_message.add(event.message_id or "")
        elif event.op == "acknowledge":
            done.add(event.message_id or "")
            if event.how == "cumulative":
                upto = max(upto, int((event.message_id or "").split(":")[1]))
    for one in view.messages:
        is_behind = (one.entry, one.batch_index) >= begin
        if is_behind and one.entry > upto and one.message_id not in next_message | done:
            yield (
                f"{seek.subscription} in {seek.region} {happened} and never delivered "
                f"{one.origin} at {one.message_id} again",
                {**witness_of(one), "subscription": seek.subscription},
            )
            return


def _is_of(event: HistoryEvent, seek: OperationResult) -> bool:
    return event.subscription == seek.subscription and event.region == seek.region


@WORKLOAD.checker("readers-seek-back", "INV-16")
def reader_began_again(evidence: Evidence) -> Found:
    """A reader that seeks to the beginning receives the first message."""
    for operation in evidence.operations:
        if operation.workload == Seek.workload and operation.detail.startswith("reader "):
            next_message = operation.detail.removeprefix("reader ")
            messages = evidence.log(operation.region, operation.topic).messages
            if messages and next_message != messages[0].message_id:
                yield (
                    f"a reader in {operation.region} sought to the beginning and received {next_message}, "
                    f"not {messages[0].message_id}",
                    {"given": next_message, "topic": operation.topic, "region": operation.region},
                )


@WORKLOAD.mutant("seek-ignored", "INV-16", patch=part("cursor"))
class _SeekIgnored(Cursor):
    """A seek is confirmed, and the cursor does not move."""

    def seek(self, next_entry_id: int, end_entry_id: int = 0) -> None:
        pass
