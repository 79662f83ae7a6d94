"""A producer actor that uses Pulsar's own Python client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pulsar  # type: ignore[import-untyped]

from emulator.model.hashing import KeyHash
from emulator.recording.responses import message_id_text, outcome_of
from emulator.run.history import HistoryWriter, new_session
from emulator.run.history_events import Outcome, attributes_digest, payload_digest
from emulator.scenarios.actors.client_security import NO_SECURITY, ClientSecurity
from emulator.scenarios.actors.pulsar_client import RETRY_SECONDS, Pause, PulsarActor
from emulator.scenarios.actors.specs import Counts, ProducerSpec

IDLE_SECONDS_MAX = 0.05
"""Maximum time before the actor checks for commands again."""
_ACCESS_MODES = {
    "shared": pulsar.ProducerAccessMode.Shared,
    "exclusive": pulsar.ProducerAccessMode.Exclusive,
    "fencing": pulsar.ProducerAccessMode.ExclusiveWithFencing,
}
POLL_SECONDS = 0.005
"""Interval between checks for outcomes while the actor cannot publish."""
BURST = 64
"""Maximum number of publishes before the actor checks for commands again."""
LATE_SECONDS_MAX = 0.1
"""Maximum delay behind the publish rate that the producer makes up for."""


class ProducerActor(PulsarActor):
    """Publishes at a steady rate and records the outcome of each message."""

    def __init__(
        self,
        part: ProducerSpec,
        history: HistoryWriter,
        log: Path,
        pause: Pause,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        super().__init__(part.region, history, log, pause, security)
        self._part = part
        self._senders = [PartitionSender[pulsar.Producer](topic) for topic in part.topics]
        self._lock = threading.Lock()
        """Protects the counters, which the client's threads update in callbacks."""
        self._outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "unknown": 0}
        self._pending: dict[tuple[str, int], dict[str, Any]] = {}
        """Publishes without an outcome: (topic, sequence id) -> fields of their history events."""
        self._requested = 0
        self._publishing = False
        self._next_due = 0.0

    @property
    def counts(self) -> Counts:
        producers = [sender.producer for sender in self._senders]
        with self._lock:
            return Counts(
                region=self._region,
                connected=all(one is not None and one.is_connected() for one in producers),
                asked=self._requested,
                ok=self._outcomes["ok"],
                failed=self._outcomes["failed"],
                unknown=self._outcomes["unknown"],
                publishing=self._publishing,
            )

    def _producer_fields(self, sender: PartitionSender[pulsar.Producer]) -> dict[str, str]:
        return {"region": self._region, "topic": sender.topic, "producer": self._part.name}

    def begin(self, service_url: str) -> None:
        client = self._connect(service_url)
        for sender in self._senders:
            self._open(client, sender)
        self._next_due = time.monotonic()
        self._publishing = True

    def _open(self, client: pulsar.Client, sender: PartitionSender[pulsar.Producer]) -> None:
        fields = self._producer_fields(sender)
        while sender.producer is None:
            self._history.write("connect", "asked", **fields)
            try:
                producer = client.create_producer(
                    sender.topic,
                    producer_name=self._part.name,
                    send_timeout_millis=self._part.send_timeout_ms,
                    # Higher than the actor's own limit, so that a send never blocks.
                    max_pending_messages=self._part.max_pending + BURST,
                    block_if_queue_full=True,
                    batching_enabled=self._part.batching,
                    batching_max_publish_delay_ms=max(1, self._part.batching_delay_ms),
                    access_mode=_ACCESS_MODES[self._part.access],
                )
            except pulsar.PulsarException as refusal:
                self._history.write("connect", "unknown", **fields, error=str(refusal))
                self._pause(RETRY_SECONDS)
            else:
                session, last = new_session(), producer.last_sequence_id()
                sender.opened(producer, session, last)
                self._history.write("connect", "ok", **fields, session=session, last_sequence_id=last)

    def move(self, region: str, service_url: str) -> None:
        publishing = self._publishing
        super().move(region, service_url)
        self._publishing = publishing

    def finish(self) -> None:
        self._publishing = False
        while self.counts.pending:
            self._pause(POLL_SECONDS)

    def _release_handles(self) -> None:
        for sender in self._senders:
            sender.producer = None

    def close(self) -> None:
        self._publishing = False
        super().close()
        # A client that is shut down drops its pending publishes without calling back.
        for message in list(self._pending):
            self._note_outcome(message, "unknown", error="the client was closed")

    def act(self) -> None:
        """Publish the messages that are due."""
        for _ in range(BURST):
            if self.idle_seconds() > 0:
                return
            self._publish_one()

    def idle_seconds(self) -> float:
        if not self._publishing:
            return IDLE_SECONDS_MAX
        if self.counts.pending >= self._part.max_pending:
            return POLL_SECONDS
        return min(IDLE_SECONDS_MAX, self._next_due - time.monotonic())

    def _publish_one(self) -> None:
        # With partitions the key contains the count of publishes: sequence ids of different partitions repeat.
        key_number = self._requested if self._part.partitions else self._senders[0].next_sequence_id
        key = f"{self._part.name}-{key_number}" if self._part.keyed else None
        sender = choose(self._senders, key, self._requested)
        assert sender.producer is not None
        sequence_id = sender.number()
        identity = {**self._producer_fields(sender), "session": sender.session, "sequence_id": sequence_id}
        payload = self._payload(sequence_id)
        message = sender.topic, sequence_id
        content = {
            "payload_digest": payload_digest(payload),
            "attributes_digest": attributes_digest(key),
            "key": key,
        }
        self._history.write("publish", "asked", **content, **identity)
        with self._lock:
            self._requested += 1
            self._pending[message] = identity
        self._schedule_next()

        def receipt_arrived(result: Any, message_id: Any) -> None:
            outcome = outcome_of(result)
            if outcome == "ok":
                self._note_outcome(message, outcome, message_id=message_id_text(message_id))
            else:
                self._note_outcome(message, outcome, error=result.name)

        sender.producer.send_async(payload, receipt_arrived, sequence_id=sequence_id, partition_key=key)

    def _payload(self, sequence_id: int) -> bytes:
        """Return a payload that contains the message's origin, because consumers of this client receive no more of a
        message than its payload and position."""
        origin = {
            "origin_region": self._region,
            "producer": self._part.name,
            "sequence_id": sequence_id,
            "index": self._requested,
        }
        return json.dumps(origin, separators=(",", ":")).encode().ljust(self._part.message_bytes, b" ")

    def _schedule_next(self) -> None:
        if self._part.messages is not None and self._requested >= self._part.messages:
            self._publishing = False
        if self._part.rate_per_second is not None:
            earliest = time.monotonic() - LATE_SECONDS_MAX
            self._next_due = max(self._next_due + 1 / self._part.rate_per_second, earliest)

    def _note_outcome(self, message: tuple[str, int], outcome: Outcome, **fields: str | None) -> None:
        with self._lock:
            identity = self._pending.pop(message, None)
        if identity is None:
            return  # recorded as unknown when the client was closed
        self._history.write("publish", outcome, **fields, **identity)
        with self._lock:
            self._outcomes[outcome] += 1


Opened = TypeVar("Opened")


@dataclass(slots=True)
class PartitionSender(Generic[Opened]):
    """A producer of one topic or partition, and the sequence id of its next message."""

    topic: str
    producer: Opened | None = None
    session: str = ""
    next_sequence_id: int = 0

    def opened(self, producer: Opened, session: str, last_sequence_id: int) -> None:
        """Set the opened producer, and continue after the last sequence id that the region stored for its name."""
        self.producer, self.session = producer, session
        self.next_sequence_id = max(self.next_sequence_id, last_sequence_id + 1)

    def number(self) -> int:
        """Return the sequence id of the next message."""
        number, self.next_sequence_id = self.next_sequence_id, self.next_sequence_id + 1
        return number


def choose(
    senders: Sequence[PartitionSender[Opened]], key: str | None, number: int
) -> PartitionSender[Opened]:
    """Return the sender of a message: by the hash of its key, or without a key in turn. `number` counts the earlier
    messages."""
    return senders[(number if key is None else KeyHash.JAVA_STRING(key)) % len(senders)]
