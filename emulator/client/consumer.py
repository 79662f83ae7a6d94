"""What receives messages and acknowledges them, of one topic or of several."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.client.dead_letters import DeadLetters
from emulator.client.encryption import Decryption
from emulator.client.inbox import Inbox
from emulator.client.messages import Message
from emulator.client.types import ClientError, ConsumerType, InitialPosition, MessageId
from emulator.model.values import Schema

if TYPE_CHECKING:
    from emulator.client.client import Client
    from emulator.client.transactions import Transaction


@dataclass(frozen=True, slots=True)
class ConsumerWish:
    """What `Client.subscribe` is asked for; the same for each topic."""

    subscription: str
    name: str
    type_: ConsumerType = ConsumerType.EXCLUSIVE
    initial_position: InitialPosition = InitialPosition.LATEST
    replicated: bool = False
    priority_level: int = 0
    receiver_queue_size: int = 1000
    schema: Schema | None = None
    read_compacted: bool = False
    start_paused: bool = False
    may_create: bool = True
    key_ranges: Sequence[tuple[int, int]] = ()
    out_of_order: bool = False
    properties: Mapping[str, str] | None = None
    subscription_properties: Mapping[str, str] | None = None
    negative_ack_delay_seconds: float = 0.0
    ack_timeout_seconds: float | None = None
    dead_letters: DeadLetters | None = None
    decryption: Decryption = field(default_factory=Decryption)

    def __post_init__(self) -> None:
        """ValueError for what cannot be wished."""
        if self.dead_letters is not None and self.type_ not in (ConsumerType.SHARED, ConsumerType.KEY_SHARED):
            raise ValueError("dead letters need a SHARED or KEY_SHARED subscription")
        if self.negative_ack_delay_seconds < 0:
            raise ValueError("negative_ack_delay_seconds must not be negative")
        if self.ack_timeout_seconds is not None and self.ack_timeout_seconds <= 0:
            raise ValueError("ack_timeout_seconds must be more than 0")
        if self.receiver_queue_size < 0:
            raise ValueError(f"receiver_queue_size is {self.receiver_queue_size}; it must not be negative")


class Consumer(ABC):
    """Made by `Client.subscribe`: a `TopicConsumer`, or a `MultiTopicConsumer` for partitions, lists and patterns."""

    def __init__(self, client: Client, topic: str, wish: ConsumerWish, inbox: Inbox) -> None:
        self.client = client
        self.topic = topic
        """As it was asked for: of several topics their names, or the pattern."""
        self.wish = wish
        self.closed = False
        self._inbox = inbox
        self._fatal: ClientError | None = None

    @property
    def name(self) -> str:
        """Other consumers and people know it by this one."""
        return self.wish.name

    @property
    def subscription(self) -> str:
        return self.wish.subscription

    @property
    def type(self) -> ConsumerType:
        return self.wish.type_

    @property
    def waiting(self) -> list[Message]:
        """Messages that are here and that nobody has taken yet, in their order."""
        return self._inbox.messages

    @property
    @abstractmethod
    def is_active(self) -> bool | None:
        """FAILOVER: whether this is the active consumer, as far as the region has told; None: it has not. Of several
        topics: whether it is active for one of them."""

    @abstractmethod
    async def start(self) -> None:
        """Called by the client."""

    async def receive(self) -> Message:
        """The next message. ClientError once the consumer is closed or cannot come back."""
        if self._inbox.is_empty:
            self._check_usable()
        return await self._inbox.take()

    async def receive_batch(
        self, messages_max: int = 100, *, bytes_max: int = 10_485_760, timeout_seconds: float = 0.1
    ) -> list[Message]:
        """What comes until there are so many messages or bytes, or the time is over; nothing, if nothing came.
        ClientError as `receive`, if nothing had come before. ValueError when nothing ever could."""
        if messages_max < 1 or bytes_max < 1:
            raise ValueError("a batch has at least one message, and one byte")
        came: list[Message] = []
        came_bytes = 0
        try:
            async with asyncio.timeout(timeout_seconds):
                while len(came) < messages_max and came_bytes < bytes_max:
                    came.append(await self.receive())
                    came_bytes += len(came[-1].payload)
        except TimeoutError:
            return came
        except ClientError:
            if not came:
                raise
        return came

    @abstractmethod
    async def acknowledge(
        self,
        *messages: Message | MessageId,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Done with these. `confirmed`: return only when the broker has made it durable. In a transaction they are done
        once that commits, and it is always confirmed; ClientError TransactionConflict when another has them,
        ExpiredTransaction when it was fenced. Of several topics ids are not enough: ClientError; of one with partitions
        they are."""

    @abstractmethod
    async def acknowledge_cumulative(
        self,
        message: Message | MessageId,
        *,
        confirmed: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Done with everything up to and including this one, in its topic or partition. In a transaction as
        `acknowledge`."""

    @abstractmethod
    def negative_acknowledge(self, *messages: Message) -> None:
        """Have these delivered again (SHARED), or everything that is not acknowledged (other types); after the
        `negative_ack_delay_seconds` that were asked for. One that has come as often as it may is a dead letter."""

    @abstractmethod
    async def reconsume_later(self, message: Message, delay_seconds: float) -> None:
        """Put it off: it comes again by the retry topic after so long; put off too often, it is a dead letter.
        ClientError; ValueError for a consumer without retries."""

    @abstractmethod
    def redeliver_unacknowledged(self) -> None:
        """Have everything that is not acknowledged delivered again. What was not taken is thrown away."""

    @abstractmethod
    def pause(self) -> None:
        """Ask for no more messages; what was asked for before may still come."""

    @abstractmethod
    def resume(self) -> None:
        """Ask for messages again. Harmless when it was not paused."""

    @abstractmethod
    async def seek(self, target: MessageId | int) -> None:
        """Go on at a message id, or at the first message published at or after a time (ms). The broker drops the
        connection to the subscription; the consumer is back when this returns. Several topics can go to EARLIEST, to
        LATEST or to a time; an id of a partition moves that partition alone. ClientError for any other id."""

    @abstractmethod
    async def last_message_ids(self) -> dict[str, MessageId | None]:
        """By topic, of the newest message there; None when there is none."""

    async def last_message_id(self) -> MessageId | None:
        """Of the newest message; None when there is none. ClientError when there are several topics."""
        ids = await self.last_message_ids()
        if len(ids) != 1:
            raise ClientError(f"{self.topic} has {len(ids)} topics: use last_message_ids", definite=True)
        return next(iter(ids.values()))

    @abstractmethod
    async def unsubscribe(self) -> None:
        """Delete the subscription, and close."""

    @abstractmethod
    async def close(self) -> None:
        """Leave; the subscription stays. Harmless when called twice."""

    def _check_usable(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ClientError("the consumer is closed", definite=True)
