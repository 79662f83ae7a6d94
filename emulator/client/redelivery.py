"""What becomes of messages that the application has taken: settled, given back, overdue, dead.

given back          they come again, at once or after a while
overdue             nobody said anything of them within the acknowledgement time-out: as if they were given back
dead                they came as often as they may and are given back once more: a letter each (`dead_letters.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.client.ack_timeouts import Overdue
from emulator.client.dead_letters import Letters
from emulator.client.messages import Message, id_of
from emulator.client.types import MessageId

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.consumer import ConsumerWish


class GivenBackTo(Protocol):
    """A consumer of one topic."""

    @property
    def client(self) -> Client: ...

    @property
    def topic(self) -> str: ...

    @property
    def wish(self) -> ConsumerWish: ...

    async def acknowledge(self, *messages: Message | MessageId) -> None: ...

    def redeliver(self, messages: Sequence[Message]) -> None:
        """Have these delivered again, all pieces of each."""
        ...


class GivingBack:
    """Of one consumer of one topic."""

    def __init__(self, consumer: GivenBackTo) -> None:
        wish = consumer.wish
        self._consumer = consumer
        self._policy = wish.dead_letters
        self._after_a_while = Overdue(wish.negative_ack_delay_seconds, self._redeliver_or_bury)
        self._delays = wish.negative_ack_delay_seconds > 0
        timeout = wish.ack_timeout_seconds
        self._unsettled = None if timeout is None else Overdue(timeout, self._redeliver_or_bury)
        self._letters = None if wish.dead_letters is None else Letters(consumer, wish.dead_letters)

    def taken(self, message: Message) -> None:
        if self._unsettled is not None:
            self._unsettled.add(message)

    def settled(self, messages: Iterable[Message | MessageId]) -> None:
        """Something is said of them."""
        if self._unsettled is not None:
            for message in messages:
                self._unsettled.remove(id_of(message))

    def settled_upto(self, id_: MessageId) -> None:
        if self._unsettled is not None:
            self._unsettled.remove_upto(id_)

    def give_back(self, messages: Sequence[Message]) -> None:
        self.settled(messages)
        if not self._delays:
            self._redeliver_or_bury(messages)
            return
        for message in messages:
            self._after_a_while.add(message)

    def buries(self, message: Message) -> bool:
        """It came once more than it may, because whoever had it died with it: the application is spared."""
        if self._letters is None or self._policy is None:
            return False
        if message.redelivery_count <= self._policy.redeliveries_max:
            return False
        self._letters.bury(message)
        return True

    async def put_off(self, message: Message, delay_seconds: float) -> None:
        """ClientError; ValueError without retries."""
        if self._letters is None or self._policy is None or not self._policy.retries:
            raise ValueError("reconsume_later needs a consumer with DeadLetters(retries=True)")
        if delay_seconds < 0:
            raise ValueError("delay_seconds must not be negative")
        self.settled([message])
        await self._letters.put_off(message, delay_seconds)

    def _redeliver_or_bury(self, messages: Sequence[Message]) -> None:
        again = []
        for message in messages:
            if self._letters is not None and self._policy is not None and self._policy.is_dead(message):
                self._letters.bury(message)
            else:
                again.append(message)
        if again:
            self._consumer.redeliver(again)

    def clear(self) -> None:
        """Everything that is not acknowledged comes again by itself."""
        self._after_a_while.clear()
        if self._unsettled is not None:
            self._unsettled.clear()

    async def close(self) -> None:
        self.clear()
        if self._letters is not None:
            await self._letters.close()
