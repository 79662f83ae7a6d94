"""Redelivery of messages that the application has received: negative acknowledgements, timeouts and dead letters.

A message is redelivered after a negative acknowledgement, or when it is not acknowledged within the timeout. With
`DeadLetters`, a message that was redelivered `redeliveries_max` times is sent to the dead letter topic and acknowledged
instead. `Consumer.reconsume_later` sends it to the retry topic, to be delivered after a delay, up to the same number of
times.

A dead letter is sent before its message is acknowledged: a crash between the two steps duplicates the message
and never loses it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

from emulator.client.config import PARTITION_SUFFIX, ConsumerConfig, DeadLetters
from emulator.client.connection_pool import ConnectionPool
from emulator.client.encryption import Encryption
from emulator.client.messages import Message, id_of
from emulator.client.producer import Producer
from emulator.client.types import ClientError, MessageId

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
TIMES: Final = "RECONSUMETIMES"
DELAY_MS: Final = "DELAY_TIME"
"""Names of the properties of dead letters and retried messages, the same as in other clients."""


class ConsumerClient(ConnectionPool, ABC):
    """The part of a client that consumers use: connections, and producers for dead letters."""

    @abstractmethod
    async def producer(
        self, topic: str, *, initial_subscription: str | None = None, encryption: Encryption | None = None
    ) -> Producer: ...


class RedeliveringConsumer(Protocol):
    """The part of a consumer of one topic that redelivery uses."""

    @property
    def client(self) -> ConsumerClient: ...

    @property
    def topic(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    async def acknowledge(self, *messages: Message | MessageId) -> None: ...

    def redeliver(self, messages: Sequence[Message]) -> None:
        """Request redelivery of messages, with all chunks of each."""
        ...


class RedeliveryTimer:
    """A set of messages, each due a fixed time after it was added unless it is removed before."""

    def __init__(self, seconds: float, on_due: Callable[[Sequence[Message]], None]) -> None:
        self._seconds = seconds
        self._on_due = on_due
        self._waiting: dict[MessageId, tuple[float, Message]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: Message) -> None:
        """Add a message; a message that is in the set already keeps its due time."""
        loop = asyncio.get_running_loop()
        self._waiting.setdefault(message.id, (loop.time() + self._seconds, message))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check_due)

    def remove(self, id_: MessageId) -> None:
        self._waiting.pop(id_, None)

    def remove_upto(self, id_: MessageId) -> None:
        for one in [one for one in self._waiting if one[:3] <= id_[:3]]:
            del self._waiting[one]

    def clear(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_due(self) -> None:
        """Pass due messages to `on_due`. One timer serves all: most messages are acknowledged long before."""
        self._timer = None
        loop, due = asyncio.get_running_loop(), []
        while self._waiting:
            id_, (at, message) = next(iter(self._waiting.items()))
            if at > loop.time():
                self._timer = loop.call_at(at, self._check_due)
                break
            del self._waiting[id_]
            due.append(message)
        if due:
            self._on_due(due)


class RedeliveryTracker:
    """Negative acknowledgements, timeouts and dead letters of one consumer of one topic."""

    def __init__(self, consumer: RedeliveringConsumer) -> None:
        config = consumer.config
        self._consumer = consumer
        self._policy = config.dead_letters
        self._negative_acks: RedeliveryTimer | None = None
        if config.negative_ack_delay_seconds > 0:
            self._negative_acks = RedeliveryTimer(
                config.negative_ack_delay_seconds, self._redeliver_or_dead_letter
            )
        timeout = config.ack_timeout_seconds
        self._ack_timeouts = (
            None if timeout is None else RedeliveryTimer(timeout, self._redeliver_or_dead_letter)
        )
        self._sender = None if self._policy is None else DeadLetterSender(consumer, self._policy)

    def start_timeout(self, message: Message) -> None:
        """Start the acknowledgement timeout of a message that the application has received."""
        if self._ack_timeouts is not None:
            self._ack_timeouts.add(message)

    def stop_timeouts(self, messages: Iterable[Message | MessageId]) -> None:
        """Stop the acknowledgement timeouts of messages: they are acknowledged (or negatively), or sent for a retry."""
        if self._ack_timeouts is not None:
            for message in messages:
                self._ack_timeouts.remove(id_of(message))

    def stop_timeouts_upto(self, id_: MessageId) -> None:
        if self._ack_timeouts is not None:
            self._ack_timeouts.remove_upto(id_)

    def negative_acknowledge(self, messages: Sequence[Message]) -> None:
        self.stop_timeouts(messages)
        if self._negative_acks is None:
            self._redeliver_or_dead_letter(messages)
            return
        for message in messages:
            self._negative_acks.add(message)

    def send_if_over_limit(self, message: Message) -> bool:
        """Send a message that exceeds the redelivery limit to the dead letter topic, in the background.

        A message exceeds the limit when its last consumer died without a negative acknowledgement. Return whether it
        does; the application must not receive it then.
        """
        if self._sender is None or self._policy is None:
            return False
        if message.redelivery_count <= self._policy.redeliveries_max:
            return False
        self._sender.send_in_background(message)
        return True

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        """Send a message to the retry topic. ClientError; ValueError without retries, or for a negative delay."""
        if self._sender is None or self._policy is None or not self._policy.retries:
            raise ValueError("reconsume_later needs a consumer with DeadLetters(retries=True)")
        if delay_seconds < 0:
            raise ValueError("delay_seconds must not be negative")
        self.stop_timeouts([message])
        await self._sender.reconsume_later(message, delay_seconds)

    def _redeliver_or_dead_letter(self, messages: Sequence[Message]) -> None:
        to_redeliver = []
        for message in messages:
            if (
                self._sender is not None
                and self._policy is not None
                and message.redelivery_count >= self._policy.redeliveries_max
            ):
                self._sender.send_in_background(message)
            else:
                to_redeliver.append(message)
        if to_redeliver:
            self._consumer.redeliver(to_redeliver)

    def clear(self) -> None:
        """Remove all messages: after a reconnect the broker redelivers every unacknowledged message."""
        for timer in (self._negative_acks, self._ack_timeouts):
            if timer is not None:
                timer.clear()

    async def close(self) -> None:
        self.clear()
        if self._sender is not None:
            await self._sender.close()


class DeadLetterSender:
    """Sends messages of one consumer to the dead letter topic and the retry topic."""

    def __init__(self, consumer: RedeliveringConsumer, policy: DeadLetters) -> None:
        self._consumer = consumer
        self._client = consumer.client
        self._policy = policy.named_after(consumer.topic, consumer.config.subscription)
        self._reads_retries = PARTITION_SUFFIX.sub("", consumer.topic) == policy.retry_topic
        """Whether the topic is the retry topic; elsewhere retry properties are ignored: any producer can set them."""
        self._producers: dict[str, asyncio.Task[Producer]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def send_in_background(self, message: Message) -> None:
        """Send a message to the dead letter topic in the background. If that fails, request its redelivery later."""
        task = asyncio.get_running_loop().create_task(self._send_or_redeliver(message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_or_redeliver(self, message: Message) -> None:
        try:
            await self._send_dead_letter(message)
        except ClientError:
            await asyncio.sleep(self._client.settings.backoff_seconds_max)
            self._consumer.redeliver([message])

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        """Send a message to the retry topic, or to the dead letter topic after too many retries. ClientError."""
        times = 1 + (_former_retries(message) if self._reads_retries else 0)
        if times > self._policy.redeliveries_max:
            await self._send_dead_letter(message)
            return
        delay_ms = round(delay_seconds * 1000)
        retry = {TIMES: str(times), DELAY_MS: str(delay_ms)}
        deliver_at_ms = self._client.wall_clock_ms() + delay_ms
        await self._send(self._policy.retry_topic, None, message, retry, deliver_at_ms)

    async def _send_dead_letter(self, message: Message) -> None:
        await self._send(self._policy.topic, self._policy.initial_subscription, message, {}, None)

    async def _send(
        self,
        topic: str | None,
        subscription: str | None,
        message: Message,
        more_properties: dict[str, str],
        deliver_at_ms: int | None,
    ) -> None:
        assert topic is not None, "named_after fills in the topic"
        producer = await self._producer(topic, subscription)
        origin = {REAL_TOPIC: message.topic, ORIGIN_ID: str(message.id)}
        if self._reads_retries:
            origin |= {name: message.properties[name] for name in origin if name in message.properties}
        origin[REAL_SUBSCRIPTION] = self._consumer.config.subscription
        properties = {**message.properties, **origin, **more_properties}
        await producer.send(
            message.payload, key=message.key, properties=properties, deliver_at_ms=deliver_at_ms
        )
        await self._consumer.acknowledge(message)

    async def _producer(self, topic: str, subscription: str | None) -> Producer:
        opening = self._producers.get(topic)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            opening = _start_opening(
                self._client.producer(
                    topic, initial_subscription=subscription, encryption=self._policy.encryption
                )
            )
            self._producers[topic] = opening
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Cancel unfinished sends; their messages stay unacknowledged, so none is lost."""
        tasks = [*self._sending, *self._producers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for opened in self._producers.values():
            if not opened.cancelled() and opened.exception() is None:
                await opened.result().close()


def _start_opening(opening: Coroutine[Any, Any, Producer]) -> asyncio.Task[Producer]:
    task = asyncio.get_running_loop().create_task(opening)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _former_retries(message: Message) -> int:
    """Return the number of former retries; 0 unless the property is a small number, because any producer can set it."""
    times = message.properties.get(TIMES, "0")
    return int(times) if times.isascii() and times.isdigit() and len(times) < 10 else 0
