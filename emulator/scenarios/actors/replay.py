"""What the owner of a topic writes on it, and the state that anyone gets who reads it from the beginning (PIP-68's
example): a write-ahead log.

    introduction   who owns the topic now, its priority and epoch (PIP-440: it SHOULD be
                   published), and how much it read
    heartbeat      the next number, under one of a few keys; the state is the last number of each key
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from emulator.client import Client, ClientError, Transaction
from emulator.run.history_events import Outcome, transaction_text
from emulator.scenarios.actors.writer import HistoryRecorder, HostPublisher, PublishCounts

KEYS = 16


class State:
    """Of one topic, as one region's owners wrote it."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.messages = 0
        """Number of messages read or written."""

    @property
    def next_number(self) -> int:
        return 1 + max(self.values.values(), default=-1)

    @property
    def digest(self) -> str:
        """Equal for equal states."""
        return hashlib.blake2b(json.dumps(sorted(self.values.items())).encode(), digest_size=8).hexdigest()

    def apply(self, payload: bytes) -> None:
        """A message of the log, in its order. What owners did not write changes nothing."""
        self.messages += 1
        match read(payload):
            case {"kind": "heartbeat", "number": int(number)}:
                self.values[key_of(number)] = number


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


def read(payload: bytes) -> Mapping[str, Any]:
    """Return what an owner wrote; empty for any other payload."""
    try:
        written = json.loads(payload)
    except ValueError:
        return {}
    return written if isinstance(written, dict) else {}


def introduction(priority: int, epoch: int | None, state: State) -> dict[str, Any]:
    return {
        "kind": "introduction",
        "priority": priority,
        "epoch": epoch,
        "read": state.messages,
        "state": state.digest,
    }


def heartbeat(number: int) -> dict[str, Any]:
    return {"kind": "heartbeat", "number": number}


def report(number: int, epoch: int | None) -> dict[str, Any]:
    """Return what an owner publishes elsewhere, together with the heartbeat of that number."""
    return {"kind": "report", "number": number, "epoch": epoch}


TIMEOUT_SECONDS: Final = 10.0


class Reporting:
    """The reports of one host about one topic, to another topic."""

    def __init__(
        self, client: Client, place: dict[str, str], notes: HistoryRecorder, tally: PublishCounts
    ) -> None:
        """`place`: region, topic of the reports, and name of the producer."""
        self._client = client
        self._place = place
        self._notes = notes
        self._tally = tally
        self._writer: HostPublisher | None = None

    async def publish(self, number: int, epoch: int | None, own: HostPublisher) -> bytes:
        """Publish report and heartbeat in one transaction; return the heartbeat's payload. ClientError: neither counts,
        or it is unknown."""
        if self._writer is None:
            self._writer = await self._open()
        transaction = await self._begin()
        try:
            await self._writer.publish(report(number, epoch), key_of(number), transaction)
            payload = await own.publish(heartbeat(number), key_of(number), transaction)
            await self._end(transaction, commit=True)
        except ClientError:
            with contextlib.suppress(ClientError):
                await self._end(transaction, commit=False)
            raise
        return payload

    async def _open(self) -> HostPublisher:
        self._notes.write("connect", "asked", **self._place)
        try:
            producer = await self._client.producer(self._place["topic"], name=self._place["producer"])
        except ClientError as refusal:
            self._notes.write("connect", "unknown", error=str(refusal), **self._place)
            raise
        return HostPublisher(producer, self._place, self._notes, self._tally)

    async def _begin(self) -> Transaction:
        region = {"region": self._place["region"]}
        self._notes.write("begin_transaction", "asked", **region)
        try:
            transaction = await self._client.new_transaction(TIMEOUT_SECONDS)
        except ClientError as refusal:
            self._notes.write("begin_transaction", "unknown", error=str(refusal), **region)
            raise
        self._notes.write("begin_transaction", "ok", transaction=transaction_text(transaction.id), **region)
        return transaction

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        said: dict[str, Any] = {
            "region": self._place["region"],
            "transaction": transaction_text(transaction.id),
            "action": "commit" if commit else "abort",
        }
        self._notes.write("end_transaction", "asked", **said)
        try:
            await (transaction.commit() if commit else transaction.abort())
        except ClientError as refusal:
            outcome: Outcome = "failed" if commit and refusal.definite else "unknown"
            self._notes.write("end_transaction", outcome, error=str(refusal), **said)
            raise
        self._notes.write("end_transaction", "ok", **said)
