"""One producer on one connection: its sends and its receipts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, Protocol, cast

from emulator.broker.topic.metrics import Traffic
from emulator.broker.topic.pending_publish import (
    CheckedEntry,
    Pending,
    PendingGroup,
    PendingPublish,
    PendingReplicas,
)
from emulator.broker.topic.publish_groups import PublishGroups, ReplicaGroups, publish_groups
from emulator.broker.topic.view import PublishingTopic
from emulator.core.admission import (
    EntrySizeLimits,
    Peer,
    Publisher,
    Refusal,
    RefusalScope,
    scope_of,
)
from emulator.core.policies.consuming import DELAYED_DELIVERY
from emulator.errors import ProtocolError, ServerError
from emulator.model.markers import Marker
from emulator.model.transaction_names import TxnId
from emulator.model.values import BEFORE_EVERYTHING, AccessMode, Position
from emulator.wire.codec_hot.publishing import (
    NO_PREVIOUS_ENTRY,
    SendCommand,
    encode_peer_receipt,
    encode_receipt,
    encode_receipts,
)
from emulator.wire.entry import with_transaction
from emulator.wire.entry_layout import CHECKSUM_MAGIC, ensure_checksum
from emulator.wire.markers import decode_marker
from emulator.wire.message_metadata import EntryInfo, check_properties

if TYPE_CHECKING:
    from emulator.broker.connection.flow_control import FlowControl
    from emulator.broker.connection.liveness import Liveness
    from emulator.broker.topic.pending_publish import Attachment
    from emulator.broker.topic.transactions import TopicTransactions
    from emulator.wire.commands import CreateProducer
    from emulator.wire.frames import Frame

logger = logging.getLogger(__name__)

PERMANENT_REFUSAL = ServerError.NotAllowedError
"""Error code for another region's entry that would be rejected on every retry, too."""
PRODUCER_BYTES = 1_024
"""Memory of a producer besides the fields of its request. A waiting producer was measured to use 0.95 KB."""


class ProducersOfConnection(Protocol):
    """The producers of one connection, as the topic and its access control see them."""

    def admitted(self, producer: ConnectedProducer, epoch: int | None) -> None:
        """Respond to the client that the producer may publish."""
        ...

    def waits(self, producer: ConnectedProducer) -> None:
        """Respond to the client that the producer waits for exclusive access."""
        ...

    def refused(self, producer: ConnectedProducer, problem: ProtocolError) -> None: ...

    def forget(self, producer: ConnectedProducer, why: str = ...) -> None: ...

    def close(self, producer: ConnectedProducer) -> None: ...


class ProducerConnection(Protocol):
    """A client's connection, as its producers and their topic see it."""

    address: str
    client_version: str

    @property
    def producers(self) -> ProducersOfConnection: ...
    @property
    def flow_control(self) -> FlowControl: ...
    @property
    def liveness(self) -> Liveness: ...

    def send_receipts(self, data: bytes) -> None: ...

    async def is_alive(self) -> bool: ...

    def abort(self) -> None: ...


class AccessToTopic(Protocol):
    """The topic's access control, as a producer's connection sees it."""

    def left(self, producer: ConnectedProducer, why: str) -> None:
        """Remove a producer that was closed or lost its connection."""
        ...


class PublishingOfTopic(Protocol):
    """The producers and entry size limits of the topic, as each producer sees them."""

    @property
    def limits(self) -> EntrySizeLimits:
        """Maximum sizes of entries from other regions."""
        ...

    @property
    def client_limits(self) -> EntrySizeLimits:
        """Maximum sizes of entries from clients."""
        ...

    @property
    def is_pending(self) -> bool:
        """Whether a publish was admitted whose outcome is not known yet."""
        ...

    def attach(self, producer: ConnectedProducer) -> None:
        """Register a connected producer; its name must be free."""
        ...

    def detach(self, producer: ConnectedProducer, why: str) -> None:
        """Remove a producer, unless it is no longer the one registered under its name."""
        ...


class ProducerHost(PublishingTopic, Protocol):
    """The topic, as its producers see it."""

    @property
    def publishing(self) -> PublishingOfTopic: ...
    @property
    def access(self) -> AccessToTopic: ...
    @property
    def transactions(self) -> TopicTransactions: ...

    def publish(
        self,
        attachment: Attachment,
        send: SendCommand,
        data: bytes,
        info: CheckedEntry,
        marker: Marker | None,
    ) -> None:
        """Admit one entry into the current batch."""
        ...

    def publish_group(self, group: PendingGroup | PendingReplicas) -> None:
        """Admit plain messages, none of them a duplicate, into the current batch."""
        ...


class ConnectedProducer:
    """A producer on one connection; the `Attachment` of its topic."""

    def __init__(
        self,
        connection: ProducerConnection,
        producer_id: int,
        topic: ProducerHost,
        name: str,
        publisher: Publisher,
        request: CreateProducer,
    ) -> None:
        self.connection = connection
        self.producer_id = producer_id
        self.topic = topic
        self.producer_name = name
        self.publisher = publisher
        components = topic.region.environment.components.topics
        self._scan, self._check = components.scan_entry, components.check_entry
        self.is_limited = components.is_limited(publisher)
        """Whether the limits, quotas and rates of the topic apply to this producer."""
        self.source_region = publisher.region if isinstance(publisher, Peer) else None
        """The region whose replicator this is; None for a client's producer."""
        self.request = request
        """The fields of the client's PRODUCER request."""
        self.held_bytes = _held_bytes(name, request)
        """Estimated memory that the producer uses, in bytes."""
        self._groups: PublishGroups | None = None if self.source_region is None else publish_groups(self)
        """What finds groups of messages. That of a client is created when its first group may have arrived."""
        self.schema_version = b""
        """Version of the producer's schema, as clients receive it; empty: it has no schema."""
        self.pending_bytes = 0
        """Size in bytes of the entries admitted and not yet acknowledged."""
        self.published = Traffic(asyncio.get_running_loop().time())
        self.since_ms = topic.region.environment.wall_clock_ms()
        self.attached = True
        """Whether the connection still has the producer; otherwise no receipts are sent."""

    # Interface for the topic's access control (core.access.Claimant).

    @property
    def access_mode(self) -> AccessMode:
        return self.request.access_mode

    @property
    def topic_epoch(self) -> int | None:
        return self.request.topic_epoch

    @property
    def queue_priority(self) -> int:
        return self.request.queue_priority

    @property
    def was_opened_before(self) -> bool:
        return self.request.epoch > 0

    def last_sequence_id(self) -> int:
        """Return the highest durable sequence id of the producer's name, after which its client continues. -1: none is
        known, the topic does not deduplicate, or the producer is a replicator."""
        return -1 if self.source_region is not None else self.topic.state.last_sequence_id(self.producer_name)

    @property
    def accepts_runs(self) -> bool:
        """Whether a SEND may contain a run of messages (`wire.codec_hot.message_runs`)."""
        return self.source_region is not None and self.request.is_compact_stream

    def replaces(self, other: ConnectedProducer) -> bool:
        """Return whether this producer replaces the other: it has the same id on the same connection, or the same
        name."""
        is_same_id = other.connection is self.connection and other.producer_id == self.producer_id
        return is_same_id or other.producer_name == self.producer_name

    def slow_down(self, seconds: float) -> None:
        self.connection.flow_control.slow_down(seconds)

    def detach(self) -> None:
        """Send no more receipts, and release the pending bytes of the connection. Admitted entries are still stored."""
        if self.attached:
            self.attached = False
            self.connection.flow_control.answered(self.pending_bytes)

    def publish(self, send: SendCommand, data: bytes) -> int:
        """Admit one entry to the topic; `Topic.flush` issues it. Return its stored size in bytes, which count as
        pending until it is acknowledged. ProtocolError when it is rejected; then the producer may be closed (A2)."""
        try:
            if not data.startswith(CHECKSUM_MAGIC):
                data = ensure_checksum(data)
            info = self._scan(data, verify=True, is_usual=send.txn_least is None)
            if self.source_region is None:
                # Another region may have stored such an entry before it refused them: its replication must not stop.
                check_properties(data, info.payload_offset)
            # A client's marker is always rejected.
            is_peers_marker = info.marker_type is not None and self.source_region is not None
            marker = decode_marker(data, info) if is_peers_marker else None
        except ProtocolError as problem:
            code = problem.code if self.source_region is None else PERMANENT_REFUSAL
            raise self._reject(Refusal(code, str(problem), scope_of(self.publisher))) from None
        if send.txn_least is not None or info.txn is not None:
            data, info = self._in_transaction(send, data, info)
        size_bytes = len(data)
        publishing = self.topic.publishing
        limits = publishing.client_limits if self.source_region is None else publishing.limits
        refusal = self._check(self.publisher, info, marker, size_bytes, limits)
        if refusal is None and info.deliver_at_time_ms is not None:
            refusal = self._check_delay(info.deliver_at_time_ms)
        if refusal is None and self.source_region is not None:
            refusal = self._check_previous(send.previous_entry, info.source_position or BEFORE_EVERYTHING)
        if refusal is not None:
            raise self._reject(refusal, info.source_position)
        if info.txn is not None:
            self.topic.transactions.admitted(info.txn)
        self.topic.publish(self, send, data, cast(CheckedEntry, info), marker)
        self.pending_bytes += size_bytes
        return size_bytes

    def publish_group(self, sequence_id: int, frames: Sequence[Frame], index: int) -> tuple[int, int]:
        """Admit the group of plain messages that begins with the frame of this index, with that sequence id. Return
        their number and their size in bytes, which count as pending until they are acknowledged; (0, 0): there is
        none."""
        if self._groups is None and self.source_region is None:
            self._groups = publish_groups(self)
        group = None if self._groups is None else self._groups.take(sequence_id, frames, index)
        if group is None:
            return 0, 0
        self.topic.publish_group(group)
        self.pending_bytes += group.size_bytes
        return group.messages, group.size_bytes

    def publish_run(self, send: SendCommand, data: bytes) -> Iterator[int]:
        """Admit the messages of a run of another region. Yield the size in bytes of each part, which counts as pending
        until it is acknowledged. ProtocolError when a message is rejected; then the producer is closed, and the
        messages before it are admitted."""
        assert isinstance(self._groups, ReplicaGroups), "the run of a compact stream"
        try:
            admissible = self._groups.take_run(send, data)
        except ProtocolError as problem:
            refusal = Refusal(PERMANENT_REFUSAL, str(problem), scope_of(self.publisher))
            raise self._reject(refusal) from None
        if isinstance(admissible, PendingReplicas):
            self.topic.publish_group(admissible)
            self.pending_bytes += admissible.size_bytes
            yield admissible.size_bytes
        else:
            for one, entry in admissible:
                yield self.publish(one, entry)

    def _check_delay(self, deliver_at_time_ms: int) -> Refusal | None:
        """Return a refusal for a client's entry with a delivery time that is too late. Entries of other regions are
        exempt: they may have been accepted there under other policies."""
        delays = self.topic.policies[DELAYED_DELIVERY]
        delay_ms_max = delays.delay_ms_max if delays is not None else 0
        delay_ms = deliver_at_time_ms - self.topic.region.environment.wall_clock_ms()
        if not delay_ms_max or delay_ms <= delay_ms_max or self.source_region is not None:
            return None
        sentence = f"a delay of {delay_ms} ms exceeds the maximum of {delay_ms_max}"
        return Refusal(ServerError.NotAllowedError, sentence, RefusalScope.ENTRY)

    def _check_previous(self, entry_id: int | None, position: Position) -> Refusal | None:
        """Return a refusal for an entry of a peer if the one before it in the stream did not arrive. The watermark
        would pass the missing entry, which would then be dropped as a duplicate when it is sent again."""
        ledger_id, own_entry_id = position
        if entry_id is None and self.request.is_compact_stream:
            entry_id = own_entry_id - 1
        if entry_id is None or entry_id == NO_PREVIOUS_ENTRY:
            return None
        assert self.source_region is not None
        if not self.topic.state.lacks(self.source_region, (ledger_id, entry_id)):
            return None
        sentence = f"the entry before it in the stream, {ledger_id}:{entry_id}, did not arrive"
        return Refusal(ServerError.ServiceNotReady, sentence, RefusalScope.ATTACHMENT)

    def _in_transaction(self, send: SendCommand, data: bytes, info: EntryInfo) -> tuple[bytes, EntryInfo]:
        """Return an entry of a transaction as it is stored. The log must name the transaction: for clients that name it
        only in the command (Go), the broker adds it to the metadata. ProtocolError when it is rejected."""
        if self.source_region is not None:
            sentence = (
                "an entry of a transaction came from another region: a transaction belongs to one region"
            )
            raise self._reject(
                Refusal(PERMANENT_REFUSAL, sentence, scope_of(self.publisher)), info.source_position
            )
        named = None if send.txn_least is None else TxnId(send.txn_most or 0, send.txn_least)
        if named is not None and info.txn is not None and named != info.txn:
            sentence = f"the command names transaction {named.text}, the entry {info.txn.text}"
            raise ProtocolError(ServerError.NotAllowedError, sentence)
        txn = named or info.txn or TxnId(0, 0)
        self.topic.transactions.check(txn)
        if info.txn is None:
            data = with_transaction(data, txn)
            info = self._scan(data)
        return data, info

    def _reject(self, refusal: Refusal, source_position: Position | None = None) -> ProtocolError:
        """Return the error, and remove the producer if later sends must not be admitted either (A2)."""
        where = f" ({source_position} there)" if source_position is not None else ""
        sentence = refusal.sentence + where
        if refusal.scope is RefusalScope.ATTACHMENT:
            logger.warning(
                "topic %s: producer %s is closed and must reconnect: %s",
                self.topic.full_name,
                self.producer_name,
                sentence,
            )
            self.connection.producers.forget(self, "its message was refused")
        return ProtocolError(refusal.code, sentence)

    def stored(self, publishes: Sequence[Pending]) -> None:
        """Count the publishes, and send their receipts in the order of the sends unless the producer was removed."""
        if len(publishes) == 1:  # nearly always where many clients have few messages in flight each
            acknowledged_bytes, messages = publishes[0].size_bytes, publishes[0].messages
        else:
            acknowledged_bytes = sum([publish.size_bytes for publish in publishes])
            messages = sum([publish.messages for publish in publishes])
        self.published.messages += messages
        self.published.bytes += acknowledged_bytes
        if self.attached:
            self.pending_bytes -= acknowledged_bytes
            self.connection.flow_control.answered(acknowledged_bytes)
            self.connection.send_receipts(self._receipts(publishes))

    def _receipts(self, publishes: Sequence[Pending]) -> bytes:
        """Return the frames of the receipts."""
        is_client, first = self.source_region is None, publishes[0]
        if is_client and len(publishes) == 1 and isinstance(first, PendingPublish):
            send = first.send
            assert send is not None, "the region itself has no producer"
            return encode_receipt(
                self.producer_id,
                send.sequence_id,
                send.highest_sequence_id,
                self.topic.ledger_id,
                first.entry_id,
            )
        if not is_client and self.request.is_compact_stream:
            return encode_peer_receipt(self.producer_id, *_range_of(publishes))
        return encode_receipts(self.producer_id, self.topic.ledger_id, self._receipt_ids(publishes))

    def _receipt_ids(self, publishes: Sequence[Pending]) -> list[tuple[int, int, int]]:
        """Return (entry id, sequence id, highest sequence id) of each receipt; see `encode_receipts`."""
        receipts: list[tuple[int, int, int]] = []
        is_client = self.source_region is None
        for publish in publishes:
            assert not isinstance(publish, PendingReplicas), "only compact streams have groups"
            if isinstance(publish, PendingGroup):
                entry_ids = count(publish.first_entry_id)
                receipts += zip(entry_ids, publish.sequence_ids, repeat(0), strict=False)
            elif is_client:
                send = publish.send
                assert send is not None, "the region itself has no producer"
                receipts.append((publish.entry_id, send.sequence_id, send.highest_sequence_id))
            else:  # between regions a receipt names the position in the source's log
                receipts.append((publish.entry_id, *(publish.info.source_position or BEFORE_EVERYTHING)))
        return receipts


def _range_of(publishes: Sequence[Pending]) -> tuple[Position, int]:
    """Return the last source position of another region's publishes, and their number of entries."""
    newest = publishes[-1]
    if isinstance(newest, PendingReplicas):
        last = newest.last_position
    else:
        assert isinstance(newest, PendingPublish)
        last = newest.info.source_position or BEFORE_EVERYTHING
    return last, sum([1 if isinstance(one, PendingPublish) else one.messages for one in publishes])


def _held_bytes(name: str, request: CreateProducer) -> int:
    size = PRODUCER_BYTES + len(name) + len(request.topic)
    for key, value in request.metadata.items():
        size += len(key) + len(value)
    return size if request.schema is None else size + len(request.schema.data)
