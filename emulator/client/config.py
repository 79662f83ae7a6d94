"""Settings of producers and consumers, as frozen values that `Client` builds and passes on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict

from emulator.client.encryption import Decryption, Encryption
from emulator.client.types import ConsumerType, InitialPosition, checked_priority
from emulator.model.values import AccessMode, Schema
from emulator.wire.payloads import Compression

PARTITION_SUFFIX: Final = re.compile(r"-partition-(\d{1,9})$")


@dataclass(frozen=True, slots=True)
class Batching:
    """Limits of a batch, which is sent as one entry once it reaches one of them."""

    messages_max: int = 1000
    bytes_max: int = 131_072
    delay_ms_max: float = 1.0


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Settings of a producer, shared by the producers of all partitions."""

    name: str | None = None
    """Producer name; None: the region generates one."""
    access_mode: AccessMode = AccessMode.SHARED
    priority: int = 0
    """Priority (int32) of a WAIT_FOR_EXCLUSIVE producer in the wait queue, highest first (PIP-440)."""
    initial_sequence_id: int | None = None
    """Sequence id that the first message follows; None: continue after the last one stored."""
    batching: Batching | None = None
    pending_messages_max: int = 1000
    """Maximum number of messages without a receipt."""
    schema: Schema | None = None
    """Schema that the region registers for the topic; payloads remain bytes."""
    compression: Compression = Compression.NONE
    """Compression of each entry."""
    chunking: bool = False
    """Send a message that is larger than an entry in several chunks, which consumers receive as one message."""
    initial_subscription: str | None = None
    """Subscription created together with a new topic, so that later subscribers lose no message."""
    encryption: Encryption | None = None

    def __post_init__(self) -> None:
        """ValueError for a priority that is no int32, a compression without its library, or batching with chunking."""
        checked_priority(self.priority)
        self.compression.check()
        if self.chunking and self.batching is not None:
            raise ValueError("batching and chunking cannot be combined")


class ProducerOptions(TypedDict, total=False):
    """The fields of a `ProducerConfig`."""

    name: str | None
    access_mode: AccessMode
    priority: int
    initial_sequence_id: int | None
    batching: Batching | None
    pending_messages_max: int
    schema: Schema | None
    compression: Compression
    chunking: bool
    initial_subscription: str | None
    encryption: Encryption | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letter policy of a SHARED or KEY_SHARED consumer."""

    redeliveries_max: int
    """Maximum number of redeliveries of a message before it becomes a dead letter."""
    topic: str | None = None
    """Dead letter topic; None: `<topic>-<subscription>-DLQ`."""
    initial_subscription: str | None = None
    """Subscription of the dead letter topic, created with its producer so that later subscribers lose no letter."""
    retries: bool = False
    """Allow `Consumer.reconsume_later`."""
    retry_topic: str | None = None
    """Retry topic, which the consumer subscribes to as well; None: `<topic>-<subscription>-RETRY`."""
    encryption: Encryption | None = None
    """Encryption of dead letters; None: they are sent unencrypted, as by other clients."""

    def __post_init__(self) -> None:
        """ValueError for a negative number of redeliveries."""
        if self.redeliveries_max < 0:
            raise ValueError(f"redeliveries_max is {self.redeliveries_max}; it must not be negative")

    def named_after(self, topic: str, subscription: str) -> DeadLetters:
        """Return the policy with the default names of its topics filled in."""
        base = f"{PARTITION_SUFFIX.sub('', topic)}-{subscription}"
        retry_topic = self.retry_topic or f"{base}-RETRY"
        return replace(
            self, topic=self.topic or f"{base}-DLQ", retry_topic=retry_topic if self.retries else None
        )


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Settings of a consumer or reader, shared by the consumers of all its topics."""

    subscription: str
    name: str
    type_: ConsumerType = ConsumerType.EXCLUSIVE
    initial_position: InitialPosition = InitialPosition.LATEST
    replicated: bool = False
    """Replicate the subscription's position to the other regions (PIP-33)."""
    priority_level: int = 0
    receiver_queue_size: int = 1000
    """Messages per topic requested ahead of `receive`; 0: each `receive` requests one (single topics only)."""
    schema: Schema | None = None
    """Schema that the consumer reads with; the region rejects an incompatible one."""
    read_compacted: bool = False
    """Receive only the newest message of each key from the compacted part of a topic."""
    start_paused: bool = False
    """Request no messages before `Consumer.resume`."""
    may_create: bool = True
    """Create a missing topic; False: the topic must exist."""
    key_ranges: Sequence[tuple[int, int]] = ()
    """Hash ranges (0 to 65,535) of a KEY_SHARED consumer; empty: the region divides them."""
    out_of_order: bool = False
    """KEY_SHARED: receive messages of a key before its former consumer has acknowledged earlier ones."""
    properties: Mapping[str, str] | None = None
    """Properties of the consumer."""
    subscription_properties: Mapping[str, str] | None = None
    """Properties of the subscription, if it is new."""
    negative_ack_delay_seconds: float = 0.0
    """Delay between a negative acknowledgement and the redelivery."""
    ack_timeout_seconds: float | None = None
    """Time after which an unacknowledged message is redelivered; None: no timeout."""
    dead_letters: DeadLetters | None = None
    decryption: Decryption = field(default_factory=Decryption)

    def __post_init__(self) -> None:
        """ValueError for settings that contradict each other or are out of range."""
        if self.dead_letters is not None and self.type_ not in (ConsumerType.SHARED, ConsumerType.KEY_SHARED):
            raise ValueError("dead letters need a SHARED or KEY_SHARED subscription")
        if self.negative_ack_delay_seconds < 0:
            raise ValueError("negative_ack_delay_seconds must not be negative")
        if self.ack_timeout_seconds is not None and self.ack_timeout_seconds <= 0:
            raise ValueError("ack_timeout_seconds must be more than 0")
        if self.receiver_queue_size < 0:
            raise ValueError(f"receiver_queue_size is {self.receiver_queue_size}; it must not be negative")


class ConsumerOptions(TypedDict, total=False):
    """The fields of a `ConsumerConfig`, except its names and decryption keys."""

    type_: ConsumerType
    initial_position: InitialPosition
    replicated: bool
    priority_level: int
    receiver_queue_size: int
    schema: Schema | None
    read_compacted: bool
    start_paused: bool
    may_create: bool
    key_ranges: Sequence[tuple[int, int]]
    out_of_order: bool
    properties: Mapping[str, str] | None
    subscription_properties: Mapping[str, str] | None
    negative_ack_delay_seconds: float
    ack_timeout_seconds: float | None
    dead_letters: DeadLetters | None
