"""Reports of an owner to another topic, as PIP-440 proposes: in transactions that re-publish on the topic that it owns.

An owner that lost its topic cannot re-publish there, so nothing of the transaction counts.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from emulator.client import Client, ClientError, Transaction
from emulator.run.history import Outcome, transaction_text
from emulator.scenarios.actor_history import Notes
from emulator.scenarios.replay import heartbeat, key_of, report
from emulator.scenarios.writer import Tally, Writer

TIMEOUT_SECONDS: Final = 10.0


class Reporting:
    """The reports of one host about one topic, to another topic."""

    def __init__(self, client: Client, place: dict[str, str], notes: Notes, tally: Tally) -> None:
        """`place`: region, topic of the reports, and name of the producer."""
        self._client = client
        self._place = place
        self._notes = notes
        self._tally = tally
        self._writer: Writer | None = None

    async def publish(self, number: int, epoch: int | None, own: Writer) -> bytes:
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

    async def _open(self) -> Writer:
        self._notes.write("connect", "asked", **self._place)
        try:
            producer = await self._client.producer(self._place["topic"], name=self._place["producer"])
        except ClientError as refusal:
            self._notes.write("connect", "unknown", error=str(refusal), **self._place)
            raise
        return Writer(producer, self._place, self._notes, self._tally)

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
