"""Consumers: receive and acknowledge messages of one topic or of several."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from emulator.client.config import ConsumerConfig
from emulator.client.messages import Message
from emulator.client.redelivery import ConsumerClient
from emulator.client.transactions import Transaction
from emulator.client.types import ClientError, ConsumerType, MessageId


class Consumer(ABC):
    """A consumer of `Client.subscribe`: a `TopicConsumer`, or a `MultiTopicConsumer` for partitions, lists and
    patterns."""

    def __init__(
        self, client: ConsumerClient, topic: str, config: ConsumerConfig, queue: ReceiveQueue
    ) -> None:
        self.client = client
        self.topic = topic
        """The requested topic; for several topics their names, or the pattern."""
        self.config = config
        self.closed = False
        self._queue = queue
        self._fatal: ClientError | None = None

    @property
    def name(self) -> str:
        """Consumer name, set by the application or generated."""
        return self.config.name

    @property
    def subscription(self) -> str:
        return self.config.subscription

    @property
    def type(self) -> ConsumerType:
        return self.config.type_

    @property
    def waiting(self) -> list[Message]:
        """Messages in the receiver queue that the application has not received yet, in order."""
        return self._queue.messages

    @property
    @abstractmethod
    def is_active(self) -> bool | None:
        """Whether this is the active FAILOVER consumer, by the broker's last notification; None: none received. For
        several topics: whether it is active for one of them."""

    @abstractmethod
    async def start(self) -> None:
        """Open the consumer; called by the client."""

    async def receive(self) -> Message:
        """Return the next message. ClientError when none is queued and the consumer is closed or cannot reconnect."""
        if self._queue.is_empty:
            self._check_usable()
        return await self._queue.take()

    async def receive_batch(
        self, messages_max: int = 100, *, bytes_max: int = 10_485_760, timeout_seconds: float = 0.1
    ) -> list[Message]:
        """Return the messages that arrive until `messages_max`, `bytes_max` or the timeout is reached; maybe none.
        Raises ClientError as `receive` does, if no message arrived before; ValueError for limits below 1."""
        if messages_max < 1 or bytes_max < 1:
            raise ValueError("a batch has at least one message, and one byte")
        received: list[Message] = []
        received_bytes = 0
        try:
            async with asyncio.timeout(timeout_seconds):
                while len(received) < messages_max and received_bytes < bytes_max:
                    received.append(await self.receive())
                    received_bytes += len(received[-1].payload)
        except TimeoutError:
            return received
        except ClientError:
            if not received:
                raise
        return received

    @abstractmethod
    async def acknowledge(
        self, *messages: Message | MessageId, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        """Acknowledge messages. `confirmed`: return only when the acknowledgement is durable. In a transaction it takes
        effect with the commit and is always confirmed; ClientError TransactionConflict when another transaction has
        acknowledged a message, ExpiredTransaction when this one was fenced. Ids are accepted for one topic and its
        partitions; with several topics they raise ClientError."""

    @abstractmethod
    async def acknowledge_cumulative(
        self, message: Message | MessageId, *, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        """Acknowledge all messages of a topic or partition up to and including this one. In a transaction as
        `acknowledge`."""

    @abstractmethod
    def negative_acknowledge(self, *messages: Message) -> None:
        """Request redelivery of these messages (SHARED, KEY_SHARED), or of every unacknowledged message (other types),
        after `negative_ack_delay_seconds`. With `DeadLetters`, one redelivered too often becomes a dead letter."""

    @abstractmethod
    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        """Send the message to the retry topic, which delivers it after the delay; after too many retries it becomes a
        dead letter. ClientError; ValueError without `DeadLetters.retries`, or for a negative delay."""

    @abstractmethod
    def redeliver_unacknowledged(self) -> None:
        """Request redelivery of every unacknowledged message, and empty the receiver queue."""

    @abstractmethod
    def pause(self) -> None:
        """Send no more permits; messages for permits sent before may still arrive."""

    @abstractmethod
    def resume(self) -> None:
        """Request messages again. Harmless when it was not paused."""

    @abstractmethod
    async def seek(self, target: MessageId | int) -> None:
        """Continue at a message id, or at the first message published at or after a time (ms). The broker disconnects
        the consumer, which is connected again when this returns. Several topics accept EARLIEST, LATEST or a time; the
        id of a message in a partition moves that partition alone. ClientError for any other id."""

    @abstractmethod
    async def last_message_ids(self) -> dict[str, MessageId | None]:
        """Return the id of the newest message of each topic; None for an empty topic."""

    async def last_message_id(self) -> MessageId | None:
        """Return the id of the newest message; None for an empty topic. ClientError for several topics."""
        ids = await self.last_message_ids()
        if len(ids) != 1:
            raise ClientError(f"{self.topic} has {len(ids)} topics: use last_message_ids", definite=True)
        return next(iter(ids.values()))

    @abstractmethod
    async def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer."""

    @abstractmethod
    async def close(self) -> None:
        """Close the consumer; the subscription stays. Harmless when called twice."""

    def _check_usable(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ClientError("the consumer is closed", definite=True)


class QueuedConsumer(Protocol):
    """A consumer of one topic, as its receiver queue uses it; several consumers may share a queue."""

    def delivered_to_application(self, message: Message) -> None:
        """Release the permit of a message that the application receives, and start its acknowledgement timeout."""
        ...


Arrived = tuple[QueuedConsumer, Message]


class ReceiveQueue:
    """Received messages in the order of arrival. A consumer adds no more than it requested, except in batches."""

    def __init__(self) -> None:
        self._queue: deque[Arrived] = deque()
        self._waiters: deque[asyncio.Future[Arrived]] = deque()
        self.on_wait: Callable[[], None] | None = None
        """Called when a caller begins to wait for a message."""

    @property
    def messages(self) -> list[Message]:
        return [message for _, message in self._queue]

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for a message."""
        return any(not future.done() for future in self._waiters)

    def has_of(self, source: QueuedConsumer) -> bool:
        return any(one is source for one, _ in self._queue)

    def put(self, source: QueuedConsumer, message: Message) -> None:
        while self._waiters:
            future = self._waiters.popleft()
            if not future.done():
                future.set_result((source, message))
                return
        self._queue.append((source, message))

    async def take(self) -> Message:
        """Remove and return the next message. ClientError when `fail` ends the wait."""
        source, message = self._queue.popleft() if self._queue else await self._next()
        source.delivered_to_application(message)
        return message

    async def _next(self) -> Arrived:
        future: asyncio.Future[Arrived] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        if self.on_wait is not None:
            self.on_wait()
        try:
            return await future
        except asyncio.CancelledError:
            # A message that arrives when the deadline of the caller passes must not be lost.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._queue.appendleft(future.result())
            raise

    def drop(self, source: QueuedConsumer) -> int:
        """Drop the messages of a consumer, which the broker redelivers; return their number."""
        before = len(self._queue)
        self._queue = deque(each for each in self._queue if each[0] is not source)
        return before - len(self._queue)

    def fail(self, error: ClientError) -> None:
        """Raise `error` in every waiting caller, because no more messages will arrive."""
        for future in self._waiters:
            if not future.done():
                future.set_exception(error)
        self._waiters.clear()
