"""Record the publishes of the producers of one connection, and their outcomes."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from emulator.recording.tap.recorder import NON_PERSISTENT_PREFIX, Recorder, collect_chunk
from emulator.run.history import new_session
from emulator.run.history_events import attributes_digest, payload_digest, transaction_text
from emulator.wire.codec_hot.publishing import SendCommand, decode_receipt, decode_send
from emulator.wire.commands import CreateProducer, Error, ProducerSuccess, SendError
from emulator.wire.observing import ObservedMessage, error_text, read_messages

DUPLICATE_LEDGER = -1
"""Ledger id in a receipt for a duplicate."""


@dataclass(slots=True)
class _Sent:
    """An entry without a receipt: its sequence id on the wire, and (sequence id, batch index) of its messages."""

    sequence_id: int
    messages: list[tuple[int, int]]


@dataclass(slots=True)
class _Producer:
    event_fields: dict[str, str]
    pending: deque[_Sent] = field(default_factory=deque)
    chunks: dict[str, bytes] = field(default_factory=dict)


class TappedProducers:
    """The producers of one connection, by their producer ids."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._requests: dict[int, CreateProducer] = {}
        """Open PRODUCER requests, by request id."""
        self._producers: dict[int, _Producer] = {}

    def on_producer(self, request: CreateProducer) -> None:
        if request.topic.startswith(NON_PERSISTENT_PREFIX):
            return
        self._requests[request.request_id] = request

    def on_producer_success(self, ready: ProducerSuccess) -> None:
        request = self._requests.get(ready.request_id)
        if request is None or not ready.is_ready:
            return
        del self._requests[ready.request_id]
        event_fields = {"topic": request.topic, "producer": ready.producer_name, "session": new_session()}
        self._producers[request.producer_id] = _Producer(event_fields)
        self._recorder.write("connect", "ok", **event_fields, last_sequence_id=ready.last_sequence_id)

    def on_error(self, error: Error) -> None:
        request = self._requests.pop(error.request_id, None)
        if request is not None:
            name = request.producer_name or "(named by the region)"
            self._recorder.write(
                "connect", "failed", topic=request.topic, producer=name, error=error_text(error)
            )

    def on_close(self, producer_id: int) -> None:
        self._producers.pop(producer_id, None)

    def on_connection_lost(self) -> None:
        """Record unknown outcomes of publishes without a receipt, because the connection ended. A client that
        reconnects publishes these messages again."""
        for producer in self._producers.values():
            for sent in producer.pending:
                self._record_unknown(producer, sent, "the connection ended")
        self._producers.clear()

    def on_send(self, command: bytes, entry: bytes) -> None:
        """Record a publish before it is forwarded; of chunks, with the last one."""
        send = decode_send(command)
        producer = self._producers.get(send.producer_id)
        if producer is None:
            return
        earlier = collect_chunk(producer.chunks, entry)
        if earlier is None:
            producer.pending.append(_Sent(send.sequence_id, []))
            return
        info, messages = read_messages(entry, earlier)
        producer.pending.append(
            _Sent(send.sequence_id, [(one.sequence_id, one.batch_index) for one in messages])
        )
        transaction = transaction_text(info.txn or _transaction_in_command(send))
        for message in messages:
            self._recorder.write(
                "publish",
                "asked",
                **producer.event_fields,
                **_message_fields(message),
                replicate_to=list(info.replicate_to) or None,
                transaction=transaction,
            )

    def on_send_receipt(self, command: bytes) -> None:
        receipt = decode_receipt(command)
        producer, sent = self._pop_pending(receipt.producer_id, receipt.sequence_id)
        if producer is None or sent is None:
            return
        for number, index in sent.messages:
            message_id = f"{receipt.ledger_id}:{receipt.entry_id}:{index}"
            known = None if receipt.ledger_id <= DUPLICATE_LEDGER else message_id
            self._recorder.write(
                "publish", "ok", **producer.event_fields, sequence_id=number, message_id=known
            )

    def on_send_error(self, error: SendError) -> None:
        """Record an unknown outcome for a SEND_ERROR, because the client may send the message again."""
        producer, sent = self._pop_pending(error.producer_id, error.sequence_id)
        if producer is None or sent is None:
            return
        self._record_unknown(producer, sent, error.message)

    def _record_unknown(self, producer: _Producer, sent: _Sent, why: str) -> None:
        for number, _ in sent.messages:
            self._recorder.write("publish", "unknown", **producer.event_fields, sequence_id=number, error=why)

    def _pop_pending(self, producer_id: int, sequence_id: int) -> tuple[_Producer | None, _Sent | None]:
        """Remove and return the oldest pending entry with this sequence id: receipts arrive in order, and the chunks of
        a message share one sequence id."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None, None
        for sent in producer.pending:
            if sent.sequence_id == sequence_id:
                producer.pending.remove(sent)
                return producer, sent
        return producer, None


def _transaction_in_command(send: SendCommand) -> tuple[int, int] | None:
    """Return the transaction in the SEND command; some clients do not write it to the message metadata."""
    if send.txn_most is None or send.txn_least is None:
        return None
    return send.txn_most, send.txn_least


def _message_fields(message: ObservedMessage) -> dict[str, Any]:
    key = message.key
    return {
        "sequence_id": message.sequence_id,
        "payload_digest": payload_digest(message.payload),
        "attributes_digest": attributes_digest(
            key, message.properties, message.event_time_ms, message.ordering_key
        ),
        "key": _as_text(key),
    }


def _as_text(key: str | bytes | None) -> str | None:
    """Return a key as text; bytes that are not UTF-8 are represented by their digest."""
    if not key:
        return None
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return hashlib.blake2b(key, digest_size=8).hexdigest()
