"""A consumer actor that uses Pulsar's own Python client."""

from __future__ import annotations

from pathlib import Path

import pulsar  # type: ignore[import-untyped]

from emulator.recording.responses import message_id_text
from emulator.run.history import HistoryWriter
from emulator.run.history_events import Outcome, payload_digest
from emulator.scenarios.actors.client_security import NO_SECURITY, ClientSecurity
from emulator.scenarios.actors.pulsar_client import RETRY_SECONDS, Pause, PulsarActor, read_identity
from emulator.scenarios.actors.specs import ConsumerSpec, Counts

RECEIVE_MS = 50
"""Time to wait for a message before the actor checks for commands again."""
IDLE_SECONDS = 0.05
BURST = 64
"""Maximum number of messages received before the actor checks for commands again."""

_CONSUMER_TYPES = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key_shared": pulsar.ConsumerType.KeyShared,
}


class ConsumerActor(PulsarActor):
    """Receives and acknowledges messages, and records each delivery."""

    def __init__(
        self,
        part: ConsumerSpec,
        history: HistoryWriter,
        log: Path,
        pause: Pause,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        super().__init__(part.region, history, log, pause, security)
        self._part = part
        self._consumer: pulsar.Consumer | None = None
        self._seen: set[tuple[str, str, str, int]] = set()
        """Topic and origin (region, producer, sequence id) of each message received."""
        self._repeated = 0

    @property
    def counts(self) -> Counts:
        consumer = self._consumer
        return Counts(
            region=self._region,
            connected=consumer is not None and consumer.is_connected(),
            received=len(self._seen),
            repeated=self._repeated,
        )

    def begin(self, service_url: str) -> None:
        client = self._connect(service_url)
        while self._consumer is None:
            self._note_subscribe("asked")
            try:
                self._consumer = client.subscribe(
                    self._part.topic,
                    self._part.subscription,
                    consumer_type=_CONSUMER_TYPES[self._part.type],
                    consumer_name=self._part.name,
                    receiver_queue_size=self._part.receiver_queue,
                    initial_position=pulsar.InitialPosition.Earliest,
                    replicate_subscription_state_enabled=self._part.replicated,
                )
            except pulsar.PulsarException as refusal:
                self._note_subscribe("unknown", error=str(refusal))
                self._pause(RETRY_SECONDS)
        self._note_subscribe("ok")

    def _note_subscribe(self, outcome: Outcome, **fields: str) -> None:
        """Record the subscription to each partition, as the client's library subscribes to them."""
        for topic in self._part.topics:
            self._history.write(
                "subscribe",
                outcome,
                region=self._region,
                topic=topic,
                subscription=self._part.subscription,
                replicated=self._part.replicated,
                initial="earliest",
                **fields,
            )

    def _topic_of(self, message: pulsar.Message) -> str:
        """Return the topic of a message: its partition if the topic is partitioned."""
        return str(message.topic_name()) if self._part.partitions else self._part.topic

    def finish(self) -> None:
        self.close()

    def _release_handles(self) -> None:
        self._consumer = None

    def idle_seconds(self) -> float:
        """Return 0 while consuming, because `receive` waits."""
        return 0 if self._consumer is not None else IDLE_SECONDS

    def act(self) -> None:
        """Receive and acknowledge up to BURST messages, waiting at most RECEIVE_MS for each."""
        if self._consumer is None:
            return
        for _ in range(BURST):
            try:
                message = self._consumer.receive(timeout_millis=RECEIVE_MS)
            except pulsar.Timeout:
                return
            if not self._note_message(message):
                self._acknowledge(message)

    def _note_message(self, message: pulsar.Message) -> bool:
        """Record a delivery, and return whether the actor leaves the message unacknowledged."""
        origin = read_identity(message.data())
        topic = self._topic_of(message)
        self._history.write(
            "receive",
            "ok",
            region=self._region,
            topic=topic,
            subscription=self._part.subscription,
            message_id=message_id_text(message.message_id()),
            payload_digest=payload_digest(message.data()),
            detail=None if origin else "not published by this scenario",
            **(origin or {}),
        )
        if origin is None:
            return False
        identity = (topic, origin["origin_region"], origin["producer"], origin["sequence_id"])
        is_repeated = identity in self._seen
        self._repeated += is_repeated
        self._seen.add(identity)
        return not is_repeated and len(self._seen) == self._part.leaves_unacknowledged

    def _acknowledge(self, message: pulsar.Message) -> None:
        """Acknowledge a message, and record only `asked` unless it fails: the client's call returns before the region
        has received the acknowledgement, and the client never reports its outcome."""
        fields = {
            "region": self._region,
            "topic": self._topic_of(message),
            "subscription": self._part.subscription,
            "message_id": message_id_text(message.message_id()),
            "how": self._part.acknowledge,
        }
        assert self._consumer is not None
        acknowledge = (
            self._consumer.acknowledge_cumulative
            if self._part.acknowledge == "cumulative"
            else self._consumer.acknowledge
        )
        self._history.write("acknowledge", "asked", **fields)
        try:
            acknowledge(message)
        except pulsar.PulsarException as refusal:
            self._history.write("acknowledge", "unknown", error=str(refusal), **fields)
