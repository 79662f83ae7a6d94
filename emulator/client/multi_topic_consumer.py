"""A consumer of several topics (partitions, a list or a pattern): one consumer per topic, one shared receiver queue.

Each message names its topic, and its acknowledgement goes to that topic's consumer. A topic found later that cannot be
subscribed to does not fail the consumer: it is tried again with the next change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from emulator.client.config import ConsumerConfig
from emulator.client.consumer import Consumer, ReceiveQueue
from emulator.client.messages import Message
from emulator.client.redelivery import ConsumerClient
from emulator.client.topic_consumer import TopicConsumer
from emulator.client.topic_names import TopicSource
from emulator.client.transactions import Transaction
from emulator.client.types import EARLIEST, LATEST, ClientError, InitialPosition, MessageId

T = TypeVar("T")

CONCURRENT_MAX: Final = 32
"""Maximum number of topics that are subscribed to, or sent a request, concurrently."""


class MultiTopicConsumer(Consumer):
    """A consumer of several topics, created by `Client.subscribe`."""

    def __init__(
        self, client: ConsumerClient, topic: str, config: ConsumerConfig, names: TopicSource
    ) -> None:
        """Raises ValueError for a receiver queue of size 0: it is undefined which topic gets the next permit."""
        if not config.receiver_queue_size:
            raise ValueError(
                f"{topic}: a consumer of several topics needs a receiver_queue_size of 1 or more"
            )
        super().__init__(client, topic, config, ReceiveQueue())
        self._topics = SubscribedTopics(client, names, self._create_child, is_paused=config.start_paused)
        self.consumers = self._topics.consumers
        """Name of a topic or partition -> its consumer."""

    @property
    def is_active(self) -> bool | None:
        known = [child.is_active for child in self.consumers.values() if child.is_active is not None]
        return any(known) if known else None

    async def start(self) -> None:
        try:
            await self._topics.open_all()
            self._check_usable()
        except BaseException:
            await self._topics.close()
            raise
        self._topics.start_following()

    def _create_child(self, topic: str) -> TopicConsumer:
        return TopicConsumer(self.client, topic, self._child_config(), self._queue, self._child_ended)

    def _child_config(self) -> ConsumerConfig:
        """Return the settings of a topic's consumer. A topic found later is read from its first message: all its
        messages are newer than this consumer (INV-61)."""
        topics = self._topics
        return replace(
            self.config,
            start_paused=topics.is_paused,
            may_create=self.config.may_create and not topics.is_pattern,
            initial_position=InitialPosition.EARLIEST
            if topics.are_all_open
            else self.config.initial_position,
        )

    def _child_ended(self, child: TopicConsumer, error: ClientError) -> None:
        if not self._topics.handle_end(child) and self._fatal is None and not self.closed:
            self._fatal = ClientError(f"{child.topic}: {error}", definite=error.definite, code=error.code)
            self._queue.fail(self._fatal)

    # Acknowledging.

    async def acknowledge(
        self, *messages: Message | MessageId, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        by_child: dict[TopicConsumer, list[Message | MessageId]] = {}
        for message in messages:
            by_child.setdefault(self._child_of(message), []).append(message)
        for child, child_messages in by_child.items():
            await child.acknowledge(*child_messages, confirmed=confirmed, transaction=transaction)

    async def acknowledge_cumulative(
        self, message: Message | MessageId, *, confirmed: bool = False, transaction: Transaction | None = None
    ) -> None:
        child = self._child_of(message)
        await child.acknowledge_cumulative(message, confirmed=confirmed, transaction=transaction)

    def negative_acknowledge(self, *messages: Message) -> None:
        for message in messages:
            child = self.consumers.get(message.topic)
            if child is not None:  # Messages of a deleted topic are not redelivered.
                child.negative_acknowledge(message)

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        await self._child_of(message).reconsume_later(message, delay_seconds)

    def redeliver_unacknowledged(self) -> None:
        for child in self.consumers.values():
            child.redeliver_unacknowledged()

    def _child_of(self, message: Message | MessageId) -> TopicConsumer:
        """Return the consumer of a message's topic. ClientError for an id without a topic, or with an unknown one."""
        if isinstance(message, Message):
            topic = message.topic
        else:
            topic = f"{self.topic}-partition-{message.partition}" if message.partition >= 0 else ""
        child = self.consumers.get(topic)
        if child is None:
            of = f"is of {topic}" if topic else "does not name its topic"
            sentence = f"{getattr(message, 'id', message)} {of}: not a topic of this consumer ({self.topic})"
            raise ClientError(sentence, definite=True)
        return child

    def pause(self) -> None:
        self._topics.is_paused = True
        for child in self.consumers.values():
            child.pause()

    def resume(self) -> None:
        self._topics.is_paused = False
        for child in self.consumers.values():
            child.resume()

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        self._check_usable()
        if isinstance(target, int) or target in (EARLIEST, LATEST):
            await _in_groups(self.consumers.values(), lambda child: child.seek(target))
        else:
            await self._child_of(target).seek(target)

    async def last_message_ids(self) -> dict[str, MessageId | None]:
        found: dict[str, MessageId | None] = {}

        async def request(child: TopicConsumer) -> None:
            found.update(await child.last_message_ids())

        self._check_usable()
        await _in_groups(self.consumers.values(), request)
        return found

    async def unsubscribe(self) -> None:
        """Delete the subscription of each topic. If one cannot be deleted (other consumers are attached), the consumer
        stays open for the remaining topics."""
        self._check_usable()
        await self._topics.stop_following()
        try:
            await _in_groups(self.consumers.values(), lambda child: child.unsubscribe())
        except BaseException:
            self._topics.start_following()
            raise
        await self.close()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.client.forget_handle(self)
        self._queue.fail(ClientError("the consumer is closed", definite=True))
        await self._topics.close()


class SubscribedTopics:
    """One open consumer for each topic of a source, opened and closed as topics are created and deleted."""

    def __init__(
        self,
        client: ConsumerClient,
        names: TopicSource,
        create: Callable[[str], TopicConsumer],
        *,
        is_paused: bool,
    ) -> None:
        self.consumers: dict[str, TopicConsumer] = {}
        self.is_paused = is_paused
        self.are_all_open = False
        """Whether the first topics are open; topics found later did not exist when the consumer was opened."""
        self._client = client
        self._names = names
        self._create = create
        self._is_closed = False
        self._following: asyncio.Task[None] | None = None
        self._opening: dict[str, asyncio.Task[None]] = {}
        """Topics found later whose consumers are being opened, in the background: one that is unavailable does not
        delay the others."""
        self._listed_again: set[str] = set()
        """Topics that a change has listed while they were being opened. One that fails is tried again."""
        self._free_slots = asyncio.Semaphore(CONCURRENT_MAX)

    @property
    def is_pattern(self) -> bool:
        """Whether the topics are those that match a pattern, so that topics are added and removed."""
        return self._names.is_pattern

    async def open_all(self) -> None:
        """Subscribe to all topics, repeatedly until no new one is listed: a partition added before partition 0 has the
        subscription does not get it from there (N4). With a pattern, a topic found later is read from its beginning."""
        while True:
            deadline = self._client.settings.operation_timeout_seconds
            names = await self._client.retry(self._names.names, deadline_seconds=deadline)
            new = sorted(names - self.consumers.keys())
            await _in_groups(new, self._open)
            if not new or self.is_pattern:
                break
        self.are_all_open = True

    async def _open(self, topic: str) -> None:
        child = self._create(topic)
        await child.start()
        if self._is_closed:
            await child.close()
            return
        if self.is_pattern:
            child.read_new_topic_from_start()
        self.consumers[topic] = child
        if self.is_paused is not child.permits.is_paused:  # paused or resumed meanwhile
            (child.pause if self.is_paused else child.resume)()

    def start_following(self) -> None:
        if not self._is_closed:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await self._names.wait_for_change()
            with contextlib.suppress(ClientError):  # Retried with the next change, or after the interval.
                await self._update(await self._client.retry(self._names.names, deadline_seconds=None))

    async def _update(self, names: frozenset[str]) -> None:
        for topic in sorted(self.consumers.keys() - names):
            await self.consumers.pop(topic).close()
        self._listed_again |= names & self._opening.keys()
        for topic in sorted(names - self.consumers.keys() - self._opening.keys()):
            self._open_in_background(topic)

    def _open_in_background(self, topic: str) -> None:
        opening = asyncio.get_running_loop().create_task(self._open_if_possible(topic))
        self._opening[topic] = opening
        opening.add_done_callback(lambda _: self._opening_ended(topic))

    async def _open_if_possible(self, topic: str) -> None:
        async with self._free_slots:
            with contextlib.suppress(ClientError):
                await self._open(topic)

    def _opening_ended(self, topic: str) -> None:
        del self._opening[topic]
        is_listed_again = topic in self._listed_again
        self._listed_again.discard(topic)
        if is_listed_again and topic not in self.consumers:
            self._names.recheck()

    def handle_end(self, child: TopicConsumer) -> bool:
        """Handle the end of a topic's consumer. With a pattern, remove it: its topic is subscribed to again if still
        listed. Otherwise return False: the whole consumer has failed."""
        if self.is_pattern and self.consumers.get(child.topic) is child:
            del self.consumers[child.topic]
            self._names.recheck()
        return self.is_pattern

    async def stop_following(self) -> None:
        following, self._following = self._following, None
        tasks = [*([] if following is None else [following]), *self._opening.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        self._is_closed = True
        await self.stop_following()
        self._names.stop_watching()
        children = list(self.consumers.values())
        self.consumers.clear()
        await asyncio.gather(*[child.close() for child in children])


async def _in_groups(each: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Call `do` in groups of CONCURRENT_MAX; raise the first failure of a group once all its calls have ended."""
    items = list(each)
    for begin in range(0, len(items), CONCURRENT_MAX):
        group = [do(one) for one in items[begin : begin + CONCURRENT_MAX]]
        for outcome in await asyncio.gather(*group, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
