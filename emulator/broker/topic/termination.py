"""The end of a topic that somebody terminated: nothing is published any more, for ever, and consumers read to the end.

terminate ─▶ producers sent away ─▶ what was issued has its outcome ─▶ row durable ─▶ consumers told
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
    """The topic, as its end sees it."""

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
    """Of one topic."""

    def __init__(self, topic: EndingTopic) -> None:
        self._topic = topic
        self.is_over = topic.region.store.get(TerminatedKey(topic.full_name).text) is not None
        """Nothing more is published. Never taken back."""

    def refusal(self) -> ProtocolError:
        """What a producer is told."""
        return ProtocolError(TERMINATED, f"topic {self._topic.full_name} was terminated")

    async def terminate(self) -> Position:
        """Gives the last position. Doing it again is harmless. StorageError when it may not be durable."""
        topic = self._topic
        self.is_over = True
        self._send_producers_away()
        topic.flush()
        await topic.issued_so_far()
        if topic.closed:
            raise GoneMeanwhile(f"{topic.full_name} was unloaded")
        key, last = TerminatedKey(topic.full_name).text, topic.last_position
        try:
            topic.region.store.get(key)  # a key whose last put failed is refused until somebody looked (S5)
            await topic.region.store.put(key, str(last).encode())
        except StorageError as failure:
            topic.failed(failure)
            raise
        logger.info("%s: terminated at %s", topic.full_name, last)
        for subscription in list(topic.subscriptions.values()):
            subscription.tell_end()
        return last

    def _send_producers_away(self) -> None:
        """Those that wait first, or one of them would be promoted."""
        topic = self._topic
        for waiting in list(topic.access.line):
            waiting.connection.producers.refused(waiting, self.refusal())
            topic.access.left(waiting, "the topic was terminated")
        for producer in list(topic.producers.values()):
            producer.connection.producers.close(producer)
