"""Producers: publish to a topic, partitioned or not."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from emulator.client.config import ProducerConfig
from emulator.client.connection_pool import ConnectionPool
from emulator.client.send_queue import OutgoingMessage
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, MessageId, Standing
from emulator.model.values import AccessMode, Schema


class Producer(ABC):
    """Made by `Client.producer`: a `TopicProducer`, or a `PartitionedProducer` where the topic has partitions."""

    def __init__(self, client: ConnectionPool, topic: str, config: ProducerConfig) -> None:
        self.client = client
        self.topic = topic
        self.config = config
        self.closed = False
        self.on_standing: Callable[[Producer, Standing], None] | None = None

    @property
    def access_mode(self) -> AccessMode:
        return self.config.access_mode

    @property
    def priority(self) -> int:
        """Where it stands in line. Fixed when the producer is made (PIP-440): setting it raises AttributeError."""
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
        """A region serves it (all of it); otherwise it is on its way back to one, closed or fenced."""

    @abstractmethod
    async def start(self) -> None:
        """Called by the client."""

    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        sequence_id: int | None = None,
        event_time_ms: int | None = None,
        deliver_at_ms: int | None = None,
        replicate_to: Sequence[str] = (),
        transaction: Transaction | None = None,
    ) -> MessageId:
        """Publish and wait for the receipt. ClientError.definite tells whether a failed send certainly left nothing.
        `key`: messages with the same one go to the same partition, as with other clients.
        `deliver_at_ms`: Shared and Key_Shared subscriptions deliver it then, by the wall clock of their region.
        In a transaction the message counts once that commits; ExpiredTransaction when it was fenced."""
        message = OutgoingMessage(
            payload,
            key,
            properties or {},
            sequence_id,
            event_time_ms,
            deliver_at_ms,
            replicate_to,
            transaction,
            asyncio.get_running_loop().create_future(),
        )
        return await self.publish(message)

    def send_nowait(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        sequence_id: int | None = None,
        event_time_ms: int | None = None,
        deliver_at_ms: int | None = None,
        replicate_to: Sequence[str] = (),
        transaction: Transaction | None = None,
    ) -> asyncio.Future[MessageId]:
        """Publish without waiting; the future is the receipt. ClientError at once when closed, fenced or full, or when
        the topic is not registered with the transaction (`Transaction.will_publish_to`). In a transaction nothing is
        batched."""
        message = OutgoingMessage(
            payload,
            key,
            properties or {},
            sequence_id,
            event_time_ms,
            deliver_at_ms,
            replicate_to,
            transaction,
            asyncio.get_running_loop().create_future(),
        )
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

    def _stands(self, standing: Standing) -> None:
        if self.on_standing is not None:
            self.on_standing(self, standing)

    def _refuse_when_closed(self) -> None:
        if self.closed:
            raise ClientError("the producer is closed", definite=True)
