"""The sync leader's access to the event topic: a producer and a failover consumer of an ordinary replicated topic,
inside the region. The topic's stats include the backlog of its subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

from emulator.broker.environment import RegionResources
from emulator.broker.incarnation import Incarnation
from emulator.broker.metadata_sync.settings import SUBSCRIPTION
from emulator.broker.subscription.consumer import ConnectedConsumer
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.pending_publish import CheckedEntry, Pending
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.directory import TopicDirectory
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.admission import ClientProducer, Publisher, check
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.core.metadata.messages import EVENT_CHARACTERS_MAX
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.wire.codec_hot.consuming import decode_message
from emulator.wire.command_types import CommandType
from emulator.wire.entry import plain_entry
from emulator.wire.frames import FrameBuffer
from emulator.wire.message_metadata import scan_entry

PERMITS = 50
"""Number of messages that may be dispatched before the sync leader acknowledges one."""
CHECK_SECONDS = 0.25
"""Seconds between two checks whether the topic is still loaded, while a publish waits for its receipt."""
RECEIPT_SECONDS = 5.0
"""Seconds to wait for the receipt of a publish."""


class ReceivedEvent(NamedTuple):
    """A message of the event topic."""

    entry_id: int
    region: str
    """The region in which the message was published; empty for this region."""
    payload: bytes


class EventTopicHost(Protocol):
    """The region, as this module needs it."""

    directory: TopicDirectory
    incarnation: Incarnation
    resources: RegionResources


class EventTopic:
    """A producer and optional consumer of the event topic, valid until `is_open` is False: the topic was unloaded, the
    consumer was closed, or a receipt is missing. Implements `Attachment` and `ConsumerConnection`."""

    address = "the region itself"
    client_version = "metadata-syncer"

    def __init__(self, host: EventTopicHost, topic: Topic, on_received: Callable[[], None]) -> None:
        self._topic = topic
        self._name = host.incarnation.new_producer_name()
        self.publisher: Publisher = ClientProducer(self._name, self.address)
        self._sequence = 0
        self._on_received = on_received
        self._frames = FrameBuffer(0x7FFFFFFF)
        self._consumer: ConnectedConsumer | None = None
        self._closed = False
        self._receipts: deque[asyncio.Future[None]] = deque()
        self.received: deque[ReceivedEvent] = deque()
        """Dispatched messages that the sync leader has not removed yet."""

    @classmethod
    async def open(cls, host: EventTopicHost, name: str, on_received: Callable[[], None]) -> EventTopic:
        """Load the event topic, and subscribe. ProtocolError or StorageError when it cannot be loaded now."""
        topic = await host.directory.acquire(name, OpenMode.CREATE_BY_COMMAND)
        channel = cls(host, topic, on_received)
        await channel._subscribe()
        return channel

    @classmethod
    async def open_to_publish(cls, host: EventTopicHost, name: str) -> EventTopic:
        """Load the event topic without a consumer, to publish only. ProtocolError or StorageError."""
        return cls(host, await host.directory.acquire(name, OpenMode.CREATE_BY_COMMAND), lambda: None)

    async def _subscribe(self) -> None:
        topic = self._topic
        subscription = topic.subscriptions.get(SUBSCRIPTION)
        if subscription is None:
            cursor = topic.region.environment.components.subscriptions.cursor(
                topic.reading.first_entry_id - 1
            )
            subscription = topic.subscriptions.create(SUBSCRIPTION, cursor)
        await subscription.persisted()
        if topic.closed or subscription.closed:
            raise ProtocolError(ServerError.ServiceNotReady, f"{topic.full_name} is being loaded again")
        self._consumer = ConnectedConsumer(self, 0, subscription, ConsumerState(self._name), None)
        subscription.attach(self._consumer, SubscriptionType.FAILOVER)
        subscription.flow(self._consumer, PERMITS)

    @property
    def is_open(self) -> bool:
        return not self._closed and not self._topic.closed

    @property
    def event_characters_max(self) -> int:
        """Maximum number of characters of one message."""
        return min(EVENT_CHARACTERS_MAX, self._topic.publishing.limits.payload_bytes // 2)

    @property
    def backlog(self) -> int:
        """Number of entries that the sync leader has not acknowledged; 0 while the topic is not loaded."""
        return 0 if self._subscription is None else self._subscription.backlog()

    @property
    def _subscription(self) -> Subscription | None:
        return None if self._topic.closed else self._topic.subscriptions.get(SUBSCRIPTION)

    # Publishing.

    async def publish(self, payloads: Sequence[bytes]) -> None:
        """Publish messages, which are durable in this region on return. StorageError if their outcome is unknown; then
        this object is closed. ProtocolError for a rejected message; earlier ones may be published."""
        last: asyncio.Future[None] | None = None
        for payload in payloads:
            self._admit(payload)
            last = asyncio.get_running_loop().create_future()
            self._receipts.append(last)
        self._topic.flush()
        if last is not None:
            await self._wait_for_receipt(last)

    def _admit(self, payload: bytes) -> None:
        topic = self._topic
        data = plain_entry(self._name, self._sequence, topic.region.environment.wall_clock_ms(), payload)
        info = scan_entry(data)
        refusal = check(self.publisher, info, None, len(data), topic.publishing.limits)
        if refusal is not None:
            raise ProtocolError(refusal.code, refusal.sentence)
        self._sequence += 1
        topic.publish(self, None, data, cast(CheckedEntry, info), None)

    async def _wait_for_receipt(self, last: asyncio.Future[None]) -> None:
        """Wait for the receipt of the last message. StorageError after RECEIPT_SECONDS, or when the topic is closed."""
        for _ in range(round(RECEIPT_SECONDS / CHECK_SECONDS)):
            if last.done():
                return
            if not self.is_open:
                break
            await asyncio.wait([last], timeout=CHECK_SECONDS)
        if not last.done():
            self.close()
            raise StorageError(f"{self._topic.full_name} did not acknowledge the event", definite=False)

    def stored(self, publishes: Sequence[Pending]) -> None:
        """Receive the receipts of publishes, in their order."""
        for _ in publishes:
            receipt = self._receipts.popleft()
            if not receipt.done():
                receipt.set_result(None)

    # Consuming.

    def write(self, data: bytes) -> None:
        """Decode the frames for the consumer, and add the messages in them to `received`."""
        for type_, command, entry in self._frames.feed(data):
            if type_ == CommandType.MESSAGE:
                info = scan_entry(entry)
                region = info.replicated_from or ""
                payload = b"" if info.is_batch else bytes(entry[info.payload_offset :])
                self.received.append(ReceivedEvent(decode_message(command).entry, region, payload))
        self._on_received()

    def acknowledge(self, messages: Sequence[ReceivedEvent]) -> None:
        """Acknowledge messages that were applied durably, cumulatively up to the last one, and grant new permits."""
        subscription, consumer = self._subscription, self._consumer
        if subscription is None or consumer is None or not messages:
            return
        last = (self._topic.ledger_id, messages[-1].entry_id, None)
        subscription.acknowledge(consumer, [last], cumulative=True)
        subscription.flow(consumer, len(messages))

    def close(self) -> None:
        """Detach the consumer; its unacknowledged messages are redelivered to the next one."""
        self._closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.subscription.detach(consumer)
        self.received.clear()

    # Further methods of `Attachment` and `ConsumerConnection`.

    @property
    def read_ms(self) -> int:
        return self._topic.region.environment.wall_clock_ms()

    def answer(self, data: bytes) -> None:
        """Do nothing: the responses to a consumer have no meaning for the sync leader."""

    def close_consumer(self, consumer: ConnectedConsumer) -> None:
        self.close()

    def forget_consumer(self, consumer: ConnectedConsumer) -> None:
        self.close()

    async def is_alive(self) -> bool:
        return True

    def abort(self) -> None:
        self.close()
