"""Consumers that cannot process some messages: they acknowledge negatively, use the retry letter topic or let the
acknowledgement time out, with dead letters. Each message ends acknowledged or as a dead letter, regardless of
crashes, and no message is delivered more often than the policy allows.

Each program has a topic of its own. It records its deliveries, their redelivery counts and the outcomes itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from emulator.client import (
    Client,
    ClientError,
    Consumer,
    ConsumerType,
    DeadLetters,
    InitialPosition,
    Message,
    MessageId,
)
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.topic_consumer import TopicConsumer
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import dispatching
from tests.swarm.plan import Plan
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import ActContext, Workload, has_operations
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "give-up"
WORKLOAD = Workload(NAME)
SUBSCRIPTION = "worker"
GRAVES = "graves"
"""Subscription to the dead letter topic, created together with that topic."""
ACK_TIMEOUT_SECONDS = 0.5
PUT_OFF_SECONDS = 0.3
CONVERGENCE_SECONDS = 90.0
"""Deadline for convergence after healing, in virtual seconds."""
STEP_SECONDS = 1.0
LOST, MISCOUNTED = "lost: ", "miscounted: "

Fate = Literal["accept", "refuse", "hesitate", "forget", "put off"]
FATES: tuple[Fate, ...] = ("accept", "refuse", "hesitate", "forget")


@dataclass(frozen=True, slots=True)
class DeadLetterProgram(OwnTopic):
    """A program that publishes in `region` and consumes in `reading`."""

    fates: tuple[Fate, ...]
    """For each message, how the program handles its deliveries. `hesitate`: reject the first, accept the second."""
    redeliveries_max: int
    leaves_seconds: tuple[float, ...]
    """Times at which the consumer closes with pending messages, and another one is opened."""
    pause_seconds: float
    """Pause between two messages."""
    faults_end_seconds: float
    """Time at which the faults end."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        """Only this workload checks its topic: the client moves messages to the dead letter topic without passing them
        to the program."""
        return f"{TRANSACTED}{context.name}"

    @property
    def letters(self) -> DeadLetters:
        retries = "put off" in self.fates
        return DeadLetters(self.redeliveries_max, initial_subscription=GRAVES, retries=retries)

    async def perform(self, context: ActContext) -> None:
        writer = context.client()
        work = _Work(self, context)
        try:
            publishing = asyncio.ensure_future(self._publish(writer, context, work.expected))
            for until in (*self.leaves_seconds, self.faults_end_seconds):
                await work.go_on(until)
            await publishing
            await work.finish(self.faults_end_seconds + CONVERGENCE_SECONDS)
            reported = work.verdict()
            context.note_result(
                "refused" if reported else "accepted", topic=self.topic(context), detail=reported
            )
        finally:
            await writer.close()
            await work.close()

    async def _publish(self, client: Client, context: ActContext, expected: set[bytes]) -> None:
        """Publish all messages, and add acknowledged ones to `expected`."""
        producer = await client.producer(self.topic(context), name=context.name)
        for number in range(len(self.fates)):
            payload = f"{context.name}/{number}".encode()
            try:
                await producer.send(payload, sequence_id=number)
            except ClientError:
                return  # neither this message nor a later one has a receipt
            expected.add(payload)
            await asyncio.sleep(self.pause_seconds)


class _Work:
    """The messages of a program: their outcomes and redelivery counts."""

    def __init__(self, act: DeadLetterProgram, context: ActContext) -> None:
        self._act = act
        self._stage = context
        self._clients: list[Client] = []
        self.expected: set[bytes] = set()
        self._accepted: set[bytes] = set()
        self._buried: set[bytes] = set()
        self._counts: dict[MessageId, tuple[int, int]] = {}
        """Message id -> (number of times that the consumer had been opened, redelivery count) at the last delivery to
        the current consumer."""
        self._miscounted = ""

    async def go_on(self, until_seconds: float) -> None:
        """Process messages with a new consumer until the given time, then close it."""
        client = self._client()
        try:
            consumer = await self._subscribed(client)
            while self._stage.now < until_seconds:
                await self._step(consumer)
        except ClientError:  # the region is down; the next consumer tries again
            await asyncio.sleep(max(0.0, until_seconds - self._stage.now))
        await client.close()
        self._clients.remove(client)

    async def finish(self, deadline_seconds: float) -> None:
        """Process messages until each expected one is acknowledged or a dead letter, or until the deadline."""
        consumer = await self._subscribed(self._client())
        digging: asyncio.Task[None] | None = None
        while self._stage.now < deadline_seconds and self._missing:
            await self._step(consumer)
            if digging is None and self._stage.now > self._act.faults_end_seconds + STEP_SECONDS:
                digging = asyncio.ensure_future(self._dig())
        if digging is not None:
            digging.cancel()
            await asyncio.wait([digging])

    @property
    def _missing(self) -> set[bytes]:
        return self.expected - self._accepted - self._buried

    def verdict(self) -> str:
        missing = self._missing
        if missing and not self._miscounted:
            return f"{LOST}{min(missing).decode()} and {len(missing) - 1} more of {len(self.expected)}"
        return self._miscounted

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    # Messages.

    async def _step(self, consumer: Consumer) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                message = await consumer.receive()
        except TimeoutError:
            return
        self._look_at_count(consumer, message)
        try:
            await self._meet(consumer, message)
        except ClientError:  # the message is redelivered
            consumer.negative_acknowledge(message)

    async def _meet(self, consumer: Consumer, message: Message) -> None:
        match self._act.fates[int(message.payload.rpartition(b"/")[2])]:
            case "hesitate" if not message.redelivery_count:
                consumer.negative_acknowledge(message)
            case "accept" | "hesitate":
                self._accepted.add(message.payload)
                await consumer.acknowledge(message, confirmed=True)
            case "refuse":
                consumer.negative_acknowledge(message)
            case "put off":
                await consumer.reconsume_later(message, PUT_OFF_SECONDS)

    def _look_at_count(self, consumer: Consumer, message: Message) -> None:
        """Check the redelivery count (INV-97). A region restarts its count when the consumer disconnects, so only
        deliveries over one connection are compared."""
        count, most = message.redelivery_count, self._act.redeliveries_max
        if count > most:
            said = f"was delivered {count + 1} times, {most + 1} are allowed"
            self._miscounted = f"{MISCOUNTED}{message.payload.decode()} {said}"
        opened = _attachment(consumer, message)
        before = self._counts.get(message.id)
        if before is not None and before[0] == opened and count != before[1] + 1:
            said = f"was delivered with redelivery count {count} after {before[1]}"
            self._miscounted = f"{MISCOUNTED}{message.payload.decode()} {said}"
        self._counts[message.id] = (opened, count)

    async def _dig(self) -> None:
        """Consume the dead letters. The dead letter topic is created with this subscription, so it misses none."""
        consumer = await self._client().subscribe(
            f"{self._act.topic(self._stage)}-{SUBSCRIPTION}-DLQ", GRAVES
        )
        while True:
            message = await consumer.receive()
            self._buried.add(message.payload)
            await consumer.acknowledge(message)

    def _client(self) -> Client:
        client = self._act.reader(self._stage)
        self._clients.append(client)
        self._counts.clear()
        return client

    async def _subscribed(self, client: Client) -> Consumer:
        return await client.subscribe(
            self._act.topic(self._stage),
            SUBSCRIPTION,
            type_=ConsumerType.SHARED,
            initial_position=InitialPosition.EARLIEST,
            negative_ack_delay_seconds=0.05,
            ack_timeout_seconds=ACK_TIMEOUT_SECONDS,
            dead_letters=self._act.letters,
            receiver_queue_size=5,
        )


def _attachment(consumer: Consumer, message: Message) -> int:
    """Return how often the consumer of the message's topic has been opened; -1: unknown."""
    child = consumer.consumers.get(message.topic) if isinstance(consumer, MultiTopicConsumer) else consumer
    return child.session.times_opened if isinstance(child, TopicConsumer) else -1


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, some of which consume in another one."""
    seconds = plan.break_seconds

    def program() -> DeadLetterProgram:
        count, fates = random.randint(3, 15), (*FATES, *(["put off"] if random.random() < 0.4 else []))
        return DeadLetterProgram(
            round(random.uniform(0.2, seconds * 0.4), 3),
            random.choice(plan.regions),
            random.choice(plan.regions),
            tuple(random.choices(fates, k=count)),  # type: ignore[arg-type]
            random.choice((0, 1, 2)),
            tuple(
                sorted(
                    round(random.uniform(seconds * 0.4, seconds), 3) for _ in range(random.choice((0, 1, 2)))
                )
            ),
            round(seconds / count * random.uniform(0.05, 0.5), 4),
            seconds + 1.0,
        )

    return replace(plan, acts=(*plan.acts, *(program() for _ in range(random.randint(2, 4)))))


# INV-96 and INV-97


@WORKLOAD.checker("acknowledged-or-dead-letter", "INV-96", applies=has_operations)
def ends_somewhere(evidence: Evidence) -> Found:
    """Every message with a receipt is acknowledged by the program or becomes a dead letter."""
    return _reported(evidence, LOST, "neither acknowledged nor a dead letter: ")


@WORKLOAD.checker("redelivery-counts-correct", "INV-97", applies=has_operations)
def counts_are_right(evidence: Evidence) -> Found:
    """Each delivery has the correct redelivery count, and no message is delivered more often than allowed."""
    return _reported(evidence, MISCOUNTED, "")


def _reported(evidence: Evidence, what: str, sentence: str) -> Found:
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(what):
            reported = f"{operation.topic}: {sentence}{operation.detail.removeprefix(what)}"
            yield reported, {"region": operation.region, "topic": operation.topic}


@WORKLOAD.mutant("redelivery-not-counted", "INV-97", patch=dispatching(SubscriptionType.SHARED))
class _RedeliveryNotCounted(Shared):
    """A redelivered message has redelivery count 0."""

    def _schedule_redelivery(self, consumer: ConsumerState, entry_ids: Iterable[int]) -> None:
        super()._schedule_redelivery(consumer, entry_ids)
        self._redelivery_counts.clear()


@WORKLOAD.mutant("redelivery-forgotten", "INV-96", patch=dispatching(SubscriptionType.SHARED))
class _RedeliveryForgotten(Shared):
    """A negatively acknowledged message is never redelivered."""

    def returned(self, consumer: ConsumerState, entry_ids: object) -> None:
        for entry_id in list(consumer.pending.by_entry):
            consumer.pending.remove(entry_id)
