"""The producers and consumers of one connection, by their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from emulator.broker.connection.dispatch import CommandingConnection, begin, refuse
from emulator.broker.connection.liveness import Liveness
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.topic.producer import ConnectedProducer
from emulator.core.dispatch.types import SubscriptionType
from emulator.core.policies.topics import KEEP_ALIVE_INTERVAL
from emulator.errors import ProtocolError, ServerError
from emulator.wire.command_types import CommandType
from emulator.wire.commands import CreateProducer, ProducerSuccess, Subscribe, close_consumer, close_producer

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic

CLOSED_PRODUCERS_MAX: Final = 1_000
"""Ids of closed producers that are remembered."""


class PublishingConnection(CommandingConnection, Protocol):
    """A client's connection, as its producers see it."""

    liveness: Liveness


class ClientProducers:
    """Producers that are being created, wait for their topic, are open or were closed.

    A producer is in `claims` until its topic admits it, then in `open`.
    """

    def __init__(self, connection: PublishingConnection) -> None:
        self._connection = connection
        self.opening: dict[int, CreateProducer] = {}
        """Ids that are being created, each with its command. Removed when the client closes the producer meanwhile; it
        may use the same id again before the first command has noticed."""
        self.claims: dict[int, ConnectedProducer] = {}
        """Producers that wait for their topic, or are being admitted to it."""
        self.open: dict[int, ConnectedProducer] = {}
        self.closed: dict[int, None] = {}
        """Ids closed recently, oldest first: late sends of them are ignored, as the client could not know yet. Upstream
        does the same."""
        self._notified: dict[int, int] = {}
        """Producer id -> the request that was answered with "not ready yet", which is sent once."""

    def keep_alive_interval_ms(self) -> int | None:
        """Return the shortest interval that a topic of these producers asks for; None when none does."""
        topics = {producer.topic for producer in (*self.open.values(), *self.claims.values())}
        return min(filter(None, (topic.policies[KEEP_ALIVE_INTERVAL] for topic in topics)), default=None)

    def no_longer_opening(self, command: CreateProducer) -> None:
        """The command has ended. A later one for the same id continues."""
        if self.opening.get(command.producer_id) is command:
            del self.opening[command.producer_id]

    def claim(self, producer: ConnectedProducer) -> None:
        """Register a producer that is about to request access to its topic. It replaces a former producer of the same
        id. ProtocolError when the client has too many producers; then nothing is changed."""
        flow_control = self._connection.flow_control
        if not flow_control.has_room_for_producer(producer.held_bytes):
            raise ProtocolError(ServerError.NotAllowedError, "this connection has too many producers")
        for former in (self.open.get(producer.producer_id), self.claims.get(producer.producer_id)):
            if former is not None:
                self.forget(former, "its client opened it again")
        self.claims[producer.producer_id] = producer
        flow_control.producer_came(producer.held_bytes)
        self._connection.liveness.hurry(producer.topic.policies[KEEP_ALIVE_INTERVAL])

    def admitted(self, producer: ConnectedProducer, epoch: int | None) -> None:
        """The producer publishes from now on."""
        claimed = self._unclaim(producer)
        assert claimed is producer
        self.open[producer.producer_id] = producer
        self.closed.pop(producer.producer_id, None)
        producer.topic.publishing.attach(producer)
        name, request_id = producer.producer_name, producer.request.request_id
        last, version = producer.last_sequence_id(), producer.schema_version
        self._connection.answer(
            ProducerSuccess(request_id, name, last, version, is_ready=True, topic_epoch=epoch).encode()
        )

    def waits(self, producer: ConnectedProducer) -> None:
        """The producer is in the wait queue of its topic."""
        request_id = producer.request.request_id
        if self._notified.get(producer.producer_id) != request_id:
            self._notified[producer.producer_id] = request_id
            self._connection.answer(
                ProducerSuccess(request_id, producer.producer_name, -1, b"", is_ready=False).encode()
            )

    def refused(self, producer: ConnectedProducer, problem: ProtocolError) -> None:
        """The topic does not admit the producer."""
        self._unclaim(producer)
        self._connection.flow_control.producer_left(producer.held_bytes)
        connection = self._connection
        refuse(connection, connection.table.rows[CommandType.PRODUCER], producer.request, problem)

    def _unclaim(self, producer: ConnectedProducer) -> ConnectedProducer:
        self._notified.pop(producer.producer_id, None)
        return self.claims.pop(producer.producer_id)

    def forget(self, producer: ConnectedProducer, why: str = "its client was disconnected") -> None:
        """Remove a producer without a message to its client; what it published stays."""
        flow_control = self._connection.flow_control
        if self.claims.get(producer.producer_id) is producer:
            self._unclaim(producer)
            flow_control.producer_left(producer.held_bytes)
            producer.topic.access.left(producer, why)
            return
        if self.open.get(producer.producer_id) is producer:
            del self.open[producer.producer_id]
            flow_control.producer_left(producer.held_bytes)
            self.closed[producer.producer_id] = None
            if len(self.closed) > CLOSED_PRODUCERS_MAX:
                del self.closed[next(iter(self.closed))]
        producer.topic.publishing.detach(producer, why)
        producer.detach()

    def close(self, producer: ConnectedProducer) -> None:
        """Disconnect a producer; its client reconnects and resends messages without a receipt."""
        self.forget(producer)
        self._connection.answer(close_producer(producer.producer_id).encode())

    def connection_lost(self) -> None:
        self.opening.clear()
        for producer in [*self.open.values(), *self.claims.values()]:
            self.forget(producer, "its connection was lost")

    def topic_closed(self, topic: Topic) -> None:
        """Disconnect the producers of a topic that is no longer served. For those that wait, the region repeats the
        request itself: not every client handles CLOSE_PRODUCER before its producer is open."""
        for producer in [p for p in self.open.values() if p.topic is topic]:
            self.close(producer)
        connection = self._connection
        for claim in [p for p in self.claims.values() if p.topic is topic]:
            del self.claims[claim.producer_id]
            connection.flow_control.producer_left(claim.held_bytes)
            if claim.producer_id in self.opening:
                continue  # its client has requested a replacement
            request = replace(claim.request, producer_name=claim.producer_name)
            # Set now: its client may close the producer before the region repeats the request.
            self.opening[claim.producer_id] = request
            begin(connection, connection.table.again[CommandType.PRODUCER], request)


class ClientConsumers:
    """Attach and detach consumers of one client."""

    def __init__(self, connection: CommandingConnection) -> None:
        self._connection = connection
        self.opening: dict[int, Subscribe] = {}
        """Ids that are being created, each with its command; see `ClientProducers.opening`."""
        self.open: dict[int, ConnectedConsumer] = {}

    def no_longer_opening(self, command: Subscribe) -> None:
        """The command has ended. A later one for the same id continues."""
        if self.opening.get(command.consumer_id) is command:
            del self.opening[command.consumer_id]

    def add(self, consumer: ConnectedConsumer, type_: SubscriptionType) -> None:
        """Attach a consumer to its subscription. ProtocolError when the subscription rejects it; then nothing is
        changed.

        Nothing is delivered before its SUCCESS: it has no permits until its client grants some.
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
        """Disconnect a consumer; its client subscribes again."""
        self.forget(consumer)
        self._connection.answer(close_consumer(consumer.consumer_id).encode())

    def set_blocked(self, *, blocked: bool) -> None:
        """Pause or resume delivery, because the client does not read, or reads again."""
        for consumer in self.open.values():
            consumer.subscription.set_blocked(consumer, blocked=blocked)

    def connection_lost(self) -> None:
        self.opening.clear()
        for consumer in list(self.open.values()):
            self.forget(consumer)

    def topic_closed(self, topic: Topic) -> None:
        """Disconnect the consumers of a topic that is no longer served."""
        for consumer in [c for c in self.open.values() if c.subscription.topic is topic]:
            self.close(consumer)
