"""Types of dispatch: a strategy's reads and wake-ups, its candidates, consumers and deliveries."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from emulator.core.dispatch.delayed import LATEST_MS
from emulator.model.values import MessageChunk


class SubscriptionType(Enum):
    """Type of a subscription; numbers are the protocol's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


@dataclass(slots=True)
class DispatchLimits:
    """Limits of the strategies of a topic. They may change at any time; the caller then calls `next` again.

    SHARED here includes KEY_SHARED."""

    unacked_messages_per_consumer_max: int
    """SHARED: maximum number of unacknowledged messages per consumer; at the maximum it receives no more."""
    failover_delay_ms: int
    """FAILOVER: time that dispatch pauses when the active consumer changes and the previous one is still connected."""
    unacked_messages_max: int = sys.maxsize
    """SHARED: maximum number of unacknowledged messages of all consumers together; at the maximum dispatch pauses."""
    delays: bool = True
    """SHARED: whether messages wait until they are due."""
    partition_index: int = -1
    """FAILOVER: index of the partition; -1: the topic is no partition."""
    tick_ms: int = 1
    """SHARED: messages that become due within one tick are dispatched at its end."""

    def horizon_ms(self, wall_ms: int) -> int:
        """Return the latest delivery time of messages that are dispatched now."""
        return wall_ms // self.tick_ms * self.tick_ms if self.delays else LATEST_MS

    def may_serve(self, consumer: ConsumerState) -> bool:
        """Whether a consumer of SHARED can receive messages now."""
        return consumer.can_receive and consumer.pending.messages < self.unacked_messages_per_consumer_max


class Read(NamedTuple):
    """A request to read up to `entries_max` entries. The caller then calls `offer` with the read and the entries."""

    from_entry_id: int
    entries_max: int
    end_entry_id: int
    """Exclusive end of the readable entries at the time of the request. A read without a result proves that no entry
    exists in [from_entry_id, end_entry_id)."""
    token: object
    """Token of the strategy at the time of the request, compared by identity. A read with another token is obsolete."""


class Wake(NamedTuple):
    """A request to call `next` again at a time before which nothing can be dispatched, whatever is in the log."""

    at_ms: int
    """The time, on the clock of `now_ms` of `next`."""


class Candidate(Protocol):
    """An entry that was read, with the fields that a strategy needs."""

    @property
    def entry_id(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def hidden(self) -> bool:
        """Whether no consumer ever receives the entry, such as a marker."""
        ...

    @property
    def due_ms(self) -> int:
        """SHARED and KEY_SHARED: earliest time of delivery, by the wall clock; 0: at once."""
        ...

    @property
    def chunk(self) -> MessageChunk | None:
        """SHARED: the chunk; None for a whole message. Computed at each access."""
        ...

    @property
    def key_hash(self) -> int:
        """KEY_SHARED: the hash of the entry's key, computed at the first access."""
        ...


class KeySharing(NamedTuple):
    """A consumer's mode of KEY_SHARED. All consumers of a subscription must have the same mode, except for ranges."""

    is_sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    """STICKY: slots first..last, both included."""
    may_reorder: bool = False
    """Whether a slot's messages may go to its new owner while the former one has unacknowledged ones."""


AUTO_SPLIT: Final = KeySharing()


class PendingEntries:
    """The entries that one consumer received and has not acknowledged (DI1)."""

    __slots__ = ("by_entry", "messages")

    def __init__(self) -> None:
        self.by_entry: dict[int, int] = {}
        """Entry id -> number of its unacknowledged messages, at least 1."""
        self.messages = 0
        """Invariant: the sum of `by_entry`."""

    def add(self, entry_id: int, messages: int) -> None:
        assert entry_id not in self.by_entry
        self.by_entry[entry_id] = messages
        self.messages += messages

    def remove(self, entry_id: int) -> int | None:
        """Remove an entry and return its number of unacknowledged messages; None when it is not pending."""
        messages = self.by_entry.pop(entry_id, None)
        if messages is not None:
            self.messages -= messages
        return messages

    def shrink(self, entry_id: int, messages: int) -> None:
        """Set the number of unacknowledged messages of a pending entry to `messages`."""
        self.messages += messages - self.by_entry[entry_id]
        self.by_entry[entry_id] = messages

    def clear(self) -> None:
        self.by_entry.clear()
        self.messages = 0


@dataclass(slots=True, eq=False)
class ConsumerState:
    """One connected consumer."""

    name: str
    priority: int = 0
    """Priority; consumers with the lowest number are served first."""
    permits: int = 0
    """Permits left; below zero after a batch that overdrew them."""
    blocked: bool = False
    """Whether the send buffer of its connection is full."""
    pending: PendingEntries = field(default_factory=PendingEntries)
    """Unacknowledged entries (SHARED and KEY_SHARED); empty for other types."""
    key_sharing: KeySharing = AUTO_SPLIT
    """Mode of KEY_SHARED; unused for other types."""

    @property
    def can_receive(self) -> bool:
        return self.permits > 0 and not self.blocked

    @property
    def unacked_messages(self) -> int:
        """Number of messages that it received and has not acknowledged (SHARED and KEY_SHARED)."""
        return self.pending.messages


def holder_of(entry_id: int, consumers: Iterable[ConsumerState]) -> ConsumerState | None:
    """Return the consumer at which an entry is pending; None: no consumer."""
    return next((one for one in consumers if entry_id in one.pending.by_entry), None)


class Delivery(NamedTuple):
    """A decision to send an entry to a consumer."""

    consumer: ConsumerState
    candidate_index: int
    """Index of the entry in the candidates of `offer`."""
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    """The unacknowledged messages of a partly acknowledged batch (bits set); None: the whole entry."""


def count_unacked(words: tuple[int, ...]) -> int:
    """Return the number of unacknowledged messages in an ack set."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in words)
