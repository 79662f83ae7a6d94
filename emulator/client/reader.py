"""Readers: consumers that remember themselves where they are."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from emulator.client.consumer import Consumer, ConsumerWish
from emulator.client.inbox import Inbox
from emulator.client.messages import Message
from emulator.client.multi_topic_consumer import MultiTopicConsumer
from emulator.client.topic_consumer import TopicConsumer
from emulator.client.topic_names import TopicNames
from emulator.client.types import EARLIEST, LATEST, ClientError, MessageId
from emulator.wire import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.client.client import Client


class Reader(Consumer):
    """Made by `Client.reader`. Its place is its own: nothing is kept at the broker."""

    @abstractmethod
    async def has_message(self) -> bool:
        """Whether `receive` would return something that is stored by now."""


class TopicReader(TopicConsumer, Reader):
    """Of one topic, or of one partition."""

    def __init__(
        self,
        client: Client,
        topic: str,
        wish: ConsumerWish,
        start: MessageId,
        *,
        inclusive: bool,
        inbox: Inbox | None = None,
        on_end: Callable[[TopicConsumer, ClientError], None] | None = None,
    ) -> None:
        super().__init__(client, topic, wish, inbox, on_end)
        self._start = start
        self._inclusive = inclusive
        self._begins_at_a_time = False
        """It sought a time, and has read nothing since: only the region knows where that is."""

    async def start(self) -> None:
        """At the end, inclusive: what is the last message now is the first one to be read."""
        await super().start()
        if self._start == LATEST and self._inclusive and (last := await self.last_message_id()) is not None:
            await self.seek(last)

    def _start_place(self) -> requests.Place | None:
        return self._start[:3]

    def _wants(self, message_id: MessageId) -> bool:
        """The broker begins at the start id itself; what was not asked for is dropped here."""
        place = (message_id.ledger, message_id.entry, message_id.batch_index)
        start = (self._start.ledger, self._start.entry, self._start.batch_index)
        if self._start == LATEST or self._start.ledger < 0:
            return True
        return place >= start if self._inclusive else place > start

    def taken(self, message: Message) -> None:
        self._start, self._inclusive, self._begins_at_a_time = message.id, False, False
        super().taken(message)

    async def seek(self, target: MessageId | int) -> None:
        """The broker keeps the place sought until the reader is back; what lies before the place left is wanted
        again."""
        before = self._start, self._inclusive, self._begins_at_a_time
        self._start, self._inclusive = (EARLIEST if isinstance(target, int) else target), True
        self._begins_at_a_time = isinstance(target, int)
        try:
            await super().seek(target)
        except ClientError:
            self._start, self._inclusive, self._begins_at_a_time = before
            raise

    async def has_message(self) -> bool:
        if self._inbox.has_of(self):
            return True
        last = await self.last_message()
        if last.place is None:
            return False
        if self._begins_at_a_time or self._start == LATEST:
            return last.done is None or last.place[:2] > last.done
        return self._wants(MessageId(*last.place))


class MultiTopicReader(MultiTopicConsumer, Reader):
    """Of all partitions of a topic. Partitions that come later are read from their beginning."""

    def __init__(
        self, client: Client, topic: str, wish: ConsumerWish, names: TopicNames, start: MessageId
    ) -> None:
        """ClientError for a start that is the place of one message: the others have none."""
        if start not in (EARLIEST, LATEST):
            sentence = f"{topic} has partitions: start at EARLIEST or LATEST, or seek in each partition"
            raise ClientError(sentence, definite=True)
        super().__init__(client, topic, wish, names)
        self._start = start

    def _child(self, topic: str) -> TopicConsumer:
        start = EARLIEST if self._is_begun else self._start
        return TopicReader(
            self.client,
            topic,
            self._wish_now(),
            start,
            inclusive=True,
            inbox=self._inbox,
            on_end=self._child_ended,
        )

    async def has_message(self) -> bool:
        if not self._inbox.is_empty:
            return True
        children = [child for child in self.consumers.values() if isinstance(child, TopicReader)]
        for child in children:
            if await child.has_message():
                return True
        return False
