"""The history of an actor with geoemu's own client: its requests and the responses (docs/HISTORY.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol, TypeVar

from emulator.client import ClientError, MessageId, Producer, Transaction
from emulator.run.history_events import Outcome, attributes_digest, payload_digest, transaction_text
from emulator.scenarios.actors.specs import Counts

T = TypeVar("T")


class HistoryRecorder(Protocol):
    """Records the events of one actor, in a file or in the history of a simulated world."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """Record an event. The `detail` of a publish is the text of its payload."""
        ...

    def new_session(self) -> str: ...


class Fenced(Exception):
    """A newer actor has taken the transaction key over; the request certainly had no effect."""

    definite = True


class ActorHistory:
    """Records the requests of an actor since its latest start, and counts the outcomes of its publishes."""

    def __init__(self, recorder: HistoryRecorder) -> None:
        self._recorder = recorder
        self.requested = 0
        self.outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "unknown": 0}
        self.write = recorder.write

    def counts(self, **fields: Any) -> Counts:
        """Return Counts with the counts of publishes and the given `fields`."""
        failed, unknown = self.outcomes["failed"], self.outcomes["unknown"]
        return Counts(asked=self.requested, ok=self.outcomes["ok"], failed=failed, unknown=unknown, **fields)

    async def attempt(self, op: str, fields: dict[str, Any], work: Awaitable[T]) -> T:
        """Await `work`, and record the request and its failure; the caller records success."""
        self.write(op, "asked", **fields)
        try:
            return await work
        except ClientError as refusal:
            self.write(op, "unknown", error=str(refusal), **fields)
            raise

    async def open_producer(self, fields: dict[str, str], opening: Awaitable[Producer]) -> RecordedPublisher:
        """Open a producer and record it. `fields` contains the history's fields region, topic and producer."""
        producer = await self.attempt("connect", fields, opening)
        session = self._recorder.new_session()
        opened = {"session": session, "last_sequence_id": producer.last_sequence_id}
        epoch = {} if producer.topic_epoch is None else {"topic_epoch": producer.topic_epoch}
        self.write("connect", "ok", **opened, **epoch, **fields)
        return RecordedPublisher(self, producer, {**fields, "session": session})

    async def end_transaction(
        self, region: str, transaction: Transaction, ending: Awaitable[None], *, commit: bool
    ) -> None:
        """End a transaction by awaiting `ending`, and record it. Raises ClientError or Fenced if that fails."""
        fields = {
            "region": region,
            "action": "commit" if commit else "abort",
            **transaction_fields(transaction),
        }
        self.write("end_transaction", "asked", **fields)
        try:
            await ending
        except (ClientError, Fenced) as refusal:
            outcome: Outcome = "failed" if commit and refusal.definite else "unknown"
            self.write("end_transaction", outcome, error=str(refusal), **fields)
            raise
        self.write("end_transaction", "ok", **fields)


class RecordedPublisher:
    """Publishes with one producer, and records each request and its outcome."""

    def __init__(self, history: ActorHistory, producer: Producer, fields: dict[str, str]) -> None:
        self.producer = producer
        self._history = history
        self._fields = fields

    @property
    def next_number(self) -> int:
        return self.producer.last_sequence_id + 1

    def payload(self, **content: Any) -> bytes:
        """Return the payload of the next message: its origin and `content`, as JSON."""
        origin = {
            "origin_region": self._fields["region"],
            "producer": self._fields["producer"],
            "sequence_id": self.next_number,
        }
        return json.dumps({**origin, **content}, separators=(",", ":")).encode()

    def publish_nowait(
        self, payload: bytes, key: str | None = None, transaction: Transaction | None = None
    ) -> asyncio.Future[MessageId]:
        """Send a message, and record the outcome when it is known. Raises ClientError if it cannot be sent."""
        message = self._record_request(payload, key, transaction)
        try:
            receipt = self.producer.send_nowait(
                payload, sequence_id=message["sequence_id"], key=key, transaction=transaction
            )
        except ClientError as refusal:
            self._record_outcome(message, "failed", error=str(refusal))
            raise
        receipt.add_done_callback(partial(self._receipt_arrived, message))
        return receipt

    async def publish(
        self, payload: bytes, key: str | None = None, transaction: Transaction | None = None
    ) -> None:
        """Publish a message and return when the region has stored it. Raises ClientError otherwise."""
        message = self._record_request(payload, key, transaction)
        number = message["sequence_id"]
        try:
            position = await self.producer.send(payload, key=key, sequence_id=number, transaction=transaction)
        except ClientError as error:
            self._record_outcome(message, "failed" if error.definite else "unknown", error=str(error))
            raise
        except asyncio.CancelledError:
            self._record_outcome(message, "unknown", error="it was stopped")
            raise
        self._record_receipt(message, position)

    def _record_request(
        self, payload: bytes, key: str | None, transaction: Transaction | None
    ) -> dict[str, Any]:
        message = {
            **self._fields,
            "sequence_id": self.next_number,
            "detail": payload.rstrip(b" ").decode(),
            **({} if transaction is None else transaction_fields(transaction)),
        }
        digests = {"payload_digest": payload_digest(payload), "attributes_digest": attributes_digest(key)}
        self._history.write("publish", "asked", key=key, **digests, **message)
        self._history.requested += 1
        return message

    def _receipt_arrived(self, message: dict[str, Any], done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            self._record_receipt(message, done.result())
        else:
            is_definite = isinstance(error, ClientError) and error.definite
            self._record_outcome(message, "failed" if is_definite else "unknown", error=str(error))

    def _record_receipt(self, message: dict[str, Any], position: MessageId) -> None:
        """Record the receipt. A receipt for a duplicate has no position."""
        known = {"message_id": message_id_text(position)} if position.ledger >= 0 else {}
        self._record_outcome(message, "ok", **known)

    def _record_outcome(self, message: dict[str, Any], outcome: Outcome, **fields: str) -> None:
        self._history.write("publish", outcome, **fields, **message)
        self._history.outcomes[outcome] += 1


def transaction_fields(transaction: Transaction) -> dict[str, Any]:
    """Return the transaction as a field of the history."""
    return {"transaction": transaction_text(transaction.id)}


def message_id_text(message_id: MessageId) -> str:
    """Return the message id as histories contain it: `ledger:entry:batch_index`."""
    return f"{message_id.ledger}:{message_id.entry}:{message_id.batch_index}"
