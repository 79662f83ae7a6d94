"""A producer of a topic with partitions: a producer for each, and the choice between them.

Exclusive access is all or nothing (INV-73). Partition 0 is asked for first and let go of last: of several producers
that want all partitions, whoever has that one gets the rest, and nobody waits in a circle. Who loses one partition has
lost the topic: the others are let go of, and nothing more is published.

A topic that has grown is used as far as its partitions are open, from 0 on without a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.client.partition import Partition
from emulator.client.producer import Producer, ProducerWish
from emulator.client.send_queue import Outgoing
from emulator.client.topic_producer import TopicProducer
from emulator.client.types import ClientError, MessageId, Standing
from emulator.errors import ServerError
from emulator.model.values import AccessMode

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.routing import PartitionChoice

OPENED_AT_ONCE = 32
"""Partitions that are asked for before the first answer is there."""
LOST_ACCESS = frozenset({ServerError.ProducerFenced, ServerError.ProducerBusy})
"""Somebody else has the partition."""


class PartitionedProducer(Producer):
    """Made by `Client.producer` where the topic has partitions."""

    def __init__(
        self,
        client: Client,
        topic: str,
        wish: ProducerWish,
        partitions: int,
        choice: PartitionChoice,
        *,
        lazy: bool,
    ) -> None:
        """`lazy`: each partition is opened with the first message for it. ValueError with exclusive access."""
        super().__init__(client, topic, wish)
        if lazy and self._is_exclusive:
            raise ValueError(
                "a producer with exclusive access opens all partitions at once: lazy is not supported"
            )
        self._choice = choice
        self._lazy = lazy
        self._asked_for = partitions
        """At the beginning. Partitions that come later do not hold up the others."""
        self._partitions = [self._partition(index) for index in range(partitions)]
        """That messages go to. Invariant: all are open, or it is lazy."""
        self._name = wish.name or ""
        self._fatal: ClientError | None = None
        self._growing: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @property
    def _is_exclusive(self) -> bool:
        return self.wish.access_mode is not AccessMode.SHARED

    @property
    def partitions(self) -> int:
        """How many messages go to."""
        return len(self._partitions)

    @property
    def name(self) -> str:
        """All partitions know it by the same one."""
        return self._name

    @property
    def topic_epoch(self) -> int | None:
        first = self._partitions[0].producer
        return None if first is None else first.topic_epoch

    @property
    def last_sequence_id(self) -> int:
        return max((producer.last_sequence_id for producer in self._open), default=-1)

    @property
    def schema_version(self) -> bytes:
        return next((producer.schema_version for producer in self._open), b"")

    @property
    def is_connected(self) -> bool:
        return self._fatal is None and all(producer.is_connected for producer in self._open)

    @property
    def _open(self) -> list[TopicProducer]:
        return [one.producer for one in self._partitions if one.producer is not None]

    # Opening.

    async def start(self) -> None:
        try:
            await self._open_as_asked()
            self._refuse_when_closed()
        except BaseException:
            await self._close_all()
            raise
        self._stands(Standing.OPEN)
        self._growing = asyncio.get_running_loop().create_task(self._watch())

    async def _open_as_asked(self) -> None:
        """The first one tells the name of all, and decides who may ask for the others."""
        if self._lazy:
            await self._open_one(self._partitions[self._choice.first(self.partitions)])
            return
        first, *others = self._partitions
        await self._open_one(first)
        for begin in range(0, len(others), OPENED_AT_ONCE):
            await self._open_together(others[begin : begin + OPENED_AT_ONCE])

    async def _open_together(self, partitions: list[Partition]) -> None:
        """The first failure counts; then the others are not waited for."""
        try:
            async with asyncio.TaskGroup() as group:
                for one in partitions:
                    group.create_task(self._open_one(one))
        except BaseExceptionGroup as failures:
            raise _first_of(failures) from None

    async def _open_one(self, partition: Partition) -> None:
        self._refuse_when_closed()
        await partition.open()
        assert partition.producer is not None
        self._name = partition.producer.name

    def _partition(self, index: int) -> Partition:
        topic = f"{self.topic}-partition-{index}"

        def make() -> TopicProducer:
            producer = TopicProducer(self.client, topic, replace(self.wish, name=self._name or None))
            producer.on_standing = self._one_stands if index < self._asked_for else None
            producer.on_end = self._one_ended
            return producer

        return Partition(make, self.wish.pending_messages_max)

    def _one_stands(self, _: Producer, standing: Standing) -> None:
        """It is open when all of it is. `start` tells so for the first time."""
        if standing is not Standing.OPEN or (self._growing is not None and self.is_connected):
            self._stands(standing)

    # Growing.

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.client.settings.partitions_interval_seconds)
            with contextlib.suppress(ClientError):  # Asked again next time.
                await self._grow_to(await self.client.partitions_of(self.topic))

    async def _grow_to(self, count: int) -> None:
        """Their number only grows: who says otherwise is not heeded."""
        for index in range(self.partitions, count):
            partition = self._partition(index)
            if not self._lazy:
                await self._open_one(partition)
            self._partitions.append(partition)

    # Sending.

    async def publish(self, message: Outgoing) -> MessageId:
        return await self._chosen(message).publish(message)

    def publish_nowait(self, message: Outgoing) -> None:
        self._chosen(message).publish_nowait(message)

    def _chosen(self, message: Outgoing) -> Partition:
        if self._fatal is not None:
            raise self._fatal
        self._refuse_when_closed()
        return self._partitions[self._choice.choose(message, self.partitions)]

    async def flush(self) -> None:
        await asyncio.gather(*[one.flush() for one in self._partitions])

    # Losing it.

    def _one_ended(self, error: ClientError) -> None:
        """A partition of shared producers fails by itself, and a terminated one takes nobody's place away."""
        if self._is_exclusive and error.code in LOST_ACCESS and self._fatal is None and not self.closed:
            self._fatal = ClientError(str(error), definite=True, code=error.code)
            self._leaving = asyncio.get_running_loop().create_task(self._close_all())

    async def _close_all(self) -> None:
        """Partition 0 is the last: whoever waits for it finds all others free."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.wait([self._growing])
        first, *others = self._partitions
        await asyncio.gather(*[one.close() for one in others])
        await first.close()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        await self._close_all()
        self.client.gone(self)
        if self._leaving is not None:
            await asyncio.wait([self._leaving])


def _first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
