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
from emulator.core.dispatch import DispatchLimits, DispatchStrategy, SubscriptionType, strategy_for
from emulator.core.dispatch.chunk_affinity import ChunkAffinity
from emulator.core.dispatch.shared import Shared
from emulator.core.dispatch.types import ChunkOf, ConsumerState
from emulator.core.topic.state import EntryFacts, TopicState
from emulator.simulation.checkers import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan, with_settings
from tests.swarm.topics import TRANSACTED
from tests.swarm.workload import Stage, Workload, has_operations
from tests.swarm.workloads.own_topic import OwnTopic

NAME = "cut-up"
WORKLOAD = Workload(NAME)
SUBSCRIPTION = "sharers"
MESSAGE_BYTES_MAX = 4_000
"""Of every region: a message of 30 KB is some ten pieces."""
UNACKED_MESSAGES_MAX = 100
"""Each piece counts, as upstream: a consumer that may hold fewer than a message has never has the whole of it."""
STEP_SECONDS = 3.0
PATIENCE_SECONDS = 90.0
"""Deadline for convergence after the repair."""
LOST, BROKEN, DOUBLED = "lost: ", "broken: ", "doubled: "


@dataclass(frozen=True, slots=True)
class CutUp(OwnTopic):
    """Publishes here, and looks for it here and there."""

    sizes: tuple[int, ...]
    """Of its messages, in bytes; two producers send them by turns."""
    compression: Compression
    pause_seconds: float
    """Between two messages."""
    breaks_end_seconds: float
    """When the faults end."""

    workload: ClassVar[str] = NAME

    def topic(self, stage: Stage) -> str:
        """Only this workload checks its topic: the common checks do not support chunks."""
        return f"{TRANSACTED}{stage.name}"

    def payload(self, stage: Stage, number: int) -> bytes:
        """Different for each number, and hard to compress."""
        filler = Random(f"{stage.name}/{number}").randbytes(self.sizes[number])
        return f"{stage.name}/{number}/".encode() + filler

    async def perform(self, stage: Stage) -> None:
        writer, reader = stage.client(), self.reader(stage)
        sent = {self.payload(stage, number): number for number in range(len(self.sizes))}
        owed: set[int] = set()
        try:
            consumers = [await self._sharer(reader, stage) for _ in range(2)]
            shared: Counter[int] = Counter()
            sharing = [asyncio.ensure_future(self._share(one, sent, shared)) for one in consumers]
            await self._publish(writer, stage, owed)
            await asyncio.sleep(max(0.0, self.breaks_end_seconds - stage.now))
            told = await self._look(stage, sent, owed, shared)
            for task in sharing:
                task.cancel()
            await asyncio.wait(sharing)
            stage.did("refused" if told else "accepted", topic=self.topic(stage), detail=told)
        finally:
            await writer.close()
            await reader.close()

    async def _publish(self, client: Client, stage: Stage, owed: set[int]) -> None:
        """The numbers of what a region took go into `owed`."""
        producers = [
            await client.producer(
                self.topic(stage),
                name=f"{stage.name}-{which}",
                chunking=True,
                compression=self.compression,
            )
            for which in "ab"
        ]
        sending = []
        for number in range(len(self.sizes)):
            sending.append(producers[number % 2].send(self.payload(stage, number)))
            if number % 2:
                await self._noted(sending, number, owed)
                sending = []
        await self._noted(sending, len(self.sizes) - 1, owed)

    async def _noted(self, sending: Iterable[object], last: int, owed: set[int]) -> None:
        outcomes = await asyncio.gather(*sending, return_exceptions=True)  # type: ignore[call-overload]
        for number, outcome in enumerate(outcomes, last + 1 - len(outcomes)):
            if not isinstance(outcome, BaseException):
                owed.add(number)
            elif not isinstance(outcome, ClientError):
                raise outcome
        await asyncio.sleep(self.pause_seconds)

    # Shared consumers: each message comes whole to one of them.

    async def _sharer(self, client: Client, stage: Stage) -> Consumer:
        return await client.subscribe(
            self.topic(stage),
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

    # In the end.

    async def _look(self, stage: Stage, sent: dict[bytes, int], owed: set[int], shared: Counter[int]) -> str:
        """What is wrong; empty: nothing."""
        for region in dict.fromkeys(self.places):
            told = await self._read(stage, region, sent, owed)
            if told:
                return told
        deadline = self.breaks_end_seconds + PATIENCE_SECONDS
        while owed - shared.keys() and stage.now < deadline:
            await asyncio.sleep(STEP_SECONDS)
        missing = owed - shared.keys()
        if shared[-1]:
            return f"{BROKEN}a consumer received what no client sent"
        if missing:
            return f"{LOST}{len(missing)} of {len(owed)} messages were received by neither consumer of {SUBSCRIPTION}"
        return ""

    async def _read(self, stage: Stage, region: str, sent: dict[bytes, int], owed: set[int]) -> str:
        """Read the log of a region from its beginning until every expected message has arrived."""
        host = stage.world.client_host(stage.name, self.region)
        client = stage.world.client_on(host, (region,), instance=f"look-{region}")
        try:
            reader = await client.reader(self.topic(stage), EARLIEST)
            came: Counter[int] = Counter()
            while True:
                patience = PATIENCE_SECONDS if owed - came.keys() else STEP_SECONDS
                try:
                    async with asyncio.timeout(patience):
                        message: Message = await reader.receive()
                except TimeoutError:
                    return self._told(stage, region, came, owed)
                came[sent.get(message.payload, -1)] += 1
        finally:
            await client.close()

    def _told(self, stage: Stage, region: str, came: Counter[int], owed: set[int]) -> str:
        if came[-1]:
            return f"{BROKEN}a reader in {region} received what no client sent"
        if missing := owed - came.keys():
            return f"{LOST}{len(missing)} of {len(owed)} messages did not arrive in {region}"
        twice = [number for number, times in came.items() if times > 1]
        if twice and stage.world.topology.namespaces[0].deduplication:
            return f"{DOUBLED}message {twice[0]} is stored twice in {region}, which deduplicates"
        return ""


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw programs in every region, most of which read in another one, too."""
    seconds = plan.break_seconds

    def program() -> CutUp:
        sizes = tuple(random.choice((10, 9_000, 20_000, 35_000)) for _ in range(random.randint(4, 16)))
        return CutUp(
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
    """Every acknowledged message is delivered in every region, complete and unchanged."""
    return _told(evidence, (LOST, BROKEN))


@WORKLOAD.checker("chunked-messages-stored-once", "INV-2", applies=has_operations)
def stored_once(evidence: Evidence) -> Found:
    """With deduplication no log holds a message twice."""
    return _told(evidence, (DOUBLED,))


def _told(evidence: Evidence, kinds: tuple[str, ...]) -> Found:
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(kinds):
            told = f"{operation.topic}: {operation.detail.partition(': ')[2]}"
            yield told, {"region": operation.region, "topic": operation.topic}


@WORKLOAD.mutant("chunks-not-deduplicated", "INV-2", patch=part("topic_state"))
class _ChunksNotDeduplicated(TopicState):
    """A chunked message that was complete already is stored again."""

    def admit(self, publisher: Publisher, facts: EntryFacts) -> bool:
        if facts.num_chunks > 1 and not isinstance(publisher, Peer):
            return self._admit_piece(facts)
        return super().admit(publisher, facts)


class _Scattered(ChunkAffinity):
    """Each chunk goes to the next consumer in turn, not to the one that has the chunks before it."""

    def receiver_of(self, piece: ChunkOf) -> ConsumerState | None:
        return None


class _ScattersPieces(Shared):
    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        super().__init__(cursor, limits)
        self.pieces = _Scattered()


@WORKLOAD.mutant("chunks-scattered", "INV-98", patch=part("strategy_for"))
def _chunks_scattered(type_: SubscriptionType, cursor: Cursor, limits: DispatchLimits) -> DispatchStrategy:
    """The chunks of a message are dispatched to different consumers."""
    is_shared = type_ is SubscriptionType.SHARED
    return _ScattersPieces(cursor, limits) if is_shared else strategy_for(type_, cursor, limits)
