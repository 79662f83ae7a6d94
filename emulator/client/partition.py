"""One partition of a producer: opened at once, or with the first message for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from emulator.client.pending import Outgoing
from emulator.client.topic_producer import TopicProducer
from emulator.client.vocabulary import ClientError, MessageId


class Partition:
    """A producer of its own, and what was sent before it was open: in order, numbered when the region has told where
    its numbers go on."""

    def __init__(self, topic: str, make: Callable[[str], TopicProducer]) -> None:
        self.topic = topic
        self.producer: TopicProducer | None = None
        """Open, or it was."""
        self._make = make
        self._early: deque[Outgoing] = deque()
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """ClientError when it is refused; the next call asks again."""
        producer = self._make(self.topic)
        await producer.start()
        self.producer = producer

    def publish_nowait(self, message: Outgoing) -> None:
        if self.producer is not None and not self._early:
            self.producer.publish_nowait(message)
            return
        self._early.append(message)
