"""Programs that send messages too large for one entry, chunked and compressed, and readers in two regions: each
message arrives complete and unchanged, at one consumer, regardless of crashes.

Each program has a topic of its own. What it sent and what a region took it knows itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import (
    EARLIEST,
    Client,
    ClientError,
    Compression,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
)
from emulator.core.admission import Peer, Publisher
from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import strategy_for
from emulator.core.dispatch.shared import ChunkAffinity, Shared
from emulator.core.dispatch.strategy import DispatchStrategy
from emulator.core.dispatch.types import ConsumerState, DispatchLimits, SubscriptionType
from emulator.core.topic.entry_facts import EntryFacts
from emulator.core.topic.state import TopicState
from emulator.model.values import MessageChunk
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan, with_settings
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import ActContext, Workload, has_operations
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "cut-up"
WORKLOAD = Workload(NAME)
SUBSCRIPTION = "sharers"
MESSAGE_BYTES_MAX = 4_000
"""Largest entry of every region, in bytes: a message of 30 KB has about ten chunks."""
UNACKED_MESSAGES_MAX = 100
"""Limit of unacknowledged messages per consumer. Each chunk counts, as upstream: with a limit below the number of
chunks a consumer never receives the complete message."""
STEP_SECONDS = 3.0
CONVERGENCE_SECONDS = 90.0
"""Deadline for convergence after healing, in virtual seconds."""
LOST, BROKEN, DOUBLED = "lost: ", "broken: ", "doubled: "


@dataclass(frozen=True, slots=True)
class ChunkingProgram(OwnTopic):
    """A program that publishes in `region`, and reads the topic in `region` and in `reading`."""

    sizes: tuple[int, ...]
    """Size of each message in bytes; two producers send the messages alternately."""
    compression: Compression
    pause_seconds: float
    """Pause after each pair of messages."""
    faults_end_seconds: float
    """Time at which the faults end."""

    workload: ClassVar[str] = NAME

    def topic(self, context: ActContext) -> str:
        """Only this workload checks its topic: the common checks do not support chunks."""
        return f"{TRANSACTED}{context.name}"

    def payload(self, context: ActContext, number: int) -> bytes:
        """Return the payload of a message: unique to its number, and hardly compressible."""
        filler = Random(f"{context.name}/{number}").randbytes(self.sizes[number])
        return f"{context.name}/{number}/".encode() + filler

    async def perform(self, context: ActContext) -> None:
        writer, reader = context.client(), self.reader(context)
        sent = {self.payload(context, number): number for number in range(len(self.sizes))}
        expected: set[int] = set()
        try:
            consumers = [await self._sharer(reader, context) for _ in range(2)]
            shared: Counter[int] = Counter()
            sharing = [asyncio.ensure_future(self._share(one, sent, shared)) for one in consumers]
            await self._publish(writer, context, expected)
            await asyncio.sleep(max(0.0, self.faults_end_seconds - context.now))
            reported = await self._look(context, sent, expected, shared)
            for task in sharing:
                task.cancel()
            await asyncio.wait(sharing)
            context.note_result(
                "refused" if reported else "accepted", topic=self.topic(context), detail=reported
            )
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, context: ActContext, expected: set[int]) -> None:
        """Publish all messages, and add the numbers of acknowledged ones to `expected`."""
        producers = [
            await client.producer(
                self.topic(context),
                name=f"{context.name}-{which}",
                chunking=True,
                compression=self.compression,
            )
            for which in "ab"
        ]
        sending = []
        for number in range(len(self.sizes)):
            sending.append(producers[number % 2].send(self.payload(context, number)))
            if number % 2:
                await self._noted(sending, number, expected)
                sending = []
        await self._noted(sending, len(self.sizes) - 1, expected)

    async def _noted(self, sending: Iterable[object], last: int, expected: set[int]) -> None:
        outcomes = await asyncio.gather(*sending, return_exceptions=True)  # type: ignore[call-overload]
        for number, outcome in enumerate(outcomes, last + 1 - len(outcomes)):
            if not isinstance(outcome, BaseException):
                expected.add(number)
            elif not isinstance(outcome, ClientError):
                raise outcome
        await asyncio.sleep(self.pause_seconds)

    # Shared consumers: each message is delivered completely to one of them.

    async def _sharer(self, client: Client, context: ActContext) -> Consumer:
        return await client.subscribe(
            self.topic(context),
            SUBSCRIPTION,
            type_=ConsumerType.SHARED,
            initial_position=InitialPosition.EARLIEST,
            receiver_queue_size=5,
        )

    async def _share(self, consumer: Consumer, sent: dict[bytes, int], shared: Counter[int]) -> None:
        while True:
            message = await consumer.receive()
            shared[sent.get(message.payload, -1)] += 1
            await consumer.acknowledge(message)

    # After the faults.

    async def _look(
        self, context: ActContext, sent: dict[bytes, int], expected: set[int], shared: Counter[int]
    ) -> str:
        """Return the violation that the program found; empty: none."""
        for region in dict.fromkeys(self.places):
            reported = await self._read(context, region, sent, expected)
            if reported:
                return reported
        deadline = self.faults_end_seconds + CONVERGENCE_SECONDS
        while expected - shared.keys() and context.now < deadline:
            await asyncio.sleep(STEP_SECONDS)
        missing = expected - shared.keys()
        if shared[-1]:
            return f"{BROKEN}a consumer received what no client sent"
        if missing:
            lost = f"{len(missing)} of {len(expected)} messages"
            return f"{LOST}{lost} were received by neither consumer of {SUBSCRIPTION}"
        return ""

    async def _read(
        self, context: ActContext, region: str, sent: dict[bytes, int], expected: set[int]
    ) -> str:
        """Read the log of a region from its beginning until every expected message has arrived."""
        host = context.world.client_host(context.name, self.region)
        client = context.world.client_on(host, (region,), instance=f"look-{region}")
        try:
            reader = await client.reader(self.topic(context), EARLIEST)
            arrived: Counter[int] = Counter()
            while True:
                patience = CONVERGENCE_SECONDS if expected - arrived.keys() else STEP_SECONDS
                try:
                    async with asyncio.timeout(patience):
                        message: Message = await reader.receive()
                except TimeoutError:
                    return self._reported(context, region, arrived, expected)
                arrived[sent.get(message.payload, -1)] += 1
        finally:
            await client.close()

    def _reported(self, context: ActContext, region: str, arrived: Counter[int], expected: set[int]) -> str:
        if arrived[-1]:
            return f"{BROKEN}a reader in {region} received what no client sent"
        if missing := expected - arrived.keys():
            return f"{LOST}{len(missing)} of {len(expected)} messages did not arrive in {region}"
        twice = [number for number, times in arrived.items() if times > 1]
        if twice and context.world.topology.namespaces[0].deduplication:
            return f"{DOUBLED}message {twice[0]} is stored twice in {region}, which deduplicates"
        return ""


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, most of which read in another one, too."""
    seconds = plan.break_seconds

    def program() -> ChunkingProgram:
        sizes = tuple(random.choice((10, 9_000, 20_000, 35_000)) for _ in range(random.randint(4, 16)))
        return ChunkingProgram(
            round(random.uniform(0.2, seconds * 0.4), 3),
            random.choice(plan.regions),
            random.choice(plan.regions),
            sizes,
            random.choice((Compression.NONE, Compression.ZLIB)),
            round(seconds / len(sizes) * random.uniform(0.1, 0.8), 4),
            seconds + 1.0,
        )

    topology = with_settings(
        plan.topology,
        max_message_bytes=MESSAGE_BYTES_MAX,
        max_unacked_messages_per_consumer=UNACKED_MESSAGES_MAX,
    )
    acts = (*plan.acts, *(program() for _ in range(random.randint(2, 3))))
    return replace(plan, topology=topology, acts=acts)


# INV-92 and INV-98


@WORKLOAD.checker("chunked-messages-complete", "INV-98", applies=has_operations)
def comes_whole(evidence: Evidence) -> Found:
    """Every message with a receipt is delivered in every region, complete and unchanged."""
    return _reported(evidence, (LOST, BROKEN))


@WORKLOAD.checker("chunked-messages-stored-once", "INV-2", applies=has_operations)
def stored_once(evidence: Evidence) -> Found:
    """With deduplication no log holds a message twice."""
    return _reported(evidence, (DOUBLED,))


def _reported(evidence: Evidence, kinds: tuple[str, ...]) -> Found:
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(kinds):
            reported = f"{operation.topic}: {operation.detail.partition(': ')[2]}"
            yield reported, {"region": operation.region, "topic": operation.topic}


@WORKLOAD.mutant("chunks-not-deduplicated", "INV-2", patch=part("topic_state"))
class _ChunksNotDeduplicated(TopicState):
    """A chunked message that was complete already is stored again."""

    def admit(self, publisher: Publisher, facts: EntryFacts) -> bool:
        if facts.num_chunks > 1 and not isinstance(publisher, Peer):
            return self._admit_chunk(facts)
        return super().admit(publisher, facts)


class _Scattered(ChunkAffinity):
    """Sends each chunk to the next consumer in turn, not to the consumer of the message's earlier chunks."""

    def receiver_of(self, chunk: MessageChunk) -> ConsumerState | None:
        return None


class _ScattersChunks(Shared):
    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.chunks = _Scattered()


@WORKLOAD.mutant("chunks-scattered", "INV-98", patch=part("strategy_for"))
def _chunks_scattered(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """The chunks of a message are dispatched to different consumers."""
    is_shared = type_ is SubscriptionType.SHARED
    return _ScattersChunks(cursor, limits) if is_shared else strategy_for(type_, cursor, limits)
