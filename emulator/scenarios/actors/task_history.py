"""The history of a task: its requests and the responses (docs/HISTORY.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

from emulator.client import ClientError, Message, MessageId, Transaction
from emulator.run.history_events import Outcome, attributes_digest, payload_digest, transaction_text
from emulator.scenarios.actor_models.specs import TaskSpec
from emulator.scenarios.actors.writer import HistoryRecorder

T = TypeVar("T")

Publish = tuple[bytes, str, dict[str, Any]]
"""Payload and key of a message, and what all lines about it say."""


class TaskNotes:
    """Of one life, and what it counts on the way."""

    def __init__(self, part: TaskSpec, notes: HistoryRecorder) -> None:
        self._part = part
        self._notes = notes
        self._session = ""
        self.outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "unknown": 0}
        """Of publishes."""
        self.asked = 0
        self.seen: set[tuple[str, str, int]] = set()
        """Messages that it received, by origin."""
        self.repeated = 0

    @property
    def reading(self) -> dict[str, Any]:
        part = self._part
        return {"region": part.region, "topic": part.topic, "subscription": part.subscription}

    @property
    def writing(self) -> dict[str, Any]:
        return {"region": self._part.region, "topic": self._part.to, "producer": self._part.name}

    async def asking(self, op: str, said: dict[str, Any], work: Awaitable[T]) -> T:
        """Do it; its caller writes down a yes. ClientError, which is written down."""
        self._notes.write(op, "asked", **said)
        try:
            return await work
        except ClientError as refusal:
            self._notes.write(op, "unknown", error=str(refusal), **said)
            raise

    def connected(self, last_sequence_id: int) -> None:
        self._session = self._notes.new_session()
        told = {"session": self._session, "last_sequence_id": last_sequence_id}
        self._notes.write("connect", "ok", **told, **self.writing)

    @property
    def subscribing(self) -> dict[str, Any]:
        return {**self.reading, "replicated": self._part.replicated, "initial": "earliest"}

    def subscribed(self) -> None:
        self._notes.write("subscribe", "ok", **self.subscribing)

    # Transactions.

    @property
    def beginning(self) -> dict[str, Any]:
        key = self._part.transaction_key
        return {"region": self._part.region} | ({} if key is None else {"transaction_key": key})

    def begun(self, transaction: Transaction, epoch: int) -> None:
        told: dict[str, Any] = {} if self._part.transaction_key is None else {"key_epoch": epoch}
        self._notes.write("begin_transaction", "ok", **_of(transaction), **self.beginning, **told)

    def ends(self, transaction: Transaction, outcome: Outcome, *, commit: bool, **more: Any) -> None:
        said = {"region": self._part.region, "action": "commit" if commit else "abort"}
        self._notes.write("end_transaction", outcome, **said, **_of(transaction), **more)

    # Messages.

    def received(self, message: Message, transaction: Transaction) -> None:
        origin = self._origin(message)
        self._notes.write(
            "receive",
            "ok",
            origin_region=origin[0],
            producer=origin[1],
            sequence_id=origin[2],
            message_id=place(message.id),
            payload_digest=payload_digest(message.payload),
            detail=message.payload.rstrip(b" ").decode(),
            **_of(transaction),
            **self.reading,
        )
        self.repeated += origin in self.seen
        self.seen.add(origin)

    def acknowledges(
        self, messages: Sequence[Message], transaction: Transaction, outcome: Outcome, **more: Any
    ) -> None:
        said = {**self.reading, "how": self._part.acknowledge, **_of(transaction)}
        for message in messages:
            self._notes.write("acknowledge", outcome, message_id=place(message.id), **said, **more)

    def publishes(self, message: Message, transaction: Transaction, number: int) -> Publish:
        """What the task made of a message, with that one's key, before it is sent."""
        source = "/".join(map(str, self._origin(message)))
        identity = {"origin_region": self._part.region, "producer": self._part.name, "sequence_id": number}
        payload = json.dumps({**identity, "made_of": source}, separators=(",", ":")).encode()
        key = message.key or source
        session = {"session": self._session, "sequence_id": number, "detail": payload.decode()}
        said = {**self.writing, **session, **_of(transaction)}
        digests = {"payload_digest": payload_digest(payload), "attributes_digest": attributes_digest(key)}
        self._notes.write("publish", "asked", key=key, **digests, **said)
        self.asked += 1
        return payload, key, said

    def sent(self, said: dict[str, Any], receipt: asyncio.Future[MessageId]) -> None:
        receipt.add_done_callback(partial(self._answered, said))

    def not_sent(self, said: dict[str, Any], refusal: ClientError) -> None:
        self._told(said, "failed", error=str(refusal))

    def _answered(self, said: dict[str, Any], done: asyncio.Future[MessageId]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            # A repetition has no place of its own.
            told = {"message_id": place(done.result())} if done.result().ledger >= 0 else {}
            self._told(said, "ok", **told)
        else:
            certain = isinstance(error, ClientError) and error.definite
            self._told(said, "failed" if certain else "unknown", error=str(error))

    def _told(self, said: dict[str, Any], outcome: Outcome, **fields: str) -> None:
        self._notes.write("publish", outcome, **fields, **said)
        self.outcomes[outcome] += 1

    def _origin(self, message: Message) -> tuple[str, str, int]:
        return message.replicated_from or self._part.region, message.producer_name, message.sequence_id


def _of(transaction: Transaction) -> dict[str, Any]:
    return {"transaction": transaction_text(transaction.id)}


def place(message_id: MessageId) -> str:
    """`ledger:entry:batch_index`, as a history has it."""
    return f"{message_id.ledger}:{message_id.entry}:{message_id.batch_index}"
