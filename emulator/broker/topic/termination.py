"""Terminates a topic: publishing ends permanently, and consumers read up to the last message.

terminate ─▶ producers disconnected ─▶ issued sends durable or failed ─▶ row durable ─▶ consumers notified
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from emulator.errors import GoneMeanwhile, ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import TerminatedKey
from emulator.model.values import Position

if TYPE_CHECKING:
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.exclusive_access import TopicAccess
    from emulator.broker.topic.publishing import TopicPublishing
    from emulator.broker.topic.view import PublishingTopic

logger = logging.getLogger(__name__)

TERMINATED: Final = ServerError.TopicTerminatedError


class TopicTermination:
    """Termination of one topic, which owns this object."""

    def __init__(
        self,
        topic: PublishingTopic,
        access: TopicAccess,
        publishing: TopicPublishing,
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        self._topic = topic
        self._access = access
        self._publishing = publishing
        self._subscriptions = subscriptions
        self.is_terminated = not topic.is_new and _is_stored(topic)
        """Whether the topic was terminated. Termination is final."""
        self._writing: asyncio.Future[int] | None = None
        """The newest write of the termination."""

    def refusal(self) -> ProtocolError:
        """Return the error that producers of a terminated topic receive."""
        return ProtocolError(TERMINATED, f"topic {self._topic.full_name} was terminated")

    async def terminate(self) -> Position:
        """Terminate the topic and return the position of its last durable entry: the messages of an open transaction
        may still become readable. May be repeated. StorageError when the termination may not be durable, because a
        write failed or the topic was unloaded."""
        topic = self._topic
        self.is_terminated = True
        self._disconnect_producers()
        topic.flush()
        await topic.issued_so_far()
        if topic.closed:
            raise GoneMeanwhile(f"{topic.full_name} was unloaded")
        key, last = TerminatedKey(topic.full_name).text, topic.reading.last_stored_position
        try:
            topic.region.store.get(key)  # after a failed put the store rejects the key until it is read (S5)
            self._writing = topic.region.store.put(key, str(last).encode())
            await asyncio.shield(self._writing)
        except StorageError as failure:
            topic.failed(failure)
            raise
        logger.info("%s: terminated at %s", topic.full_name, last)
        for subscription in list(self._subscriptions.values()):
            subscription.notify_end_of_topic()
        return last

    async def settled(self) -> None:
        """After `Topic.close`: wait until no write is pending, which a deletion of the topic would miss."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _disconnect_producers(self) -> None:
        """Disconnect all producers, waiting ones first: otherwise one of them would be promoted."""
        for waiting in list(self._access.waiting):
            waiting.connection.producers.refused(waiting, self.refusal())
            self._access.left(waiting, "the topic was terminated")
        for producer in list(self._publishing.producers.values()):
            producer.connection.producers.close(producer)


def _is_stored(topic: PublishingTopic) -> bool:
    return topic.region.store.get(TerminatedKey.text_of(topic.full_name)) is not None
