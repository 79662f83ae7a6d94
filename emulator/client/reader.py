"""Readers: consumers that keep their position themselves, without a durable subscription."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping

from emulator.client.config import ConsumerConfig
from emulator.client.consumer import Consumer, ReceiveQueue
from emulator.client.messages import Message
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.redelivery import ConsumerClient
from emulator.client.topic_consumer import TopicConsumer
from emulator.client.topic_names import TopicSource
from emulator.client.types import EARLIEST, LATEST, ClientError, MessageId
from emulator.wire.commands.spec import MessageIdData


class Reader(Consumer):
    """A reader created by `Client.reader`, which keeps its position itself: the broker stores none."""

    @abstractmethod
    async def has_message(self) -> bool:
        """Whether `receive` would return a message that is stored already."""


class TopicReader(TopicConsumer, Reader):
    """A reader of one topic, or of one partition."""

    def __init__(
        self,
        client: ConsumerClient,
        topic: str,
        config: ConsumerConfig,
        start: MessageId,
        *,
        inclusive: bool,
        queue: ReceiveQueue | None = None,
        on_end: Callable[[TopicConsumer, ClientError], None] | None = None,
    ) -> None:
        super().__init__(client, topic, config, queue, on_end)
        self._start = start
        self._inclusive = inclusive
        self._starts_at_time = False
        """Whether no message was received since a seek to a time: only the region knows the start position then."""

    async def start(self) -> None:
        """Open the reader; LATEST with `inclusive` starts at the message that is the last one now."""
        await super().start()
        if self._start == LATEST and self._inclusive and (last := await self.last_message_id()) is not None:
            await self.seek(last)

    def start_position(self) -> MessageIdData | None:
        return MessageIdData(*self._start[:3])

    def _accepts(self, message_id: MessageId) -> bool:
        """Whether a message is at or after the requested start: the broker sends the whole entry of the start id."""
        position = (message_id.ledger, message_id.entry, message_id.batch_index)
        start = (self._start.ledger, self._start.entry, self._start.batch_index)
        if self._start == LATEST or self._start.ledger < 0:
            return True
        return position >= start if self._inclusive else position > start

    def delivered_to_application(self, message: Message) -> None:
        self._start, self._inclusive, self._starts_at_time = message.id, False, False
        super().delivered_to_application(message)

    async def seek(self, target: MessageId | int) -> None:
        """Move the start to the target, so that messages before the former start are delivered again."""
        former = self._start, self._inclusive, self._starts_at_time
        self._start, self._inclusive = (EARLIEST if isinstance(target, int) else target), True
        self._starts_at_time = isinstance(target, int)
        try:
            await super().seek(target)
        except ClientError:
            self._start, self._inclusive, self._starts_at_time = former
            raise

    async def has_message(self) -> bool:
        if self._queue.has_of(self):
            return True
        response = await self.session.last_message()
        last = response.last
        if last.entry < 0:
            return False
        if self._starts_at_time or self._start == LATEST:
            return response.mark_delete is None or last.position > response.mark_delete
        return self._accepts(MessageId(last.ledger, last.entry, last.index_in_batch))


class MultiTopicReader(MultiTopicConsumer, Reader):
    """A reader of all partitions of a topic. Partitions that are added later are read from their first message."""

    def __init__(
        self, client: ConsumerClient, topic: str, config: ConsumerConfig, names: TopicSource, start: MessageId
    ) -> None:
        """ClientError for a start other than EARLIEST and LATEST: a message id belongs to one partition only."""
        if start not in (EARLIEST, LATEST):
            sentence = f"{topic} has partitions: start at EARLIEST or LATEST, or seek in each partition"
            raise ClientError(sentence, definite=True)
        super().__init__(client, topic, config, names)
        self._start = start

    def _create_child(self, topic: str) -> TopicConsumer:
        return TopicReader(
            self.client,
            topic,
            self._child_config(),
            EARLIEST if self._topics.are_all_open else self._start,
            inclusive=True,
            queue=self._queue,
            on_end=self._child_ended,
        )

    async def has_message(self) -> bool:
        if not self._queue.is_empty:
            return True
        children = [child for child in self.consumers.values() if isinstance(child, TopicReader)]
        for child in children:
            if await child.has_message():
                return True
        return False


Listener = Callable[[str, bytes | None], None]
"""Function called with a key and its new value; None: the key was deleted."""


class TableView(Mapping[str, bytes]):
    """The newest payload of each key of a topic. A message without a key is ignored; an empty payload deletes a key."""

    def __init__(self, reader: Reader) -> None:
        self.topic = reader.topic
        self._reader = reader
        self._values: dict[str, bytes] = {}
        self._read_upto: dict[str, MessageId] = {}
        """Topic or partition -> id of the last message read."""
        self._listeners: list[Listener] = []
        self._failure: ClientError | None = None
        self._progress = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the topic; return when every message stored before is in the table. ClientError."""
        self._following = asyncio.get_running_loop().create_task(self._follow())
        await self.refresh()

    async def _follow(self) -> None:
        try:
            while True:
                self._apply(await self._reader.receive())
        except ClientError as failure:
            self._failure = failure
        finally:
            self._progress.set()

    def _apply(self, message: Message) -> None:
        self._read_upto[message.topic] = message.id
        self._progress.set()
        if message.key is None:
            return
        if message.payload:
            self._values[message.key] = message.payload
        elif self._values.pop(message.key, None) is None:
            return
        for listener in list(self._listeners):
            self._notify(listener, message.key, message.payload or None)

    def _notify(self, listener: Listener, key: str, value: bytes | None) -> None:
        """Call a listener; pass its failure to the loop's exception handler, so that other listeners are called."""
        try:
            listener(key, value)
        except Exception as problem:
            sentence = f"a listener of the table view of {self.topic} failed at key {key!r}"
            asyncio.get_running_loop().call_exception_handler({"message": sentence, "exception": problem})

    async def refresh(self) -> None:
        """Wait until every message stored by now is in the table. Raises ClientError when the last message ids
        cannot be read, or the view has ended."""
        last_ids = await self._reader.last_message_ids()
        while not all(self._has_read(topic, last) for topic, last in last_ids.items()):
            self._check()
            if not await self._reader.has_message():
                return  # The last entries are markers, or belong to an aborted transaction.
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._reader.client.settings.request_timeout_seconds):
                    await self._progress.wait()
        self._check()

    def _has_read(self, topic: str, last: MessageId | None) -> bool:
        read = self._read_upto.get(topic)
        return last is None or (read is not None and read[:3] >= last[:3])

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def listen(self, listener: Listener, *, existing: bool = False) -> None:
        """Call the listener with each change from now on; `existing`: first with every entry of the table."""
        self._listeners.append(listener)
        if existing:
            for key, value in list(self._values.items()):
                listener(key, value)

    def __getitem__(self, key: str) -> bytes:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def close(self) -> None:
        """Stop updating the table; its content stays readable."""
        await self._reader.close()
        if self._following is not None:
            await asyncio.wait([self._following])
