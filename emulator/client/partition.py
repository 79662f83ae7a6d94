"""One partition of a producer: opened at once, or with the first message for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from emulator.client.send_queue import Outgoing
from emulator.client.topic_producer import TopicProducer
from emulator.client.types import ClientError, MessageId


class Partition:
    """A producer of its own, and what was sent before that was open: it waits, in order, because only the region can
    tell where the sequence ids of a name go on."""

    def __init__(self, make: Callable[[], TopicProducer], early_max: int) -> None:
        self.producer: TopicProducer | None = None
        """None until it is open."""
        self._make = make
        self._early: deque[Outgoing] = deque()
        self._early_max = early_max
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """ClientError when it is refused."""
        producer = self._make()
        await producer.start()
        self.producer = producer

    async def publish(self, message: Outgoing) -> MessageId:
        if self.producer is None:
            await asyncio.shield(self._begin_to_open())
        assert self.producer is not None, "opening it either failed or made it"
        return await self.producer.publish(message)

    def publish_nowait(self, message: Outgoing) -> None:
        if self.producer is not None:
            self.producer.publish_nowait(message)
            return
        if len(self._early) >= self._early_max:
            sentence = f"{self._early_max} messages wait until their partition is open"
            raise ClientError(sentence, definite=True)
        self._early.append(message)
        self._begin_to_open()

    def _begin_to_open(self) -> asyncio.Task[None]:
        """Where it failed before, it is tried again: the next message may have more luck."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_for_early())
            self._opening.add_done_callback(self._opening_done)
        return self._opening

    def _opening_done(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # Whoever waited may be gone by now; the messages know.

    async def _open_for_early(self) -> None:
        try:
            await self.open()
        except ClientError as refusal:
            self._fail_early(refusal)
            raise
        assert self.producer is not None
        while self._early:
            message = self._early.popleft()
            try:
                self.producer.publish_nowait(message)
            except ClientError as refusal:
                message.fail(refusal)

    def _fail_early(self, reason: ClientError) -> None:
        """None of them was sent."""
        while self._early:
            self._early.popleft().fail(ClientError(str(reason), definite=True, code=reason.code))

    async def flush(self) -> None:
        waiting = [message.future for message in self._early]
        if waiting:
            await asyncio.wait(waiting)
        if self.producer is not None:
            await self.producer.flush()

    async def close(self) -> None:
        """What was sent early is still published, if it can be in time."""
        if self._opening is not None:
            if not self._early:
                self._opening.cancel()
            await asyncio.wait([self._opening])
        if self.producer is not None:
            await self.producer.close()
