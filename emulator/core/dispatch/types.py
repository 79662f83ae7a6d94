"""Types of dispatch: what a strategy requests, what it is offered, what it decides."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from emulator.core.dispatch.delayed import LATEST_MS
from emulator.model.values import MessageChunk


class SubscriptionType(Enum):
    """Numbers are the protocol's."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


@dataclass(slots=True)
class DispatchLimits:
    """What bounds the strategies of a topic. It may change at any time; the caller then calls `next` again."""

    unacked_messages_per_consumer_max: int
    """SHARED: a consumer that holds as many gets nothing more."""
    failover_delay_ms: int
    """FAILOVER: how long a newly active consumer waits while the one before it is still connected."""
    unacked_messages_max: int = sys.maxsize
    """SHARED: limit of messages that all consumers together hold unacknowledged; at the limit dispatch stops."""
    delays: bool = True
    """SHARED: whether messages wait until they are due."""
    partition_index: int = -1
    """FAILOVER: which partition of a topic it is; -1: of none."""
    tick_ms: int = 1
    """SHARED: what is due within one tick goes out at its end."""

    def horizon_ms(self, wall_ms: int) -> int:
        """What is due by then goes out now."""
        return wall_ms // self.tick_ms * self.tick_ms if self.delays else LATEST_MS


class Read(NamedTuple):
    """Read the log from here, up to the given number of entries, then call `offer` with this and the entries found."""

    from_entry_id: int
    entries_max: int
    end_entry_id: int
    """Exclusive end of what was readable when this was decided. A read without a result proves that no entry lies
    in [from_entry_id, end_entry_id)."""
    token: object
    """Compared by identity. Only a read with the strategy's present token counts."""


class Wake(NamedTuple):
    """Nothing can be dispatched before this time, whatever is in the log: call `next` again then."""

    at_ms: int
    """On the clock of `now_ms` that `next` is given."""


class Candidate(Protocol):
    """What a strategy needs to know of an entry that was read."""

    @property
    def entry_id(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def hidden(self) -> bool:
        """A marker: never delivered."""
        ...

    @property
    def due_ms(self) -> int:
        """SHARED and KEY_SHARED: not to be delivered earlier, by the wall clock; 0: whenever."""
        ...

    @property
    def chunk(self) -> MessageChunk | None:
        """SHARED: None for a whole message. Computed when it is read."""
        ...

    @property
    def key_hash(self) -> int:
        """KEY_SHARED: the hash of its key, computed at the first access."""
        ...


class KeySharing(NamedTuple):
    """How a consumer wants to share keys; all of one subscription say the same, but for their ranges."""

    is_sticky: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    """STICKY: slots first..last, both included."""
    may_reorder: bool = False
    """A key may go to its new consumer before the old one has acknowledged what it holds of it."""


AUTO_SPLIT: Final = KeySharing()


class PendingEntries:
    """Entries one consumer was given and has not acknowledged: the one book of them (DI1)."""

    __slots__ = ("by_entry", "messages")

    def __init__(self) -> None:
        self.by_entry: dict[int, int] = {}
        """Entry id -> its messages that are not acknowledged, at least 1."""
        self.messages = 0
        """Invariant: the sum of `by_entry`."""

    def add(self, entry_id: int, messages: int) -> None:
        assert entry_id not in self.by_entry
        self.by_entry[entry_id] = messages
        self.messages += messages

    def take(self, entry_id: int) -> int | None:
        """Remove an entry and return its messages; None when it is not here."""
        messages = self.by_entry.pop(entry_id, None)
        if messages is not None:
            self.messages -= messages
        return messages

    def shrink(self, entry_id: int, messages: int) -> None:
        """Part of a pending entry was acknowledged: `messages` of it are left."""
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
    """Lower is served first."""
    permits: int = 0
    """Permits left; below zero after a batch that overdrew them."""
    blocked: bool = False
    """Its connection takes no more bytes for now."""
    pending: PendingEntries = field(default_factory=PendingEntries)
    """SHARED and KEY_SHARED only; empty for other types."""
    key_sharing: KeySharing = AUTO_SPLIT
    """KEY_SHARED only."""

    @property
    def can_receive(self) -> bool:
        return self.permits > 0 and not self.blocked

    @property
    def unacked_messages(self) -> int:
        """Messages it was given and has not acknowledged (SHARED)."""
        return self.pending.messages


def holder_of(entry_id: int, consumers: Iterable[ConsumerState]) -> ConsumerState | None:
    """Return the consumer that received an entry and has not acknowledged it."""
    return next((one for one in consumers if entry_id in one.pending.by_entry), None)


class Delivery(NamedTuple):
    """Send this entry to that consumer."""

    consumer: ConsumerState
    place: int
    """Index into the sequence given to `offer`."""
    redelivery_count: int
    ack_set: tuple[int, ...] | None
    """Batch indexes still unacknowledged (bits set), when some already are."""


def bits_set(words: tuple[int, ...]) -> int:
    """Messages an ack set leaves unacknowledged."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in words)
