"""One producer on one connection: its sends on their way in, its receipts on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.model import BEFORE_EVERYTHING
from emulator.wire.codec import encode_receipt, encode_receipts

if TYPE_CHECKING:
    from emulator.broker.topic import PendingPublish, Topic

REPLICATOR_PREFIX = "pulsar.repl."


def source_region_of(producer_name: str) -> str | None:
    """The region whose replicator bears this name; None for every other producer (facts 5.1)."""
    if not producer_name.startswith(REPLICATOR_PREFIX):
        return None
    return producer_name.removeprefix(REPLICATOR_PREFIX).partition("-->")[0]


class ProducerConnection(Protocol):
    """A client's connection, as its producers see it."""

    def write(self, data: bytes) -> None: ...

    def published(self, size_bytes: int) -> None: ...

    def forget_producer(self, producer: Producer) -> None: ...

    def close_producer(self, producer: Producer) -> None: ...

    async def is_alive(self, within_seconds: float) -> bool: ...

    def abort(self) -> None: ...


class Producer:
    """A Publisher of its topic."""

    def __init__(
        self, connection: ProducerConnection, producer_id: int, topic: Topic, name: str, epoch: int
    ) -> None:
        self.connection = connection
        self.producer_id = producer_id
        self.topic = topic
        self.producer_name = name
        self.source_region = source_region_of(name)
        self.epoch = epoch
        """How often the client has created this producer again; higher replaces lower."""
        self.pending_bytes = 0
        """Admitted and not yet answered; 0 once the producer is forgotten."""

    def stored(self, outcomes: Sequence[tuple[PendingPublish, int]]) -> None:
        """Send receipts, in the order of the sends."""
        if self.pending_bytes == 0:
            return
        answered = 0
        for publish, _ in outcomes:
            answered += len(publish.data)
        self.pending_bytes -= answered
        self.connection.published(answered)
        if self.source_region is None:
            sends = [(publish.send.sequence_id, publish.send.highest_sequence_id) for publish, _ in outcomes]  # type: ignore[union-attr]
        else:
            # Between regions a receipt names the position in the source's log (facts 5.6).
            sends = [publish.info.source_position or BEFORE_EVERYTHING for publish, _ in outcomes]
        self.connection.write(self._receipts(outcomes, sends))

    def _receipts(
        self, outcomes: Sequence[tuple[PendingPublish, int]], sends: Sequence[tuple[int, int]]
    ) -> bytes:
        ledger_id = self.topic.log.ledger_id
        first_entry_id = outcomes[0][1]
        if first_entry_id >= 0 and outcomes[-1][1] == first_entry_id + len(outcomes) - 1:
            return encode_receipts(self.producer_id, ledger_id, first_entry_id, sends)
        parts = []
        for (_, entry_id), (sequence_id, highest) in zip(outcomes, sends, strict=True):
            # A duplicate is told the position -1:-1 (facts 4.5).
            ledger = ledger_id if entry_id >= 0 else -1
            parts.append(encode_receipt(self.producer_id, sequence_id, highest, ledger, entry_id))
        return b"".join(parts)
