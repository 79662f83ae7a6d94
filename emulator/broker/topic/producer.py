"""One producer on one connection: its sends on their way in, its receipts on their way out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from emulator.broker.topic.publishing import CheckedEntry
from emulator.core.admission import Limits, Peer, Publisher, Refusal, Scope, scope_of
from emulator.errors import ProtocolError, ServerError
from emulator.markers import Marker
from emulator.model import BEFORE_EVERYTHING, AccessMode, Position
from emulator.wire.codec import SendCommand, encode_receipt, encode_receipts
from emulator.wire.markers import decode_marker
from emulator.wire.metadata import ensure_checksum

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.topic.publishing import Attachment, PendingPublish
    from emulator.wire.commands import CreateProducer

logger = logging.getLogger(__name__)

LASTING = ServerError.NotAllowedError
"""What another region is told whose entry will be refused again, however often it sends it."""
PRODUCER_BYTES = 1_024
"""What a producer holds of the region's memory beside what its client said: measured, 0.95 KB for one that waits."""
_NO_TRANSACTIONS = Refusal(ServerError.NotAllowedError, "Transactions are not enabled.", Scope.ENTRY)


class ProducerConnection(Protocol):
    """A client's connection, as its producers see it and the access to their topic does."""

    address: str
    client_version: str

    def write(self, data: bytes) -> None: ...

    def published(self, size_bytes: int) -> None: ...

    def producer_admitted(self, producer: Producer, epoch: int | None) -> None:
        """It may publish from now on."""
        ...

    def producer_waits(self, producer: Producer) -> None:
        """It stands in line for exclusive access."""
        ...

    def producer_refused(self, producer: Producer, problem: ProtocolError) -> None: ...

    def forget_producer(self, producer: Producer, why: str = ...) -> None: ...

    def close_producer(self, producer: Producer) -> None: ...

    def hurry(self, interval_ms: int) -> None:
        """One of its topics wants its client to be asked so often whether it lives; 0: not more often than others."""
        ...

    async def is_alive(self) -> bool: ...

    def abort(self) -> None: ...


class AccessToTopic(Protocol):
    """Who may publish, as a producer's connection sees it."""

    def left(self, producer: Producer, why: str) -> None:
        """It does not want the topic any more."""
        ...


class ProducerHost(Protocol):
    """The topic of producers."""

    @property
    def region(self) -> RegionServices: ...
    @property
    def full_name(self) -> str: ...
    @property
    def ledger_id(self) -> int: ...
    @property
    def keep_alive_interval_ms(self) -> int:
        """How often those who publish here are asked whether they live; 0: as often as everybody."""
        ...

    @property
    def limits(self) -> Limits:
        """What an entry may weigh."""
        ...

    @property
    def access(self) -> AccessToTopic: ...

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest durable number of a name, -1 for none."""
        ...

    def attach(self, producer: Producer) -> None:
        """A producer is connected; its name was free."""
        ...

    def detach(self, producer: Producer, why: str) -> None:
        """It left, unless another one took its name before."""
        ...

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

    def flush(self) -> None:
        """Issue everything admitted as one group."""
        ...

    async def issued_so_far(self) -> None:
        """Wait until everything issued before has its outcome."""
        ...


class Producer:
    """An attachment of its topic."""

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
        parts = topic.region.environment.parts
        self._scan, self._check = parts.scan_entry, parts.check_entry
        self.source_region = publisher.region if isinstance(publisher, Peer) else None
        """The region whose replicator this is; None for a client's producer."""
        self.request = request
        """What the client said of itself when it asked for this producer."""
        self.pending_bytes = 0
        """Admitted and not yet answered."""
        self.attached = True
        """False once its connection forgot it: then nobody waits for its receipts."""

    # What the access to its topic asks of it (core.access.Claimant).

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

    @property
    def held_bytes(self) -> int:
        """What it costs the region to know it. Always the same of one producer."""
        said = sum(len(key) + len(value) for key, value in self.request.metadata.items())
        return PRODUCER_BYTES + len(self.producer_name) + len(self.request.topic) + said

    def last_sequence_id(self) -> int:
        """Where its client goes on: the highest durable number of its name, -1 for none."""
        return -1 if self.source_region is not None else self.topic.last_sequence_id(self.producer_name)

    def detach(self) -> None:
        """Its connection forgets it; what it sent stays."""
        if self.attached:
            self.attached = False
            self.connection.published(self.pending_bytes)

    def publish(self, send: SendCommand, data: bytes) -> int:
        """Admit one entry to the topic; `Topic.flush` issues it. Returns its size in bytes, which count as pending
        until they are answered. ProtocolError when it is refused; then the attachment may be over (A2)."""
        try:
            data = ensure_checksum(data)
            info = self._scan(data, verify=True)
            # A client's marker is refused whatever it says.
            is_peers_marker = info.marker_type is not None and self.source_region is not None
            marker = decode_marker(data, info) if is_peers_marker else None
        except ProtocolError as problem:
            code = problem.code if self.source_region is None else LASTING
            raise self._refused(Refusal(code, str(problem), scope_of(self.publisher))) from None
        size_bytes = len(data)
        if send.txn_least is not None:
            refusal: Refusal | None = _NO_TRANSACTIONS
        else:
            refusal = self._check(self.publisher, info, marker, size_bytes, self.topic.limits)
        if refusal is not None:
            raise self._refused(refusal, info.source_position)
        self.topic.publish(self, send, data, cast(CheckedEntry, info), marker)
        self.pending_bytes += size_bytes
        return size_bytes

    def _refused(self, refusal: Refusal, source_position: Position | None = None) -> ProtocolError:
        """Say so, and end the attachment if what follows must not be admitted either (A2)."""
        where = f" ({source_position} there)" if source_position is not None else ""
        sentence = refusal.sentence + where
        if refusal.scope is Scope.ATTACHMENT:
            logger.warning("%s: %s must attach again: %s", self.topic.full_name, self.producer_name, sentence)
            self.connection.forget_producer(self, "what it sent was refused")
        return ProtocolError(refusal.code, sentence)

    def stored(self, publishes: Sequence[PendingPublish]) -> None:
        """Send receipts, in the order of the sends."""
        if not self.attached:
            return
        answered = sum([len(publish.data) for publish in publishes])
        self.pending_bytes -= answered
        self.connection.published(answered)
        if self.source_region is None:
            sends = [(publish.send.sequence_id, publish.send.highest_sequence_id) for publish in publishes]  # type: ignore[union-attr]
        else:
            # Between regions a receipt names the position in the source's log.
            sends = [publish.info.source_position or BEFORE_EVERYTHING for publish in publishes]
        self.connection.write(self._receipts([publish.entry_id for publish in publishes], sends))

    def _receipts(self, entry_ids: Sequence[int], sends: Sequence[tuple[int, int]]) -> bytes:
        ledger_id = self.topic.ledger_id
        first_entry_id = entry_ids[0]
        if first_entry_id >= 0 and entry_ids[-1] == first_entry_id + len(entry_ids) - 1:
            return encode_receipts(self.producer_id, ledger_id, first_entry_id, sends)
        parts = []
        for entry_id, (sequence_id, highest) in zip(entry_ids, sends, strict=True):
            # A duplicate is told the position -1:-1.
            ledger = ledger_id if entry_id >= 0 else -1
            parts.append(encode_receipt(self.producer_id, sequence_id, highest, ledger, entry_id))
        return b"".join(parts)
