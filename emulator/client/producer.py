"""Producers: publish to a topic, partitioned or not."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Unpack

from emulator.client.config import ProducerConfig
from emulator.client.connection_pool import ConnectionPool
from emulator.client.send_queue import MessageOptions, OutgoingMessage
from emulator.client.types import ClientError, MessageId, ProducerState
from emulator.model.values import AccessMode, Schema


class Producer(ABC):
    """Made by `Client.producer`: a `TopicProducer`, or a `PartitionedProducer` where the topic has partitions."""

    def __init__(self, client: ConnectionPool, topic: str, config: ProducerConfig) -> None:
        self.client = client
        self.topic = topic
        self.config = config
        self.closed = False
        self.on_state_change: Callable[[Producer, ProducerState], None] | None = None

    @property
    def access_mode(self) -> AccessMode:
        return self.config.access_mode

    @property
    def priority(self) -> int:
        """In the wait queue. Fixed when the producer is created (PIP-440): setting it raises AttributeError."""
        return self.config.priority

    @property
    def schema(self) -> Schema | None:
        return self.config.schema

    @property
    @abstractmethod
    def name(self) -> str:
        """Chosen by the broker unless the application sets it."""

    @property
    @abstractmethod
    def topic_epoch(self) -> int | None:
        """Granted by the region to an exclusive producer; sent with every reconnect (PIP-68). Of a partitioned topic
        that of partition 0, whose owner is the first to request the others."""

    @property
    @abstractmethod
    def last_sequence_id(self) -> int:
        """The newest one that was used; of a partitioned topic the highest."""

    @property
    @abstractmethod
    def schema_version(self) -> bytes:
        """Assigned by the broker and sent with each message. Empty: no schema."""

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether a region serves it (all of its partitions). False: it is reconnecting, closed or fenced."""

    @abstractmethod
    async def start(self) -> None:
        """Called by the client."""

    async def send(
        self, payload: bytes, *, sequence_id: int | None = None, **options: Unpack[MessageOptions]
    ) -> MessageId:
        """Publish and wait for the receipt. ClientError.definite tells whether a failed send certainly left nothing. In
        a transaction: ExpiredTransaction when it was fenced. `sequence_id`: the next one by default."""
        return await self.publish(_outgoing(payload, sequence_id, options))

    def send_nowait(
        self, payload: bytes, *, sequence_id: int | None = None, **options: Unpack[MessageOptions]
    ) -> asyncio.Future[MessageId]:
        """Publish without waiting; the future is the receipt. ClientError at once when closed, fenced or full, or when
        the topic is not registered with the transaction (`Transaction.will_publish_to`). In a transaction nothing is
        batched."""
        message = _outgoing(payload, sequence_id, options)
        self.publish_nowait(message)
        return message.future

    @abstractmethod
    async def publish(self, message: OutgoingMessage) -> MessageId:
        """As `send`."""

    @abstractmethod
    def publish_nowait(self, message: OutgoingMessage) -> None:
        """Its future has the outcome. ClientError as `send_nowait`."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until everything sent so far has its outcome."""

    @abstractmethod
    async def close(self) -> None:
        """Wait for receipts of what was sent if there is a connection, then close. Harmless when called twice."""

    def report(self, state: ProducerState) -> None:
        if self.on_state_change is not None:
            self.on_state_change(self, state)

    def _refuse_when_closed(self) -> None:
        if self.closed:
            raise ClientError("the producer is closed", definite=True)


def _outgoing(payload: bytes, sequence_id: int | None, options: MessageOptions) -> OutgoingMessage:
    future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
    return OutgoingMessage(payload, future, sequence_id, **options)
