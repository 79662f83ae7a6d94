"""Programs that set and delete values by key, administrators that compact the topic repeatedly, and readers of the
compacted view: for each key it has the value that the topic has, regardless of crashes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.client import EARLIEST, Client, ClientError, MessageId, Reader
from emulator.core.topic.compaction import LatestOfKeys
from emulator.model.values import KeyedEntry
from emulator.net.http import NoHttpResponse
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import ConsumerPlan, Plan
from tests.swarm.workload import Act, ActContext, Workload

NAME = "compact"
WORKLOAD = Workload(NAME)
TOPIC = "table"
KEYS = 6
COMPACTION = f"/admin/v2/persistent/public/default/{TOPIC}/compaction"
READING_SECONDS = 30.0
SAYS_OTHERWISE = "says otherwise: "

_KEYS = tuple(f"key-{number}" for number in range(KEYS))


@dataclass(frozen=True, slots=True)
class Write(Act):
    """Changes of keys by one producer, sent one after the other."""

    changes: tuple[tuple[int, bool], ...]
    """(number of the key, whether the change deletes it), in order."""

    workload: ClassVar[str] = NAME
    is_awaited: ClassVar[bool] = True

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        try:
            producer = await client.producer(full(TOPIC), name=context.name)
            for number, (key, deletes) in enumerate(self.changes):
                payload = b"" if deletes else f"{context.name}/{number}/1".encode()
                context.note_publish(TOPIC, number, payload, "asked")
                try:
                    place = await producer.send(payload, key=_KEYS[key], sequence_id=number)
                except ClientError as failure:
                    if failure.definite:
                        context.note_publish(TOPIC, number, payload, "failed")
                    raise
                context.note_publish(TOPIC, number, payload, "ok", message_id=str(place))
            context.note_result("accepted", topic=full(TOPIC))
        finally:
            await client.close()


@dataclass(frozen=True, slots=True)
class Compact(Act):
    """An administrator's request to compact the topic."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        host = context.world.client_host(context.name, self.region)
        try:
            answer = await context.world.ask_admin(self.region, "PUT", COMPACTION, None, host=host)
        except NoHttpResponse:
            return
        context.note_result("accepted" if answer.status == 204 else "refused", topic=full(TOPIC))


@dataclass(frozen=True, slots=True)
class ReadTable(Act):
    """Read the compacted view completely, and compare it with the messages of the topic."""

    workload: ClassVar[str] = NAME

    async def perform(self, context: ActContext) -> None:
        client = context.client()
        try:
            async with asyncio.timeout(READING_SECONDS):
                plain = await client.reader(full(TOPIC), EARLIEST)
                before = await plain.last_message_id()
                table = await _compacted(client)
                after = await plain.last_message_id()
                allowed = await _allowed(plain, before, after)
        except TimeoutError:
            return  # a region was unreachable for too long: the comparison has no result
        finally:
            await client.close()
        wrong = next((key for key in _KEYS if table.get(key, b"") not in allowed.get(key, {b""})), None)
        if wrong is None:
            context.note_result("accepted", topic=full(TOPIC), detail=str(len(table)))
        else:
            reported, meant = table.get(wrong, b""), sorted(allowed.get(wrong, {b""}))
            detail = f"{SAYS_OTHERWISE}for {wrong} {reported!r}, and the topic has {meant}"
            context.note_result("refused", topic=full(TOPIC), detail=detail)


async def _compacted(client: Client) -> dict[str, bytes]:
    """Read the compacted view: return the last value of each key."""
    table: dict[str, bytes] = {}
    reader = await client.reader(full(TOPIC), EARLIEST, read_compacted=True)
    while await reader.has_message():
        message = await reader.receive()
        assert message.key is not None
        table[message.key] = message.payload
    return table


async def _allowed(
    reader: Reader, before: MessageId | None, after: MessageId | None
) -> dict[str, set[bytes]]:
    """Return the values that the view may have for each key: the value at `before`, and every later one up to `after`.
    An empty value stands for an absent or deleted key."""
    allowed: dict[str, set[bytes]] = {}
    while after is not None and await reader.has_message():
        message = await reader.receive()
        assert message.key is not None
        if _place(message.id) > _place(after):
            break
        if before is None or _place(message.id) > _place(before):
            allowed.setdefault(message.key, {b""}).add(message.payload)
        else:
            allowed[message.key] = {message.payload}
    return allowed


def _place(message_id: MessageId) -> tuple[int, int]:
    return message_id.ledger, message_id.entry


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    """Draw writers, compactions and several reads in every region, and a consumer of all messages."""
    seconds = plan.break_seconds

    def at(until: float = 1.0) -> float:
        return round(random.uniform(0.2, seconds * until), 3)

    acts: list[Act] = [
        Write(at(0.8), random.choice(plan.regions), _changes(random)) for _ in range(random.randint(3, 8))
    ]
    acts += [Compact(at(), random.choice(plan.regions)) for _ in range(random.randint(2, 8))]
    acts += [ReadTable(at(1.5), region) for region in plan.regions for _ in range(random.randint(1, 4))]
    consumer = ConsumerPlan("everything", "all", TOPIC, random.choice(plan.regions))
    return replace(plan, acts=(*plan.acts, *acts), consumers=(*plan.consumers, consumer))


def _changes(random: Random) -> tuple[tuple[int, bool], ...]:
    return tuple((random.randrange(KEYS), random.random() < 0.25) for _ in range(random.randint(2, 15)))


# INV-33


@WORKLOAD.checker("compacted-view-matches", "INV-33")
def tables_agree(evidence: Evidence) -> Found:
    """A compacted view has the topic's latest value of each key."""
    for operation in evidence.operations:
        if operation.workload == NAME and operation.detail.startswith(SAYS_OTHERWISE):
            yield (
                f"the compacted view of {operation.region} has {operation.detail.removeprefix(SAYS_OTHERWISE)}",
                {"region": operation.region, "topic": operation.topic},
            )


@WORKLOAD.mutant("compaction-keeps-oldest", "INV-33", patch=part("latest_of_keys"))
class KeepsTheFirst(LatestOfKeys):
    """Compaction keeps the oldest message of each key, not the newest."""

    def note(self, entry_id: int, entry: KeyedEntry) -> None:
        known = dict(self._newest)
        super().note(entry_id, entry)
        self._newest.update(known)


@WORKLOAD.mutant("compaction-ignores-tombstones", "INV-33", patch=part("latest_of_keys"))
class _CompactionIgnoresTombstones(LatestOfKeys):
    """Compaction ignores tombstones."""

    def note(self, entry_id: int, entry: KeyedEntry) -> None:
        if not any(message.deletes for message in entry.messages or ()):
            super().note(entry_id, entry)
