"""What all strategies share: how far the log was read, which reads still count, what a gap in the log means.

             everything acknowledged       dispatched, acknowledged or in replay       unread
────────────────────────────────────────┤─────────────────────────────────────────────├──────────▶ log
                                mark-delete                                        read end
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.types import Candidate, ConsumerState, Delivery, DispatchLimits, Read, Wake
from emulator.core.dispatch.waits import WaitingMessages
from emulator.model.reasons import Reason

ENTRIES_PER_READ_MAX = 500


class DispatchStrategy(ABC):
    """How the entries of one subscription are given to its consumers. Owned by a Dispatcher."""

    def __init__(self, cursor: Cursor, limits: DispatchLimits) -> None:
        self.cursor = cursor
        self.limits = limits
        self.consumers: list[ConsumerState] = []
        """In order of arrival."""
        self.active: ConsumerState | None = None
        """The one consumer that is served, where only one is."""
        self._read_end = cursor.mark_delete + 1
        self._token = object()

    @property
    def draining(self) -> Mapping[ConsumerState, int]:
        """By consumer: keys that wait for its acknowledgements to go to another one."""
        return {}

    @property
    def delayed_entries(self) -> int:
        """How many were read and are not due yet."""
        return 0

    @property
    def read_entry_id(self) -> int:
        """The smallest id that was not offered yet. An update of another region or a cumulative acknowledgement may
        have moved mark-delete past what was read here."""
        return max(self._read_end, self.cursor.mark_delete + 1)

    # Questions and answers. `next` changes nothing (DI2).

    @abstractmethod
    def next(self, end_entry_id: int, now_ms: int, wall_ms: int) -> Read | Wake | None:
        """What the shell is to do now. `end_entry_id`: exclusive end of what is readable. `now_ms`: of a clock that
        only goes forward; `wall_ms`: of the one that clients mean."""

    def offer(self, read: Read, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]:
        """Hand out what `read` found: every entry from its start on, in log order, nothing left out. What no consumer
        can take stays unread."""
        if self.is_overtaken(read):
            return []
        self._pass_gap(read.from_entry_id, candidates[0].entry_id if candidates else read.end_entry_id)
        return self._hand_out(candidates, wall_ms)

    def is_overtaken(self, read: Read) -> bool:
        """Whether a later event made the read obsolete."""
        return read.token is not self._token

    @abstractmethod
    def waiting(self, unread: int) -> Iterator[WaitingMessages]:
        """Messages that are neither dispatched nor delayed. `unread`: those that were never offered."""

    @abstractmethod
    def why_delayed(self, now_ms: int, wall_ms: int) -> Reason:
        """Return why no message is dispatched before a known time; empty when no time is known."""

    @abstractmethod
    def _hand_out(self, candidates: Sequence[Candidate], wall_ms: int) -> list[Delivery]: ...

    def _read_new(self, end_entry_id: int, entries_max: int) -> Read | None:
        """The next entries that were never offered. Jumps over what is acknowledged already."""
        from_entry_id = self.cursor.next_unacked(self.read_entry_id)
        if from_entry_id >= end_entry_id:
            return None
        return Read(from_entry_id, min(entries_max, ENTRIES_PER_READ_MAX), end_entry_id, self._token)

    def _pass_gap(self, from_entry_id: int, entry_id: int) -> None:
        """The log has no entry in [from_entry_id, entry_id): trimmed away or never there (storage promise S3)."""
        if entry_id > from_entry_id:
            self.cursor.ack_range(from_entry_id, entry_id - 1)

    def _pass_to(self, entry_id: int) -> None:
        """An entry at or beyond the read end was offered; ids between two of one read do not exist (S3)."""
        if entry_id > self._read_end:
            self.cursor.ack_range(self._read_end, entry_id - 1)
        self._read_end = entry_id + 1

    # What happens. These change state and nothing else.

    @abstractmethod
    def joined(self, consumer: ConsumerState, now_ms: int) -> None: ...

    @abstractmethod
    def left(self, consumer: ConsumerState, now_ms: int) -> None:
        """A consumer disconnected; its unacknowledged messages go to others."""

    def flow(self, consumer: ConsumerState, permits: int) -> None:
        """The consumer grants `permits` more messages."""
        consumer.permits += permits

    def blocked(self, consumer: ConsumerState, *, blocked: bool) -> None:
        """The consumer's connection is full, or takes bytes again."""
        consumer.blocked = blocked

    @abstractmethod
    def acked(self, consumer: ConsumerState, entry_id: int, messages_left: int = 0) -> None:
        """The cursor has an acknowledgement of this consumer; `messages_left` of the entry remain unacknowledged."""

    @abstractmethod
    def returned(self, consumer: ConsumerState, entry_ids: Sequence[int] | None) -> None:
        """The consumer requests redelivery of these (None: of all it holds)."""

    @abstractmethod
    def released(self, entry_ids: Sequence[int]) -> None:
        """A transaction that had acknowledged these was aborted: they are redelivered."""

    @abstractmethod
    def moved(self) -> None:
        """The cursor went forward by itself: by a cumulative acknowledgement or an update of another region."""

    def rewound(self) -> None:
        """Start again at the first unacknowledged entry. Entries that were dispatched or are being read do not count:
        they are dispatched again."""
        self._read_end = self.cursor.mark_delete + 1
        self._token = object()

    def batch_size(self, consumer: ConsumerState, entry_id: int) -> int | None:
        """Messages in an entry the consumer holds and has acknowledged nothing of; None when that is not known."""
        return None
