"""What hosts publish, one message after the other, with each request and response in the history (docs/HISTORY.md)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Protocol

from emulator.client import ClientError, Producer, Transaction
from emulator.run.history_events import Outcome, attributes_digest, payload_digest, transaction_text


@dataclass(slots=True)
class PublishCounts:
    """Publishes of one host to one topic that it owns, and their outcomes."""

    asked: int = 0
    ok: int = 0
    failed: int = 0
    unknown: int = 0


class HostPublisher:
    """Publishes with one producer."""

    def __init__(
        self, producer: Producer, place: dict[str, str], notes: HistoryRecorder, tally: PublishCounts
    ) -> None:
        """`place`: region, topic and producer, as the history names them."""
        self._producer = producer
        self._place = place
        self._notes = notes
        self._tally = tally
        self._session = notes.new_session()
        epoch = {} if producer.topic_epoch is None else {"topic_epoch": producer.topic_epoch}
        last = {"session": self._session, "last_sequence_id": producer.last_sequence_id}
        notes.write("connect", "ok", **last, **epoch, **place)

    async def publish(
        self, what: dict[str, Any], key: str | None = None, transaction: Transaction | None = None
    ) -> bytes:
        """Publish a message and return its payload once the region has stored it. ClientError otherwise."""
        number = self._producer.last_sequence_id + 1
        place = self._place
        identity = {"origin_region": place["region"], "producer": place["producer"], "sequence_id": number}
        payload = json.dumps({**identity, **what}, separators=(",", ":")).encode()
        message = {**place, "session": self._session, "sequence_id": number, "detail": payload.decode()}
        message |= {} if transaction is None else {"transaction": transaction_text(transaction.id)}
        digests = {"payload_digest": payload_digest(payload), "attributes_digest": attributes_digest(key)}
        self._notes.write("publish", "asked", key=key, **digests, **message)
        self._tally.asked += 1
        try:
            at = await self._producer.send(payload, key=key, sequence_id=number, transaction=transaction)
        except ClientError as error:
            self._failed(message, error)
            raise
        except asyncio.CancelledError:
            self._tally.unknown += 1
            self._notes.write("publish", "unknown", error="it was stopped", **message)
            raise
        self._tally.ok += 1
        self._notes.write("publish", "ok", message_id=f"{at.ledger}:{at.entry}:{at.batch_index}", **message)
        return payload

    def _failed(self, message: dict[str, Any], error: ClientError) -> None:
        outcome: Outcome = "failed" if error.definite else "unknown"
        self._tally.failed += error.definite
        self._tally.unknown += not error.definite
        self._notes.write("publish", outcome, error=str(error), **message)


class HistoryRecorder(Protocol):
    """A history."""

    def write(self, op: str, outcome: Outcome, **fields: Any) -> None:
        """`detail` of a publish is the text of its payload."""
        ...

    def new_session(self) -> str: ...
