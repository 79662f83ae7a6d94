"""What becomes of messages that are given back again and again, as with other clients.

    given back, or not acknowledged in time     it comes again, `redeliveries_max` times
    once more                                   it is sent to the topic of dead letters, and acknowledged
    put off (`Consumer.reconsume_later`)        it is sent to the retry topic, to be delivered after a while, and
                                                acknowledged; put off too often, it is a dead letter

A letter is sent before its message is acknowledged: a crash between the two doubles it and loses nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from emulator.client.encryption import Encryption
from emulator.client.messages import Message
from emulator.client.types import ClientError

if TYPE_CHECKING:
    from emulator.client.producer import Producer
    from emulator.client.redelivery import GivenBackTo

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_ID: Final = "ORIGIN_MESSAGE_ID"
TIMES: Final = "RECONSUMETIMES"
DELAY_MS: Final = "DELAY_TIME"
"""Properties of letters, by the names that other clients give them."""
_PARTITION: Final = re.compile(r"-partition-\d+$")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Of a SHARED or KEY_SHARED consumer."""

    redeliveries_max: int
    """How often a message comes again before it is a dead letter."""
    topic: str | None = None
    """Of dead letters; None: `<topic>-<subscription>-DLQ`."""
    initial_subscription: str | None = None
    """Of the topic of dead letters: made with its producer, so that none is lost to whoever looks for them later."""
    retries: bool = False
    """Whether messages can be put off."""
    retry_topic: str | None = None
    """To which they are; None: `<topic>-<subscription>-RETRY`. The consumer reads it, too."""
    encryption: Encryption | None = None
    """Of letters; None: what came encrypted is sent there readable, as by other clients."""

    def __post_init__(self) -> None:
        """ValueError for what cannot be meant."""
        if self.redeliveries_max < 0:
            raise ValueError(f"redeliveries_max is {self.redeliveries_max}; it must not be negative")

    def named_after(self, topic: str, subscription: str) -> DeadLetters:
        """With names for its topics."""
        base = f"{_PARTITION.sub('', topic)}-{subscription}"
        dead, again = self.topic or f"{base}-DLQ", self.retry_topic or f"{base}-RETRY"
        return replace(self, topic=dead, retry_topic=again if self.retries else None)

    def is_dead(self, message: Message) -> bool:
        """It has come as often as it may: given back once more, it is a letter."""
        return message.redelivery_count >= self.redeliveries_max


class Letters:
    """Of one consumer of one topic."""

    def __init__(self, consumer: GivenBackTo, policy: DeadLetters) -> None:
        self._consumer = consumer
        self._client = consumer.client
        self._policy = policy.named_after(consumer.topic, consumer.wish.subscription)
        self._reads_retries = _PARTITION.sub("", consumer.topic) == policy.retry_topic
        """What messages say of where they have been counts in the retry topic only: elsewhere anybody may say it."""
        self._producers: dict[str, asyncio.Task[Producer]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def bury(self, message: Message) -> None:
        """Soon. If that fails it is given back, and comes again."""
        task = asyncio.get_running_loop().create_task(self._bury(message))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _bury(self, message: Message) -> None:
        try:
            await self._send_dead(message)
        except ClientError:
            await asyncio.sleep(self._client.settings.backoff_seconds_max)
            self._consumer.redeliver([message])

    async def put_off(self, message: Message, delay_seconds: float) -> None:
        """To be delivered after so long; to the dead letters when it was put off too often. ClientError."""
        times = 1 + (_times(message) if self._reads_retries else 0)
        if times > self._policy.redeliveries_max:
            await self._send_dead(message)
            return
        delay_ms = round(delay_seconds * 1000)
        told = {TIMES: str(times), DELAY_MS: str(delay_ms)}
        await self._send(
            self._policy.retry_topic, None, message, told, self._client.wall_clock_ms() + delay_ms
        )

    async def _send_dead(self, message: Message) -> None:
        await self._send(self._policy.topic, self._policy.initial_subscription, message, {}, None)

    async def _send(
        self,
        topic: str | None,
        subscription: str | None,
        message: Message,
        told: dict[str, str],
        at_ms: int | None,
    ) -> None:
        assert topic is not None, "named_after sets its name"
        producer = await self._producer(topic, subscription)
        origin = {REAL_TOPIC: message.topic, ORIGIN_ID: str(message.id)}
        if self._reads_retries:
            origin |= {name: message.properties[name] for name in origin if name in message.properties}
        origin[REAL_SUBSCRIPTION] = self._consumer.wish.subscription
        properties = {**message.properties, **origin, **told}
        await producer.send(message.payload, key=message.key, properties=properties, deliver_at_ms=at_ms)
        await self._consumer.acknowledge(message)

    async def _producer(self, topic: str, subscription: str | None) -> Producer:
        opening = self._producers.get(topic)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            opening = _begun(
                self._client.producer(
                    topic, initial_subscription=subscription, encryption=self._policy.encryption
                )
            )
            self._producers[topic] = opening
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """What is under way is not waited for: it was not acknowledged, so nothing is lost."""
        tasks = [*self._under_way, *self._producers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for opened in self._producers.values():
            if not opened.cancelled() and opened.exception() is None:
                await opened.result().close()


def _begun(opening: Coroutine[Any, Any, Producer]) -> asyncio.Task[Producer]:
    task = asyncio.get_running_loop().create_task(opening)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _times(message: Message) -> int:
    """How often it was put off. A property is what somebody says: nonsense counts as never."""
    said = message.properties.get(TIMES, "0")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
