"""The termination of a topic: nothing is published any more, for ever, and consumers read to the end.

terminate ─▶ producers disconnected ─▶ issued sends have their outcome ─▶ row durable ─▶ consumers notified
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from emulator.errors import GoneMeanwhile, ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import TerminatedKey
from emulator.model.values import Position

if TYPE_CHECKING:
    from emulator.broker.environment import RegionServices
    from emulator.broker.subscription.subscription import Subscription
    from emulator.broker.topic.exclusive_access import TopicAccess
    from emulator.broker.topic.producer import ConnectedProducer

logger = logging.getLogger(__name__)

TERMINATED: Final = ServerError.TopicTerminatedError


class EndingTopic(Protocol):
    """The topic, as this module needs it."""

    region: RegionServices
    full_name: str
    ledger_id: int
    closed: bool
    access: TopicAccess

    @property
    def producers(self) -> Mapping[str, ConnectedProducer]: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def last_position(self) -> Position: ...

    def flush(self) -> None: ...

    async def issued_so_far(self) -> None: ...

    def failed(self, failure: BaseException) -> None: ...


class Ending:
    """Owned by its topic."""

    def __init__(self, topic: EndingTopic) -> None:
        self._topic = topic
        self.is_over = topic.region.store.get(TerminatedKey(topic.full_name).text) is not None
        """Nothing more is published. Termination is final."""

    def refusal(self) -> ProtocolError:
        """The error that producers receive."""
        return ProtocolError(TERMINATED, f"topic {self._topic.full_name} was terminated")

    async def terminate(self) -> Position:
        """Terminate the topic and return its last position. Idempotent. StorageError when it may not be durable."""
        topic = self._topic
        self.is_over = True
        self._send_producers_away()
        topic.flush()
        await topic.issued_so_far()
        if topic.closed:
            raise GoneMeanwhile(f"{topic.full_name} was unloaded")
        key, last = TerminatedKey(topic.full_name).text, topic.last_position
        try:
            topic.region.store.get(key)  # after a failed put the store rejects the key until it is read (S5)
            await topic.region.store.put(key, str(last).encode())
        except StorageError as failure:
            topic.failed(failure)
            raise
        logger.info("%s: terminated at %s", topic.full_name, last)
        for subscription in list(topic.subscriptions.values()):
            subscription.tell_end()
        return last

    def _send_producers_away(self) -> None:
        """Disconnect waiting producers first, or one of them would be promoted."""
        topic = self._topic
        for waiting in list(topic.access.line):
            waiting.connection.producers.refused(waiting, self.refusal())
            topic.access.left(waiting, "the topic was terminated")
        for producer in list(topic.producers.values()):
            producer.connection.producers.close(producer)
