"""A producer of a partitioned topic: one producer per partition, and the routing between them.

Exclusive access is all or nothing (INV-73). Partition 0 is requested first and released last: of several producers that
want all partitions, the owner of partition 0 gets the rest, so they cannot deadlock. A producer that loses one
partition releases the others and publishes nothing more.

Partitions that are added later are used in the order of their indices, each once it is open (lazy ones at once).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from emulator.client.config import ProducerConfig
from emulator.client.connection_pool import ConnectionPool
from emulator.client.producer import Producer
from emulator.client.routing import MessageRouter
from emulator.client.send_queue import OutgoingMessage
from emulator.client.topic_producer import TopicProducer
from emulator.client.types import ClientError, MessageId, ProducerState
from emulator.errors import ServerError
from emulator.model.values import AccessMode

CONCURRENT_OPENS_MAX = 32
"""Maximum number of partitions that are opened concurrently."""
LOST_ACCESS = frozenset({ServerError.ProducerFenced, ServerError.ProducerBusy})
"""Errors that mean that another producer has exclusive access to the partition."""


class PartitionedProducer(Producer):
    """A producer of a partitioned topic, created by `Client.producer`."""

    def __init__(
        self,
        client: ConnectionPool,
        topic: str,
        config: ProducerConfig,
        partitions: int,
        router: MessageRouter,
        *,
        lazy: bool,
    ) -> None:
        """`lazy`: each partition is opened with its first message. ValueError for `lazy` with exclusive access."""
        super().__init__(client, topic, config)
        if lazy and self._is_exclusive:
            raise ValueError(
                "a producer with exclusive access opens all partitions at once: lazy is not supported"
            )
        self._router = router
        self._lazy = lazy
        self._initial_partitions = partitions
        """Number of partitions at creation; only these affect the reported state."""
        self._partitions = [self._new_partition(index) for index in range(partitions)]
        """Partitions by index. Invariant: all are open, or the producer is lazy."""
        self._name = config.name or ""
        self._fatal: ClientError | None = None
        self._growth_task: asyncio.Task[None] | None = None
        self._closing_task: asyncio.Task[None] | None = None

    @property
    def _is_exclusive(self) -> bool:
        return self.config.access_mode is not AccessMode.SHARED

    @property
    def partitions(self) -> int:
        """The number of partitions in use."""
        return len(self._partitions)

    @property
    def name(self) -> str:
        """The producer name, the same for all partitions."""
        return self._name

    @property
    def topic_epoch(self) -> int | None:
        first = self._partitions[0].producer
        return None if first is None else first.topic_epoch

    @property
    def last_sequence_id(self) -> int:
        return max((producer.last_sequence_id for producer in self._open_producers), default=-1)

    @property
    def schema_version(self) -> bytes:
        return next((producer.schema_version for producer in self._open_producers), b"")

    @property
    def is_connected(self) -> bool:
        return self._fatal is None and all(producer.is_connected for producer in self._open_producers)

    @property
    def _open_producers(self) -> list[TopicProducer]:
        return [one.producer for one in self._partitions if one.producer is not None]

    # Opening.

    async def start(self) -> None:
        try:
            await self._open_initial()
            self._refuse_when_closed()
        except BaseException:
            await self._close_all()
            raise
        self.report(ProducerState.OPEN)
        self._growth_task = asyncio.get_running_loop().create_task(self._follow_growth())

    async def _open_initial(self) -> None:
        """Open partition 0, which determines the producer name and whether others may be requested, then the others."""
        if self._lazy:
            await self._open_one(self._partitions[self._router.first(self.partitions)])
            return
        first, *others = self._partitions
        await self._open_one(first)
        for begin in range(0, len(others), CONCURRENT_OPENS_MAX):
            await self._open_together(others[begin : begin + CONCURRENT_OPENS_MAX])

    async def _open_together(self, partitions: list[PartitionProducer]) -> None:
        """Open partitions concurrently; raise the first failure without waiting for the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for one in partitions:
                    group.create_task(self._open_one(one))
        except BaseExceptionGroup as failures:
            raise _first_of(failures) from None

    async def _open_one(self, partition: PartitionProducer) -> None:
        self._refuse_when_closed()
        await partition.open()
        assert partition.producer is not None
        self._name = partition.producer.name

    def _new_partition(self, index: int) -> PartitionProducer:
        topic = f"{self.topic}-partition-{index}"

        def create() -> TopicProducer:
            producer = TopicProducer(self.client, topic, replace(self.config, name=self._name or None))
            producer.on_state_change = (
                self._report_partition_state if index < self._initial_partitions else None
            )
            producer.on_end = self._partition_ended
            return producer

        return PartitionProducer(create, self.config.pending_messages_max)

    def _report_partition_state(self, _: Producer, state: ProducerState) -> None:
        """Report the state of a partition; OPEN only once all are open. The first OPEN is reported by `start`."""
        if state is not ProducerState.OPEN or (self._growth_task is not None and self.is_connected):
            self.report(state)

    # Growing.

    async def _follow_growth(self) -> None:
        while True:
            await asyncio.sleep(self.client.settings.partitions_interval_seconds)
            with contextlib.suppress(ClientError):  # The next request may succeed.
                await self._grow_to(await self.client.partitions_of(self.topic))

    async def _grow_to(self, count: int) -> None:
        """Add partitions up to `count`; a lower count is ignored, because partitions are never removed."""
        for index in range(self.partitions, count):
            partition = self._new_partition(index)
            if not self._lazy:
                await self._open_one(partition)
            self._partitions.append(partition)

    # Sending.

    async def publish(self, message: OutgoingMessage) -> MessageId:
        return await self._partition_for(message).publish(message)

    def publish_nowait(self, message: OutgoingMessage) -> None:
        self._partition_for(message).publish_nowait(message)

    def _partition_for(self, message: OutgoingMessage) -> PartitionProducer:
        if self._fatal is not None:
            raise self._fatal
        self._refuse_when_closed()
        return self._partitions[self._router.choose(message, self.partitions)]

    async def flush(self) -> None:
        await asyncio.gather(*[one.flush() for one in self._partitions])

    # Losing access, and closing.

    def _partition_ended(self, error: ClientError) -> None:
        """Close all partitions if exclusive access to one is lost; other failures affect their own partition only."""
        if self._is_exclusive and error.code in LOST_ACCESS and self._fatal is None and not self.closed:
            self._fatal = ClientError(str(error), definite=True, code=error.code)
            self._closing_task = asyncio.get_running_loop().create_task(self._close_all())

    async def _close_all(self) -> None:
        """Close all partitions, partition 0 last: a producer that waits for it then gets all others."""
        if self._growth_task is not None:
            self._growth_task.cancel()
            await asyncio.wait([self._growth_task])
        first, *others = self._partitions
        await asyncio.gather(*[one.close() for one in others])
        await first.close()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        await self._close_all()
        self.client.forget_handle(self)
        if self._closing_task is not None:
            await asyncio.wait([self._closing_task])


def _first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


class PartitionProducer:
    """The producer of one partition, and the messages published before it is open. These wait in order, because only
    the region knows the next sequence id of a producer name."""

    def __init__(self, create: Callable[[], TopicProducer], unsent_max: int) -> None:
        self.producer: TopicProducer | None = None
        """None until the partition is open."""
        self._create = create
        self._unsent: deque[OutgoingMessage] = deque()
        self._unsent_max = unsent_max
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the partition. ClientError when the region rejects the producer."""
        producer = self._create()
        await producer.start()
        self.producer = producer

    async def publish(self, message: OutgoingMessage) -> MessageId:
        if self.producer is None:
            await asyncio.shield(self._begin_to_open())
        assert self.producer is not None, "opening either raised an error or set the producer"
        return await self.producer.publish(message)

    def publish_nowait(self, message: OutgoingMessage) -> None:
        if self.producer is not None:
            self.producer.publish_nowait(message)
            return
        if len(self._unsent) >= self._unsent_max:
            sentence = f"{self._unsent_max} messages wait until their partition is open"
            raise ClientError(sentence, definite=True)
        self._unsent.append(message)
        self._begin_to_open()

    def _begin_to_open(self) -> asyncio.Task[None]:
        """Return the task that opens the partition; start one, also after a failure, if none is running."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_and_publish())
            self._opening.add_done_callback(self._opening_done)
        return self._opening

    def _opening_done(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # Mark as retrieved: the caller may be gone; the messages carry the error.

    async def _open_and_publish(self) -> None:
        try:
            await self.open()
        except ClientError as refusal:
            self._fail_unsent(refusal)
            raise
        assert self.producer is not None
        while self._unsent:
            message = self._unsent.popleft()
            try:
                self.producer.publish_nowait(message)
            except ClientError as refusal:
                message.fail(refusal)

    def _fail_unsent(self, reason: ClientError) -> None:
        """Fail the waiting messages with a definite error: none of them was sent."""
        while self._unsent:
            self._unsent.popleft().fail(ClientError(str(reason), definite=True, code=reason.code))

    async def flush(self) -> None:
        waiting = [message.future for message in self._unsent]
        if waiting:
            await asyncio.wait(waiting)
        if self.producer is not None:
            await self.producer.flush()

    async def close(self) -> None:
        """Close the producer. Waiting messages are published first, or fail if the partition cannot be opened."""
        if self._opening is not None:
            if not self._unsent:
                self._opening.cancel()
            await asyncio.wait([self._opening])
        if self.producer is not None:
            await self.producer.close()
