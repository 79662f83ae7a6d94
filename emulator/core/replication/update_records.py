"""The updates of one subscription that its region sent to and received from other regions (PIP-33).

`UpdateRecords` answers three questions without a read of the log: which position each remote region has, how old the
knowledge of each remote region is, and how much a fail-over to a remote region would redeliver at most.

The bound. A snapshot (P; b: X) is requested by an entry of this log, its *base*. Region b stores every message that
this log has below the base, and that b or this region published, at or below X: its origin is this region, and it was
forwarded before the request, or it is b, and it came from there before the request arrived. So once b applied the
update of that snapshot, only acknowledged entries beyond the base can be delivered again in b. Not included: messages
of a third region that had not reached b when it responded.

    acknowledged, b has it       redelivered at most: acknowledged ●
    ────────────────────────┤ base   ● ● ○ ● ● ├──▶ log
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
from typing import NamedTuple, TypeVar

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.replication.subscription_updates import Applied
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.values import Position

SENT_MAX = 32
"""Maximum number of sent updates that are remembered."""

BASES_MAX = 128
"""Maximum number of snapshots whose bases are remembered: more than a cache of snapshots holds."""


class SnapshotBase(NamedTuple):
    """The end of this region's log when a snapshot was requested."""

    entry_id: int
    """Id of the entry that requested the snapshot."""
    messages: int
    """Number of messages published to the topic since it was loaded, when the request was written."""


class SnapshotBases:
    """The bases of the snapshots of one topic since it was loaded."""

    def __init__(self) -> None:
        self._written: dict[str, int] = {}
        """Id of a snapshot -> number of messages published to the topic when its request was written."""
        self._requested: dict[str, SnapshotBase] = {}
        """Id of a snapshot -> its base, from the time at which its request is durable."""
        self._of_positions: dict[tuple[tuple[str, Position], ...], SnapshotBase] = {}
        """Positions of a completed snapshot -> its base."""

    def request_written(self, snapshot_id: str, messages: int) -> None:
        """Note that the request of a snapshot was appended, when `messages` messages had been published."""
        _put(self._written, snapshot_id, messages)

    def request_stored(self, snapshot_id: str, entry_id: int) -> None:
        """Note that the request of a snapshot is durable. No effect for a request that this topic object did not
        write."""
        messages = self._written.pop(snapshot_id, None)
        if messages is not None:
            _put(self._requested, snapshot_id, SnapshotBase(entry_id, messages))

    def completed(self, snapshot: Snapshot) -> None:
        base = self._requested.pop(snapshot.snapshot_id, None)
        if base is not None:
            _put(self._of_positions, snapshot.positions, base)

    def of(self, positions: tuple[tuple[str, Position], ...]) -> SnapshotBase | None:
        """Return the base of the snapshot with these positions; None: unknown."""
        return self._of_positions.get(positions)


Key = TypeVar("Key")
Value = TypeVar("Value")


def _put(values: dict[Key, Value], key: Key, value: Value) -> None:
    """Add a value as the newest one; of more than BASES_MAX the oldest one is dropped."""
    values.pop(key, None)
    values[key] = value
    if len(values) > BASES_MAX:
        del values[next(iter(values))]


class LogFigures(NamedTuple):
    """The figures of a topic's log that the bound requires."""

    end: int
    """Exclusive end of the readable entries."""
    hidden: IdSet
    """Entries that no consumer receives, such as markers."""
    messages: int
    """Number of messages published to the topic since it was loaded."""


class UpdateOutcome(Enum):
    """What an update of another region did. Values are sentences for users."""

    APPLIED = "applied"
    BEHIND = "all of it was acknowledged before"
    BEYOND_END = "refused: it names a position beyond the end of this log"
    NOT_REPLICATED = "not applied: the subscription is not replicated here"
    OTHER_LOG = "not applied: it names no position in this log"
    FOUND = "found in the log when the topic was loaded"


OUTCOMES = {
    Applied.MOVED: UpdateOutcome.APPLIED,
    Applied.BEHIND: UpdateOutcome.BEHIND,
    Applied.REFUSED: UpdateOutcome.BEYOND_END,
}
IGNORED = (
    UpdateOutcome.BEHIND,
    UpdateOutcome.BEYOND_END,
    UpdateOutcome.NOT_REPLICATED,
    UpdateOutcome.OTHER_LOG,
)
"""Outcomes of updates that changed nothing."""


@dataclass(frozen=True, slots=True)
class SentUpdate:
    """An update that is stored in this region's log, from which the replicators send it."""

    entry_id: int
    """Entry id of its marker."""
    at_ms: int
    """Time at which it was written, by this region's clock."""
    positions: tuple[tuple[str, Position], ...]
    base: SnapshotBase | None
    """Base of its snapshot; None: the snapshot was taken before the topic was loaded."""


@dataclass(frozen=True, slots=True)
class ReceivedUpdate:
    """The newest update of another region."""

    position: Position | None
    """The position that it names in this region's log; None: none."""
    written_ms: int
    """Time at which it was written, by the clock of its region."""
    at_ms: int | None
    """Time at which it was stored here, by this region's clock; None: before the topic was loaded."""
    outcome: UpdateOutcome


class UpdateRecords:
    """The updates of one subscription since its topic was loaded, and the newest ones that were found in the log."""

    def __init__(self) -> None:
        self.sent: list[SentUpdate] = []
        """Newest last. At most SENT_MAX: of more, the oldest and the newest ones."""
        self.received: dict[str, ReceivedUpdate] = {}
        """Newest update of each other region."""
        self.sent_count = 0
        self.outcomes: Counter[UpdateOutcome] = Counter()
        """Number of received updates by outcome, without those that were found in the log."""

    # Events, in log order.

    def note_sent(
        self, update: SubscriptionUpdate, entry_id: int, at_ms: int, base: SnapshotBase | None
    ) -> None:
        """Record an own update that became durable."""
        self.sent_count += 1
        self._remember(SentUpdate(entry_id, at_ms, update.positions, base))

    def note_received(self, source: str, received: ReceivedUpdate) -> None:
        """Record an update of another region that became durable here, with its outcome."""
        self.outcomes[received.outcome] += 1
        self.received[source] = received

    def note_applied(self, source: str, outcome: UpdateOutcome) -> None:
        """Record that the newest update of a region, which was not applied at first, was applied later."""
        self.outcomes[outcome] += 1
        known = self.received.get(source)
        if known is not None:
            self.received[source] = replace(known, outcome=outcome)

    def found_sent(self, update: SubscriptionUpdate, entry_id: int, at_ms: int) -> None:
        """Record an own update that was found in the log."""
        if not any(one.entry_id == entry_id for one in self.sent):
            self._remember(SentUpdate(entry_id, at_ms, update.positions, None))

    def found_received(self, source: str, position: Position | None, written_ms: int) -> None:
        """Record an update of another region that was found in the log, unless a newer one is known."""
        known = self.received.get(source)
        if known is None or known.outcome is UpdateOutcome.FOUND:
            self.received[source] = ReceivedUpdate(position, written_ms, None, UpdateOutcome.FOUND)

    def _remember(self, update: SentUpdate) -> None:
        """Add an update. Over SENT_MAX the second oldest is dropped: the oldest may be the newest one that a slow
        region has confirmed."""
        insort(self.sent, update, key=attrgetter("entry_id"))
        if len(self.sent) > SENT_MAX:
            del self.sent[1]

    # Queries.

    def newest_sent(self, region: str) -> SentUpdate | None:
        """Return the newest own update with a position of a region."""
        return self.newest_confirmed(region, self.sent[-1].entry_id) if self.sent else None

    def newest_confirmed(self, region: str, confirmed: int) -> SentUpdate | None:
        """Return the newest own update that a region has stored. `confirmed`: entry id up to which its replicator is
        confirmed."""
        return next(
            (
                one
                for one in reversed(self.sent)
                if one.entry_id <= confirmed and region in dict(one.positions)
            ),
            None,
        )

    @property
    def applied(self) -> int:
        """Number of received updates that acknowledged something."""
        return self.outcomes[UpdateOutcome.APPLIED]

    def redelivered_at_most(self, region: str, confirmed: int, cursor: Cursor, log: LogFigures) -> int | None:
        """Return the number of messages that a fail-over to a region would deliver again at most; None: unknown, since
        the region has confirmed no update of a snapshot that was taken since the topic was loaded.

        `confirmed`: as for `newest_confirmed`. Excludes messages of a third region that had not reached that region
        when it responded to the snapshot.
        """
        update = self.newest_confirmed(region, confirmed)
        if update is None or update.base is None:
            return None
        first = update.base.entry_id + 1
        if not _acknowledged_from(cursor, log.hidden, first):
            return 0
        published = log.messages - update.base.messages
        return max(0, published - _unacknowledged(cursor, log.hidden, first, log.end))


def _acknowledged_from(cursor: Cursor, hidden: IdSet, first: int) -> bool:
    """Return whether an entry from `first` on is acknowledged, wholly or in part."""
    if any(first <= entry_id for entry_id in cursor.open_bits):
        return True
    last = max(cursor.highest_acked, cursor.mark_delete)
    entries = max(0, last - first + 1) - hidden.count(first, last)
    return entries > 0 and entries > _unacknowledged(cursor, hidden, first, last + 1)


def _unacknowledged(cursor: Cursor, hidden: IdSet, first: int, end: int) -> int:
    """Return the number of unacknowledged entries from `first` on, below `end`."""
    return cursor.unacked_count(end, hidden) - cursor.unacked_count(first, hidden)
