"""The consumers of one connection, by consumer id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.broker.connection.flow_control import FlowControl
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.core.dispatch import SubscriptionType
from emulator.wire.commands import Subscribe, close_consumer

if TYPE_CHECKING:
    from emulator.broker.topic.topic import Topic


class ConsumingConnection(Protocol):
    """A client's connection, as its consumers see it."""

    flow_control: FlowControl

    def answer(self, data: bytes) -> None: ...


class ClientConsumers:
    """Attach and detach consumers of one client."""

    def __init__(self, connection: ConsumingConnection) -> None:
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
