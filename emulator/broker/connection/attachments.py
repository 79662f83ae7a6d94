"""The producers and consumers of one connection, by their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from emulator.broker.authorization import TrustLevel
from emulator.broker.connection.client_limits import check_count
from emulator.broker.connection.dispatch import CommandingConnection, refuse, repeat
from emulator.broker.connection.liveness import Liveness
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.topic.producer import ConnectedProducer
from emulator.core.dispatch.types import SubscriptionType
from emulator.core.policies.topics import KEEP_ALIVE_INTERVAL
from emulator.errors import ProtocolError, ServerError
from emulator.wire.codec_hot.opening import encode_producer_ready
from emulator.wire.command_types import CommandType
from emulator.wire.commands import CreateProducer, ProducerSuccess, Subscribe, close_consumer, close_producer

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic

CLOSED_PRODUCERS_MAX: Final = 1_000
"""Maximum number of closed producers whose ids a connection remembers."""


class PublishingConnection(CommandingConnection, Protocol):
    """A client's connection, as its producers see it."""

    liveness: Liveness


class ClientProducers:
    """The producers of one connection that are being created, wait for their topic, are open or were closed.

    A producer is in `claims` until its topic admits it, then in `open`.
    """

    def __init__(self, connection: PublishingConnection, count_max: int) -> None:
        """`count_max`: maximum of producers; 0: unlimited."""
        self._connection = connection
        self._count_max = count_max
        self.opening: dict[int, CreateProducer] = {}
        """Producer id -> the command that creates it. Removed when the client closes the producer meanwhile; the client
        may then reuse the id before the first command ends."""
        self.claims: dict[int, ConnectedProducer] = {}
        """Producer id -> producer that waits for access to its topic, or is being admitted."""
        self.open: dict[int, ConnectedProducer] = {}
        self.closed: dict[int, None] = {}
        """Ids of recently closed producers, oldest first. Late SENDs for them are ignored, as upstream does: the client
        may not have received CLOSE_PRODUCER yet."""
        self._notified: dict[int, int] = {}
        """Producer id -> the request that received the response "not ready yet", which is sent once per request."""

    def keep_alive_interval_ms(self) -> int | None:
        """Return the shortest keep-alive interval in the policies of the producers' topics; None: no topic has one."""
        topics = {producer.topic for producer in (*self.open.values(), *self.claims.values())}
        return min(filter(None, (topic.policies[KEEP_ALIVE_INTERVAL] for topic in topics)), default=None)

    def end_opening(self, command: CreateProducer) -> None:
        """Remove a command that has ended from `opening`, unless a later one for the same id has replaced it."""
        if self.opening.get(command.producer_id) is command:
            del self.opening[command.producer_id]

    def check_count(self, producer_id: int) -> None:
        """Raise ProtocolError for one more producer than a connection may have. Replicators do not count."""
        if self._connection.trust is TrustLevel.CLIENT:
            check_count("producers", producer_id, (self.opening, self.claims, self.open), self._count_max)

    def claim(self, producer: ConnectedProducer) -> None:
        """Register a producer that is about to request access to its topic. It replaces a former producer of the same
        id. ProtocolError when the client's producers use too much memory; then nothing is changed."""
        flow_control = self._connection.flow_control
        if not flow_control.has_room_for_producer(producer.held_bytes):
            raise ProtocolError(ServerError.NotAllowedError, "this connection has too many producers")
        for former in (self.open.get(producer.producer_id), self.claims.get(producer.producer_id)):
            if former is not None:
                self.forget(former, "its client opened it again")
        self.claims[producer.producer_id] = producer
        flow_control.charge_producer(producer.held_bytes)
        if (interval_ms := producer.topic.policies[KEEP_ALIVE_INTERVAL]) is not None:
            self._connection.liveness.hurry(interval_ms)

    def admitted(self, producer: ConnectedProducer, epoch: int | None) -> None:
        """Open a producer that its topic has admitted, and send the response."""
        claimed = self._remove_claim(producer)
        assert claimed is producer
        self.open[producer.producer_id] = producer
        self.closed.pop(producer.producer_id, None)
        producer.topic.publishing.attach(producer)
        name, request_id = producer.producer_name, producer.request.request_id
        last, version = producer.last_sequence_id(), producer.schema_version
        response = encode_producer_ready(
            request_id, name, last, version, epoch, accepts_runs=producer.accepts_runs
        )
        self._connection.answer_soon(response)

    def waits(self, producer: ConnectedProducer) -> None:
        """Notify the client, once per request, that its producer is in the wait queue of its topic."""
        request_id = producer.request.request_id
        if self._notified.get(producer.producer_id) != request_id:
            self._notified[producer.producer_id] = request_id
            self._connection.answer(
                ProducerSuccess(request_id, producer.producer_name, -1, b"", is_ready=False).encode()
            )

    def refused(self, producer: ConnectedProducer, problem: ProtocolError) -> None:
        """Remove a producer that its topic has rejected, and send the error response."""
        self._remove_claim(producer)
        self._connection.flow_control.release_producer(producer.held_bytes)
        connection = self._connection
        refuse(connection, connection.table.rows[CommandType.PRODUCER], producer.request, problem)

    def _remove_claim(self, producer: ConnectedProducer) -> ConnectedProducer:
        self._notified.pop(producer.producer_id, None)
        return self.claims.pop(producer.producer_id)

    def forget(self, producer: ConnectedProducer, why: str = "its client was disconnected") -> None:
        """Remove a producer without a message to its client. Its published entries stay."""
        flow_control = self._connection.flow_control
        if self.claims.get(producer.producer_id) is producer:
            self._remove_claim(producer)
            flow_control.release_producer(producer.held_bytes)
            producer.topic.access.left(producer, why)
            return
        if self.open.get(producer.producer_id) is producer:
            del self.open[producer.producer_id]
            flow_control.release_producer(producer.held_bytes)
            self.closed[producer.producer_id] = None
            if len(self.closed) > CLOSED_PRODUCERS_MAX:
                del self.closed[next(iter(self.closed))]
        producer.topic.publishing.detach(producer, why)
        producer.detach()

    def close(self, producer: ConnectedProducer) -> None:
        """Remove a producer and send CLOSE_PRODUCER: its client reconnects and resends messages without a receipt."""
        self.forget(producer)
        self._connection.answer(close_producer(producer.producer_id).encode())

    def connection_lost(self) -> None:
        self.opening.clear()
        for producer in [*self.open.values(), *self.claims.values()]:
            self.forget(producer, "its connection was lost")

    def topic_closed(self, topic: Topic) -> None:
        """Close the producers of a topic that is no longer served. For waiting producers the region repeats the request
        itself, because not every client handles CLOSE_PRODUCER before its producer is open."""
        for producer in [p for p in self.open.values() if p.topic is topic]:
            self.close(producer)
        connection = self._connection
        for claim in [p for p in self.claims.values() if p.topic is topic]:
            del self.claims[claim.producer_id]
            connection.flow_control.release_producer(claim.held_bytes)
            if claim.producer_id in self.opening:
                continue  # its client has requested a replacement
            request = replace(claim.request, producer_name=claim.producer_name)
            # Set before the region repeats the request: the client may close the producer in between.
            self.opening[claim.producer_id] = request
            if not repeat(connection, connection.table.repeated[CommandType.PRODUCER], request):
                self.end_opening(request)


class ClientConsumers:
    """The consumers of one connection that are being created or are open."""

    def __init__(self, connection: CommandingConnection, count_max: int) -> None:
        """`count_max`: maximum of consumers; 0: unlimited."""
        self._connection = connection
        self._count_max = count_max
        self.opening: dict[int, Subscribe] = {}
        """Consumer id -> the command that creates it; see `ClientProducers.opening`."""
        self.open: dict[int, ConnectedConsumer] = {}

    def end_opening(self, command: Subscribe) -> None:
        """Remove a command that has ended from `opening`, unless a later one for the same id has replaced it."""
        if self.opening.get(command.consumer_id) is command:
            del self.opening[command.consumer_id]

    def check_count(self, consumer_id: int) -> None:
        """Raise ProtocolError for one more consumer than a connection may have. Other regions do not count."""
        if self._connection.trust is TrustLevel.CLIENT:
            check_count("consumers", consumer_id, (self.opening, self.open), self._count_max)

    def add(self, consumer: ConnectedConsumer, type_: SubscriptionType) -> None:
        """Attach a consumer to its subscription. ProtocolError when the subscription rejects it; then nothing is
        changed.

        No message is dispatched before SUCCESS, because the consumer has no permits until its client sends FLOW.
        """
        consumer.subscription.attach(consumer, type_)
        self.open[consumer.consumer_id] = consumer
        if self._connection.flow_control.is_writing_paused:
            consumer.subscription.set_blocked(consumer, blocked=True)

    def forget(self, consumer: ConnectedConsumer) -> None:
        """Remove a consumer without a message to its client."""
        if self.open.get(consumer.consumer_id) is consumer:
            del self.open[consumer.consumer_id]
        consumer.subscription.detach(consumer)

    def close(self, consumer: ConnectedConsumer) -> None:
        """Remove a consumer and send CLOSE_CONSUMER: its client subscribes again."""
        self.forget(consumer)
        self._connection.answer(close_consumer(consumer.consumer_id).encode())

    def set_blocked(self, *, blocked: bool) -> None:
        """Pause dispatch while the client does not read, or resume it."""
        for consumer in self.open.values():
            consumer.subscription.set_blocked(consumer, blocked=blocked)

    def connection_lost(self) -> None:
        self.opening.clear()
        for consumer in list(self.open.values()):
            self.forget(consumer)

    def topic_closed(self, topic: Topic) -> None:
        """Close the consumers of a topic that is no longer served."""
        for consumer in [c for c in self.open.values() if c.subscription.topic is topic]:
            self.close(consumer)
