"""The base of all dispatch strategies: read position, outdated reads, gaps in the log, and why messages wait.

             everything acknowledged     acknowledged, pending or waiting (DI1)        unread
────────────────────────────────────────┤─────────────────────────────────────────────├──────────▶ log
                                mark-delete                                        read end
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.dispatch.types import Candidate, ConsumerState, Delivery, DispatchLimits, Read, Wake
from emulator.model.reasons import Cause, Reason, ReasonRow

ENTRIES_PER_READ_MAX = 500


class DispatchStrategy(ABC):
    """Base of the strategies that decide which consumer receives which entry. Owned by a Dispatcher."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        self.cursor = cursor
        self.limits = limits
        self.consumers: list[ConsumerState] = []
        """Connected consumers, in order of arrival."""
        self.active: ConsumerState | None = None
        """The only consumer that receives messages (EXCLUSIVE, FAILOVER); None for the other types."""
        self._read_end = cursor.mark_delete + 1
        self._token = object()

    @property
    def draining(self) -> Mapping[ConsumerState, int]:
        """KEY_SHARED: consumer -> number of slots that moved to another consumer and wait for its acknowledgements."""
        return {}

    @property
    def read_entry_id(self) -> int:
        """Smallest id that is unread: neither offered nor below mark-delete. A cumulative acknowledgement or an update
        of another region may move mark-delete past the read end."""
        return max(self._read_end, self.cursor.mark_delete + 1)

    # Reads and deliveries. `next` changes nothing (DI2).

    @abstractmethod
    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        """Return what the dispatch loop must do now: read entries, or wait until a time; None: nothing.
        `end_entry_id`: exclusive end of the readable entries. `now_ms`: monotonic time. `wall_ms`: wall-clock time, to
        which delays of clients refer."""

    def offer(self, read: Read, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        """Decide about the result of `read`: all entries from its start on, in log order. Returns the deliveries; none
        if the read is obsolete. Entries that cannot be dispatched are delayed, set aside, or stay as they are."""
        if self.is_obsolete(read):
            return []
        self._ack_gap(read.from_entry_id, candidates[0].entry_id if candidates else read.end_entry_id)
        return self._dispatch(candidates, wall_ms)

    def is_obsolete(self, read: Read) -> bool:
        """Whether a later event made the read obsolete."""
        return read.token is not self._token

    @abstractmethod
    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        """Yield the messages that are neither dispatched nor delayed. `unread`: number of messages never offered."""

    @abstractmethod
    def why_delayed(self, now_ms: int, wall_ms: int) -> Reason:
        """Return why dispatch waits until a known time; NO_REASON when it does not."""

    @abstractmethod
    def _dispatch(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]: ...

    def _read_new(self, end_entry_id: int, entries_max: int) -> Read | None:
        """Return a read of the next entries that were never offered. Skips acknowledged entries."""
        from_entry_id = self.cursor.next_unacked(self.read_entry_id)
        if from_entry_id >= end_entry_id:
            return None
        return Read(from_entry_id, min(entries_max, ENTRIES_PER_READ_MAX), end_entry_id, self._token)

    def _read_of(self, ids: IdSet, end_entry_id: int, permits: int) -> Read:
        """Return a read from the first of these ids to the last one within its limit of entries."""
        first = ids.first
        last = ids.last_before(first + min(permits, ENTRIES_PER_READ_MAX))
        return Read(first, last - first + 1, end_entry_id, self._token)

    def _ack_gap(self, from_entry_id: int, entry_id: int) -> None:
        """Acknowledge [from_entry_id, entry_id): entries that were trimmed or never existed (storage promise S3)."""
        if entry_id > from_entry_id:
            self.cursor.ack_range(from_entry_id, entry_id - 1)

    def _advance_read_end(self, entry_id: int) -> None:
        """Move the read end past an offered entry and acknowledge the ids before it that do not exist (S3)."""
        if entry_id > self._read_end:
            self.cursor.ack_range(self._read_end, entry_id - 1)
        self._read_end = entry_id + 1

    # Events. They change state and nothing else.

    def joined(self, consumer: ConsumerState, now_ms: int) -> None:
        self.consumers.append(consumer)

    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        """Remove a disconnected consumer. Its unacknowledged entries are redelivered to other consumers."""
        self.consumers.remove(consumer)

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        """Add `permits` to the consumer's permits."""
        consumer.permits += permits

    def blocked(self, consumer: ConsumerState, *, blocked: bool) -> None:
        """Note whether the send buffer of the consumer's connection is full."""
        consumer.blocked = blocked

    @abstractmethod
    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        """Note that this consumer acknowledged an entry or messages of it, after the cursor has recorded it.
        `messages_left`: number of messages of the entry that remain unacknowledged."""

    def acked_run(self, consumer: ConsumerState, first: int, last: int) -> None:
        """Note that this consumer acknowledged the whole entries first..last, both included, as `acked` does one by
        one."""
        for entry_id in range(first, last + 1):
            self.acked(consumer, entry_id)

    @abstractmethod
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        """Redeliver these entries of the consumer (None: all that it holds), as it requested."""

    @abstractmethod
    def released(self, entry_ids: Sequence[int]) -> None:
        """Redeliver the entries that an aborted transaction had acknowledged."""

    @abstractmethod
    def moved(self) -> None:
        """Note that a cumulative acknowledgement or an update of another region moved the cursor forward."""

    def rewound(self) -> None:
        """Continue from the first unacknowledged entry, for example after a seek. Makes pending reads obsolete; all
        unacknowledged entries are dispatched again."""
        self._read_end = self.cursor.mark_delete + 1
        self._token = object()

    def batch_size(self, consumer: ConsumerState, entry_id: int) -> int | None:
        """Return the number of messages of a dispatched entry of which none is acknowledged; None: it is unknown."""
        return None


# Why messages wait (emulator.model.reasons).


class WaitingMessages(NamedTuple):
    """Undispatched messages that wait for the same event. A batch counts as one message."""

    number: int
    consumer: ConsumerState | None = None
    """The only consumer that may receive the messages; None: any."""
    holder: ConsumerState | None = None
    """The consumer that must acknowledge earlier messages of their keys first."""
    has_no_consumer: bool = False
    """Whether no consumer owns the slots of their keys."""


def count_text(count: int) -> str:
    """Return a number of messages as text, such as `1 message`."""
    return f"{count:,} message{'' if count == 1 else 's'}"


def reasons_of(
    groups: Iterable[WaitingMessages],
    consumers: Sequence[ConsumerState],
    limits: DispatchLimits,
    unacked_by_active: int | None,
) -> Iterator[Reason]:
    """Yield the reasons why these messages wait. `unacked_by_active`: number of unacknowledged messages of the active
    consumer, for strategies that do not count them."""
    for group in groups:
        if group.has_no_consumer:
            yield Cause.NO_OWNER_OF_KEYS(count=count_text(group.number))
        elif group.holder is not None:
            yield Cause.KEY_MOVED(count=count_text(group.number), consumer=group.holder.name)
        elif group.consumer is not None:
            yield from _reasons_against(
                group.consumer, group.number, limits, unacked_by_active, Cause.WAITS_FOR_CONSUMER
            )
        else:
            yield from _reasons_against_all(consumers, group.number, limits)


def _reasons_against_all(
    consumers: Sequence[ConsumerState], count: int, limits: DispatchLimits
) -> list[Reason]:
    """Return a reason for each consumer; an empty list when a consumer can receive messages."""
    cause = Cause.WAITS_FOR_PERMITS if len(consumers) > 1 else Cause.WAITS_FOR_CONSUMER
    found = [list(_reasons_against(one, count, limits, None, cause)) for one in consumers]
    return [reason for reasons in found for reason in reasons] if all(found) else []


def _reasons_against(
    consumer: ConsumerState,
    count: int,
    limits: DispatchLimits,
    unacked_by_active: int | None,
    without_permits: ReasonRow,
) -> Iterator[Reason]:
    unacknowledged = consumer.unacked_messages if unacked_by_active is None else unacked_by_active
    if consumer.unacked_messages >= limits.unacked_messages_per_consumer_max:
        yield Cause.CONSUMER_UNACKED_MAX(
            count=count_text(count),
            consumer=consumer.name,
            unacknowledged=consumer.unacked_messages,
            limit=limits.unacked_messages_per_consumer_max,
        )
    elif consumer.permits <= 0:
        yield without_permits(
            count=count_text(count),
            consumer=consumer.name,
            permits=consumer.permits,
            unacknowledged=unacknowledged,
        )
    elif consumer.blocked:
        yield Cause.CONNECTION_FULL(count=count_text(count), consumer=consumer.name)
