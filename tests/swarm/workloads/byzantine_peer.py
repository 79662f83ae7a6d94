"""A byzantine peer: a region whose replicator is authenticated and sends false statements.

A region's statements about its own messages cannot be verified, and are accepted. All other claims can be checked:
messages in the name of other regions, a second message at a position that it used before, a subscription's position
beyond the end of our log, or in another log. No other client may be harmed; and the region's honest replicator, which
the liar displaces, reconnects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from emulator.broker.replication.peer_auth import METHOD, proof_of, replicator_name
from emulator.client import ClientError
from emulator.core.admission import EntrySizeLimits, Peer, Publisher, Refusal, Scanned, check
from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.subscription_updates import Applied, apply_update, own_entry_id
from emulator.errors import ServerError
from emulator.model.markers import Marker, Snapshot, SnapshotResponse, SubscriptionUpdate
from emulator.model.values import Position
from emulator.simulation.durable_media import DurableLog
from emulator.simulation.evidence import full
from emulator.simulation.invariant_check import Found
from emulator.simulation.stored_messages import scan_once
from emulator.simulation.world import SERVICE_PORT
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.commands import (
    PROTOCOL_VERSION,
    AuthChallenge,
    AuthResponse,
    Connect,
    SendError,
    create_producer,
)
from emulator.wire.entry import plain_entry, with_replication
from emulator.wire.frames import PONG_FRAME, FrameBuffer
from emulator.wire.markers import encode_marker
from tests.swarm.evidence import Evidence
from tests.swarm.mutant import part
from tests.swarm.plan import Plan
from tests.swarm.workload import Act, ActContext, Workload

FAR = 10**9
"""An entry id beyond any entry of a run."""
ANSWER_SECONDS = 5.0
FRAME_BYTES_MAX = 6_000_000
PRODUCER_ID = 1


WORKLOAD = Workload("lie", runs_in="swarm")


@dataclass(frozen=True, slots=True)
class ByzantinePeerAct(Act):
    """A peer that authenticates at `region` as `other`, and sends a forged entry."""

    other: str
    third: str
    """The region in whose name the peer sends messages, for kinds that forge an origin."""
    topic: str
    kind: str
    """A key of OF_OTHERS or OF_PLACES, or USED_PLACE."""
    subscription: str

    workload: ClassVar[str] = "lie"

    @property
    def places(self) -> tuple[str, ...]:
        return (self.region, self.other)

    async def perform(self, context: ActContext) -> None:
        entry = self._entry(context)
        if entry is None:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await self._attached(context)
                line.write(send_frame(PRODUCER_ID, 0, data=entry))
                type_, command = await line.next()
        except TimeoutError:
            return
        line.hang_up()
        if type_ == CommandType.SEND_RECEIPT:
            context.note_result("accepted", detail=self.kind, topic=full(self.topic))
        elif type_ == CommandType.SEND_ERROR:
            # Any other error comes from the store: the broker had accepted the entry.
            is_refusal = SendError.read(command).error is ServerError.NotAllowedError
            context.note_result(
                "refused" if is_refusal else "nothing", detail=self.kind, topic=full(self.topic)
            )

    async def _attached(self, context: ActContext) -> _Line:
        """Return a connection authenticated as the other region, with the producer of its replicator."""
        line, config = _Line(), context.world.regions[self.region].config
        host = context.world.client_host(context.name, self.region)
        try:
            await host.network.connect(lambda: line, self.region, SERVICE_PORT)
        except OSError as failure:
            raise ClientError(f"no connection: {failure}", definite=True) from None
        connect = Connect("liar", PROTOCOL_VERSION, METHOD, self.other.encode(), wants_source_positions=True)
        line.write(connect.encode())
        challenge = AuthChallenge.read(await line.expect(CommandType.AUTH_CHALLENGE))
        method, nonce = challenge.method, challenge.data
        proof = proof_of(config.run_secret, nonce, self.other, self.region)
        line.write(AuthResponse(method, proof).encode())
        await line.expect(CommandType.CONNECTED)
        name = replicator_name(self.other, self.region)
        line.write(create_producer(1, full(self.topic), PRODUCER_ID, name).encode())
        await line.expect(CommandType.PRODUCER_SUCCESS)
        return line

    def _entry(self, context: ActContext) -> bytes | None:
        """Return the forged entry; None: the logs do not allow one of this kind now."""
        logs = {name: context.world.regions[name].medium.logs.get(full(self.topic)) for name in self.places}
        here, there = logs[self.region], logs[self.other]
        if here is None or there is None:
            return None
        if self.kind in OF_OTHERS:
            return OF_OTHERS[self.kind](self)
        if self.kind == USED_PLACE:
            used = last_of(self.other, here)
            return None if used is None else with_replication(_forged(self), self.other, used)
        if (full(self.topic), self.subscription) not in context.record.delivered.replicated:
            return None
        place = unused_place(self.other, here, there)
        if place is None:
            return None
        update = SubscriptionUpdate(self.subscription, ((self.region, OF_PLACES[self.kind](here)),))
        return with_replication(encode_marker(update, 1)[0], self.other, place)


# Positions of forged entries.


def last_of(region: str, log: DurableLog) -> Position | None:
    """Return the source position of the newest entry in this log that came from that region; None: there is none."""
    places = (scan_once(entry).source_position for entry in log.entries if _origin(entry) == region)
    return max(filter(None, places), default=None)


def unused_place(region: str, here: DurableLog, there: DurableLog) -> Position | None:
    """Return a position in the region's log after all entries that it sent here and before its next own entry: the
    position of an entry from another region. A forged entry at that position is new here and displaces no honest
    one."""
    sent = last_of(region, here)
    found = None
    for entry_id, entry in zip(there.ids, there.entries, strict=True):
        place = Position(there.ledger_id, entry_id)
        if sent is not None and place <= sent:
            continue
        if _origin(entry) is None:
            break
        found = place
    return found


def _origin(entry: bytes) -> str | None:
    return scan_once(entry).replicated_from


def _forged(lie: ByzantinePeerAct) -> bytes:
    return plain_entry(f"liar-{lie.other}", FAR, 1, b"forged")


def _as_of(lie: ByzantinePeerAct, marker: Marker) -> bytes:
    return with_replication(encode_marker(marker, 1)[0], lie.other, Position(FAR, FAR))


OF_OTHERS: dict[str, Callable[[ByzantinePeerAct], bytes]] = {
    "another region's message": lambda lie: with_replication(_forged(lie), lie.third, Position(FAR, FAR)),
    "a message without origin": _forged,
    "another region's answer": lambda lie: _as_of(
        lie, SnapshotResponse("forged", lie.third, Position(FAR, FAR))
    ),
    "a snapshot": lambda lie: _as_of(
        lie, Snapshot("forged", Position(1, 0), ((lie.region, Position(1, FAR)),))
    ),
}
"""Kinds of entries that the region must reject: kind -> function that builds the entry."""
OF_PLACES: dict[str, Callable[[DurableLog], Position]] = {
    "an update beyond the end": lambda here: Position(here.ledger_id, FAR),
    "an update of another log": lambda here: Position(here.ledger_id + 1, here.next_entry_id - 1),
}
"""Kinds of cursor updates that the region stores and must not apply: kind -> position in the update."""
USED_PLACE = "a place it has used"
"""Kind of entry whose source position was used before: the region must treat it as a duplicate and not store it."""


class _Line(asyncio.Protocol):
    """A connection of the forging peer that returns received commands one by one."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(FRAME_BYTES_MAX)
        self._heard: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for type_, command, _ in self._frames.feed(data):
            if type_ == CommandType.PING:
                self.write(PONG_FRAME)
            else:
                self._heard.append((type_, bytes(command)))
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._news.set()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def hang_up(self) -> None:
        assert self._transport is not None
        self._transport.close()

    async def next(self) -> tuple[int, bytes]:
        """Return the next command as (type, bytes). Raises ClientError when the region has closed the connection."""
        while not self._heard:
            if self._ended:
                raise ClientError("the connection ended", definite=False)
            self._news.clear()
            await self._news.wait()
        return self._heard.popleft()

    async def expect(self, type_: int) -> bytes:
        """Return the next command. Raises ClientError when it has another type."""
        found, command = await self.next()
        if found != type_:
            raise ClientError(f"command {found} came for {type_}", definite=True)
        return command


@WORKLOAD.plan
def draw(random: Random, plan: Plan) -> Plan:
    if len(plan.regions) < 2 or random.random() >= 0.35:
        return plan
    acts = []
    for _ in range(random.randint(1, 3)):
        region, other = random.sample(plan.regions, 2)
        third = random.choice([name for name in plan.regions if name != other])
        consumer = random.choice(plan.consumers)
        kind = random.choice((*OF_OTHERS, *OF_PLACES, *OF_PLACES, USED_PLACE))
        at = round(random.uniform(0.5, plan.break_seconds * 0.9), 3)
        acts.append(ByzantinePeerAct(at, region, other, third, consumer.topic, kind, consumer.subscription))
    return replace(plan, acts=(*plan.acts, *acts))


@WORKLOAD.checker("peers-claim-only-their-own", "INV-21")
def regions_speak_for_themselves(evidence: Evidence) -> Found:
    """No entry that a peer sends in the name of another region is stored."""
    for operation in evidence.operations:
        if (
            operation.workload == ByzantinePeerAct.workload
            and operation.outcome == "accepted"
            and operation.detail in OF_OTHERS
        ):
            yield (
                f"{operation.region} took {operation.detail} from a region that is not entitled to it",
                {"region": operation.region, "topic": operation.topic},
            )


@WORKLOAD.mutant("peer-claims-accepted", "INV-21", "INV-3", "INV-2", patch=part("check_entry"))
def _peer_claims_accepted(
    publisher: Publisher, entry: Scanned, marker: Marker | None, entry_bytes: int, limits: EntrySizeLimits
) -> Refusal | None:
    """Every statement of a region is accepted, also about other regions."""
    if isinstance(publisher, Peer):
        return None
    return check(publisher, entry, marker, entry_bytes, limits)


@WORKLOAD.mutant("update-beyond-end-accepted", "INV-5", patch=part("apply_update"))
def _update_beyond_end_accepted(
    cursor: Cursor, own_position_entry: int, last_entry_id: int, unseen: Iterable[int]
) -> Applied:
    """An update with a position beyond the end of the log is applied."""
    return apply_update(cursor, own_position_entry, max(own_position_entry, last_entry_id), unseen)


@WORKLOAD.mutant("update-of-another-ledger-accepted", "INV-5", patch=part("own_entry_id"))
def _update_of_another_ledger_accepted(update: SubscriptionUpdate, region: str, ledger_id: int) -> int | None:
    """An update for another ledger is applied to this one."""
    here = tuple((name, Position(ledger_id, place.entry)) for name, place in update.positions)
    return own_entry_id(replace(update, positions=here), region, ledger_id)
