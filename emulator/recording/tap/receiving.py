"""Record the deliveries to the consumers and readers of one connection, and their acknowledgements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from emulator.model.values import Position
from emulator.recording.tap.recorder import NON_PERSISTENT_PREFIX, Recorder, collect_chunk
from emulator.run.history_events import Outcome, payload_digest, transaction_text
from emulator.wire.codec_hot.consuming import AckCommand, decode_ack, decode_message
from emulator.wire.commands import Redeliver, Seek, Subscribe, Unsubscribe
from emulator.wire.observing import NO_BATCH, read_messages

_WORD_BITS = 64


@dataclass(slots=True)
class _Consumer:
    event_fields: dict[str, str]
    """Fields of all events of the consumer: topic and, except for readers, subscription."""
    is_reader: bool
    batch_sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of messages in each batch that was delivered and not acknowledged yet."""
    chunks: dict[str, bytes] = field(default_factory=dict)


class TappedConsumers:
    """The consumers and readers of one connection, by their consumer ids."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._consumers: dict[int, _Consumer] = {}
        self._requests: dict[int, tuple[str, int, dict[str, object]]] = {}
        """Open requests by request id: operation, consumer id and fields of their events."""

    def on_subscribe(self, request: Subscribe) -> None:
        if request.topic.startswith(NON_PERSISTENT_PREFIX):
            return
        event_fields = {"topic": request.topic}
        if request.durable:
            event_fields["subscription"] = request.subscription
        self._consumers[request.consumer_id] = _Consumer(event_fields, not request.durable)
        if request.durable:
            initial = "earliest" if request.from_earliest else "latest"
            fields = {"replicated": bool(request.replicated), "initial": initial}
            if request.read_compacted:
                fields["compacted"] = True
            self._record_request("subscribe", request.request_id, request.consumer_id, fields)

    def on_unsubscribe(self, request: Unsubscribe) -> None:
        self._record_request("unsubscribe", request.request_id, request.consumer_id, {})

    def on_seek(self, request: Seek) -> None:
        to = request.message_id
        detail = "to a position" if to is not None else f"to publish time {request.publish_time_ms or 0} ms"
        self._record_request("seek", request.request_id, request.consumer_id, {"detail": detail})

    def on_response(self, request_id: int, error: str | None) -> None:
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        op, consumer_id, fields = request
        consumer = self._consumers.get(consumer_id)
        if consumer is not None:
            outcome: Outcome = "ok" if error is None else "failed"
            self._recorder.write(op, outcome, **consumer.event_fields, **fields, error=error)

    def on_close(self, consumer_id: int) -> None:
        self._consumers.pop(consumer_id, None)

    def on_message(self, command: bytes, entry: bytes) -> None:
        """Record a delivery before it is forwarded; of chunks, with the last one."""
        meta = decode_message(command)
        consumer = self._consumers.get(meta.consumer_id)
        if consumer is None:
            return
        earlier = collect_chunk(consumer.chunks, entry)
        if earlier is None:
            return
        info, messages = read_messages(entry, earlier)
        if info.is_batch:
            consumer.batch_sizes[meta.ledger, meta.entry] = info.num_messages
        op = "read" if consumer.is_reader else "receive"
        for message in messages:
            if meta.ack_set is not None and not _is_unacknowledged(meta.ack_set, message.batch_index):
                continue  # acknowledged before: the client filters it
            self._recorder.write(
                op,
                "ok",
                **consumer.event_fields,
                message_id=f"{meta.ledger}:{meta.entry}:{message.batch_index}",
                payload_digest=payload_digest(message.payload) if message.is_open else None,
            )

    def on_ack(self, command: bytes) -> None:
        """Record the acknowledgement before it is forwarded to the region."""
        ack = decode_ack(command)
        consumer = self._consumers.get(ack.consumer_id)
        if consumer is None or consumer.is_reader or ack.validation_error is not None:
            return
        how = "cumulative" if ack.cumulative else "individual"
        transaction = _transaction_of(ack)
        for ledger, entry, ack_set in ack.ids:
            if ack.cumulative and ack_set is not None:
                if entry > 0:
                    self._record_acknowledgements(consumer, ledger, entry - 1, [NO_BATCH], how, transaction)
                indexes = self._indexes(consumer, ledger, entry, ack_set)
                self._record_acknowledgements(consumer, ledger, entry, indexes, "individual", transaction)
            else:
                indexes = self._indexes(consumer, ledger, entry, ack_set)
                self._record_acknowledgements(consumer, ledger, entry, indexes, how, transaction)

    def on_redeliver(self, request: Redeliver) -> None:
        consumer = self._consumers.get(request.consumer_id)
        if consumer is None or consumer.is_reader:
            return
        if not request.ids:
            self._recorder.write("redeliver", "asked", **consumer.event_fields)
        for position in request.ids:
            self._recorder.write(
                "redeliver", "asked", **consumer.event_fields, message_id=_entry_text(position)
            )

    def _record_request(self, op: str, request_id: int, consumer_id: int, fields: dict[str, object]) -> None:
        consumer = self._consumers.get(consumer_id)
        if consumer is not None and not consumer.is_reader:
            self._requests[request_id] = (op, consumer_id, fields)
            self._recorder.write(op, "asked", **consumer.event_fields, **fields)

    def _record_acknowledgements(
        self,
        consumer: _Consumer,
        ledger: int,
        entry: int,
        indexes: Iterable[int],
        how: str,
        transaction: str | None,
    ) -> None:
        for index in indexes:
            self._recorder.write(
                "acknowledge",
                "asked",
                **consumer.event_fields,
                message_id=f"{ledger}:{entry}:{index}",
                how=how,
                transaction=transaction,
            )

    def _indexes(
        self, consumer: _Consumer, ledger: int, entry: int, ack_set: tuple[int, ...] | None
    ) -> list[int]:
        """Return the batch indexes that are acknowledged in an entry; NO_BATCH for an entry without a batch."""
        size = consumer.batch_sizes.get((ledger, entry), 0)
        if ack_set is not None:
            return [index for index in range(size) if not _is_unacknowledged(ack_set, index)]
        consumer.batch_sizes.pop((ledger, entry), None)
        return list(range(size)) if size else [NO_BATCH]


def _transaction_of(ack: AckCommand) -> str | None:
    if ack.txn_most is None or ack.txn_least is None:
        return None
    return transaction_text((ack.txn_most, ack.txn_least))


def _is_unacknowledged(ack_set: tuple[int, ...], index: int) -> bool:
    """Return whether the message of a batch is in the acknowledgement set: it is not acknowledged."""
    word = index // _WORD_BITS
    return word < len(ack_set) and bool(ack_set[word] >> (index % _WORD_BITS) & 1)


def _entry_text(position: Position) -> str:
    return f"{position.ledger}:{position.entry}:{NO_BATCH}"
