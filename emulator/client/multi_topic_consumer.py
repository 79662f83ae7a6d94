"""A consumer of several topics: partitions, a list, or all that match a pattern. One consumer per topic, one queue.

Each message names its topic, and its acknowledgement goes to that topic's consumer. Topics created while it is open are
subscribed to independently: one that is not available yet does not delay the others.
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

OPENED_AT_ONCE: Final = 32
"""Topics that are subscribed to before the first answer is there."""


class MultiTopicConsumer(Consumer):
    """Created by `Client.subscribe`."""

    def __init__(
        self, client: ConsumerClient, topic: str, config: ConsumerConfig, names: TopicSource
    ) -> None:
        """Raises ValueError for a receiver queue of size 0: no rule says which topic the next permit goes to."""
        if not config.receiver_queue_size:
            raise ValueError(
                f"{topic}: a consumer of several topics needs a receiver_queue_size of 1 or more"
            )
        super().__init__(client, topic, config, ReceiveQueue())
        self.consumers: dict[str, TopicConsumer] = {}
        """By topic, of a topic with partitions by partition."""
        self._names = names
        self._is_begun = False
        """Topics found from now on did not exist at the beginning."""
        self._paused = config.start_paused
        self._following: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool | None:
        told = [child.is_active for child in self.consumers.values() if child.is_active is not None]
        return any(told) if told else None

    # Opening.

    async def start(self) -> None:
        try:
            await self._open_all_there_are()
            self._check_usable()
        except BaseException:
            await self._close_all()
            raise
        self._is_begun = True
        self._go_on_following()

    async def _open_all_there_are(self) -> None:
        """Until there are no more: a partition that is added before partition 0 has the subscription does not get it
        from there (N4). Topics that come and go are subscribed to when they are noticed, from their beginning on."""
        while True:
            deadline = self.client.settings.operation_timeout_seconds
            names = await self.client.retry(self._names.names, deadline_seconds=deadline)
            new = sorted(names - self.consumers.keys())
            await self._all_of(new, self._open)
            if not new or self._names.come_and_go:
                return

    async def _open(self, topic: str) -> None:
        child = self._child(topic)
        await child.start()
        if self.closed:
            await child.close()
            return
        if self._names.come_and_go:
            child.read_new_topic_from_start()
        self.consumers[topic] = child
        if self._paused is not child.permits.is_paused:  # paused or resumed meanwhile
            (child.pause if self._paused else child.resume)()

    def _child(self, topic: str) -> TopicConsumer:
        return TopicConsumer(self.client, topic, self._config_now(), self._queue, self._child_ended)

    def _config_now(self) -> ConsumerConfig:
        """A topic that comes later is read from its first message on: all of it is newer than this one (INV-61)."""
        return replace(
            self.config,
            start_paused=self._paused,
            may_create=self.config.may_create and not self._names.come_and_go,
            initial_position=InitialPosition.EARLIEST if self._is_begun else self.config.initial_position,
        )

    # Topics that come and go.

    def _go_on_following(self) -> None:
        if not self.closed:
            self._following = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await self._names.changed()
            with contextlib.suppress(ClientError):  # Tried again with the next change, or after a while.
                await self._become(await self.client.retry(self._names.names, deadline_seconds=None))

    async def _become(self, names: frozenset[str]) -> None:
        for topic in sorted(self.consumers.keys() - names):
            await self.consumers.pop(topic).close()
        await self._all_of(sorted(names - self.consumers.keys()), self._open_if_possible)

    async def _open_if_possible(self, topic: str) -> None:
        with contextlib.suppress(ClientError):
            await self._open(topic)

    def _child_ended(self, child: TopicConsumer, error: ClientError) -> None:
        """Where topics come and go one that is gone is no misfortune: it is subscribed to again if it is listed."""
        if self._names.come_and_go:
            if self.consumers.get(child.topic) is child:
                del self.consumers[child.topic]
                self._names.look_again()
        elif self._fatal is None and not self.closed:
            self._fatal = ClientError(f"{child.topic}: {error}", definite=error.definite, code=error.code)
            self._queue.fail(self._fatal)

    # Acknowledging.

    async def acknowledge(
        self,
        *messages: Message | MessageId,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        by_child: dict[TopicConsumer, list[Message | MessageId]] = {}
        for message in messages:
            by_child.setdefault(self._child_of(message), []).append(message)
        for child, its in by_child.items():
            await child.acknowledge(*its, confirmed=confirmed, transaction=transaction)

    async def acknowledge_cumulative(
        self,
        message: Message | MessageId,
        *,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        child = self._child_of(message)
        await child.acknowledge_cumulative(message, confirmed=confirmed, transaction=transaction)

    def negative_acknowledge(self, *messages: Message) -> None:
        for message in messages:
            child = self.consumers.get(message.topic)
            if child is not None:  # Of a topic that is gone nothing is delivered again.
                child.negative_acknowledge(message)

    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        await self._child_of(message).reconsume_later(message, delay_seconds)

    def redeliver_unacknowledged(self) -> None:
        for child in self.consumers.values():
            child.redeliver_unacknowledged()

    def _child_of(self, message: Message | MessageId) -> TopicConsumer:
        """ClientError when it is not said whose it is, or that topic is gone."""
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

    # Permits.

    def pause(self) -> None:
        self._paused = True
        for child in self.consumers.values():
            child.pause()

    def resume(self) -> None:
        self._paused = False
        for child in self.consumers.values():
            child.resume()

    # Requests.

    async def seek(self, target: MessageId | int) -> None:
        self._check_usable()
        if isinstance(target, int) or target in (EARLIEST, LATEST):
            await self._all_of(self.consumers.values(), lambda child: child.seek(target))
        else:
            await self._child_of(target).seek(target)

    async def last_message_ids(self) -> dict[str, MessageId | None]:
        found: dict[str, MessageId | None] = {}

        async def ask(child: TopicConsumer) -> None:
            found.update(await child.last_message_ids())

        self._check_usable()
        await self._all_of(self.consumers.values(), ask)
        return found

    async def unsubscribe(self) -> None:
        """Where it cannot be deleted (others are attached) the consumer stays as it is, but for the topics where it
        could."""
        self._check_usable()
        await self._stop_following()
        try:
            await self._all_of(self.consumers.values(), lambda child: child.unsubscribe())
        except BaseException:
            self._go_on_following()
            raise
        await self.close()

    async def _all_of(self, each: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
        """A few at a time. The first failure counts; those that were begun with it are waited for."""
        waiting = list(each)
        for begin in range(0, len(waiting), OPENED_AT_ONCE):
            group = [do(one) for one in waiting[begin : begin + OPENED_AT_ONCE]]
            for outcome in await asyncio.gather(*group, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

    # Leaving.

    async def _stop_following(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])

    async def _close_all(self) -> None:
        await self._stop_following()
        self._names.end()
        children, self.consumers = list(self.consumers.values()), {}
        await asyncio.gather(*[child.close() for child in children])

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.client.forget_handle(self)
        self._queue.fail(ClientError("the consumer is closed", definite=True))
        await self._close_all()
