"""The history files of programs with a transaction key, as in any run directory (docs/HISTORY.md). They serve to verify
a stored run directory; the swarm itself checks the programs with `checkers/transaction_tasks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emulator.client import ClientError, MessageId, Producer
from emulator.run.history_events import payload_digest, transaction_text
from tests.swarm.checkers.transaction_tasks import Work
from tests.swarm.record import Record


class TaskLines:
    """Writes the history of one program that has at most one open producer."""

    def __init__(self, record: Record, actor: str, region: str) -> None:
        self._record = record
        self._actor = actor
        self._region = region
        self._session = ""

    def opened(self, producer: Producer) -> None:
        self._session = self._record.new_session(producer.name)
        self._report("connect", "ok", **self._of(producer), last_sequence_id=producer.last_sequence_id)

    def begun(self, work: Work) -> None:
        self._report(
            "begin_transaction",
            "ok",
            transaction=transaction_text(work.txn),
            transaction_key=work.task[1],
            key_epoch=work.epoch,
        )

    async def publish(self, producer: Producer, work: Work, text: str, transaction: Any) -> MessageId:
        """Publish a result in its transaction, and record the request and its outcome. Raises ClientError."""
        said = {
            **self._of(producer),
            "origin_region": self._region,
            "sequence_id": producer.last_sequence_id + 1,
            "transaction": transaction_text(work.txn),
        }
        payload = text.encode()
        with self._recorded("publish", said, payload_digest=payload_digest(payload)) as reported:
            place = await producer.send(payload, transaction=transaction)
            reported["message_id"] = f"{place.ledger}:{place.entry}:{place.batch_index}"
        return place

    @contextmanager
    def acknowledging(self, work: Work, **said: Any) -> Iterator[None]:
        """Record an acknowledgement around its request. `said`: topic, subscription, message_id, how."""
        with self._recorded("acknowledge", {**said, "transaction": transaction_text(work.txn)}):
            yield

    @contextmanager
    def ending(self, work: Work, *, commit: bool) -> Iterator[None]:
        said = {"transaction": transaction_text(work.txn), "action": "commit" if commit else "abort"}
        with self._recorded("end_transaction", said):
            yield

    @contextmanager
    def _recorded(self, op: str, said: dict[str, Any], **request: Any) -> Iterator[dict[str, Any]]:
        """Record a request and its outcome. If the program is killed in between, the outcome stays unknown."""
        self._report(op, "asked", **said, **request)
        reported: dict[str, Any] = {}
        try:
            yield reported
        except ClientError as refusal:
            self._report(op, "failed" if refusal.definite else "unknown", **said, error=str(refusal))
            raise
        self._report(op, "ok", **said, **reported)

    def _of(self, producer: Producer) -> dict[str, Any]:
        return {"topic": producer.topic, "producer": producer.name, "session": self._session}

    def _report(self, op: str, outcome: Any, **fields: Any) -> None:
        self._record.add_event(self._actor, op, outcome, region=self._region, **fields)
