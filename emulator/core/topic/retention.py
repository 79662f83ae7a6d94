"""Rules for trimming and skipping entries: retention, TTL and backlog quotas (docs/components/life.md, L2 to L5).

    log    ├── trimmed ──┼── kept by retention ──┼── held (`LogHolds`) ──▶ end

A pass checks entries in log order, from the oldest on, and ends with the first one that stays. So it checks all entries
that it trims, and one more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from emulator.core.policies.lifetime import (
    BYTES_PER_MEGABYTE,
    MS_PER_MINUTE,
    QuotaAction,
    QuotaKind,
    Quotas,
    Retention,
)
from emulator.errors import ProtocolError, ServerError

EVICT_TO: float = 0.9
"""Fraction of its quota to which an eviction reduces a backlog; upstream's value."""


LOOKS_MAX: Final = 512
"""Maximum number of recorded ends of a log."""
AGE_PARTS: Final = 16
"""Precision of ages: an entry with a future publish time may count as younger by this fraction (1/16) of its age."""


class AgedEntry(NamedTuple):
    """The fields of an entry that retention checks."""

    entry_id: int
    published_ms: int
    """The publish time that its producer set."""
    size_bytes: int


class Ages:
    """The ages of the entries of one log. An age counts from the publish time; if that is in the future, from the first
    time at which the entry is known to have been stored. Otherwise such an entry would block trimming for ever."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int]] = []
        """Recorded (end of the log, time); both ascend. All entries below the end were stored by that time."""

    def looked(self, end_entry_id: int, now_ms: int) -> None:
        """Record the end of the log at a time. Without a record the age of an entry counts from its first check."""
        if not self._ends or self._ends[-1][0] < end_entry_id:
            self._ends.append((end_entry_id, now_ms))
            if len(self._ends) > LOOKS_MAX:
                self._thin_out(now_ms)

    def _thin_out(self, now_ms: int) -> None:
        """Remove records: the older a remaining one, the longer the time to the next one may be."""
        ends, kept = self._ends, self._ends[:1]
        for one, following in pairwise(ends[1:]):
            if (following[1] - kept[-1][1]) * AGE_PARTS > now_ms - one[1]:
                kept.append(one)
        self._ends = [*kept, ends[-1]][-LOOKS_MAX:]

    def published_ms(self, entry: AgedEntry, now_ms: int) -> int:
        """Return the time from which an entry's age counts. Records the entry, if its publish time is in the future."""
        if entry.published_ms <= now_ms:
            return entry.published_ms
        self.looked(entry.entry_id + 1, now_ms)
        _, known_ms = self._ends[bisect_right(self._ends, entry.entry_id, key=itemgetter(0))]
        return min(known_ms, now_ms)

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return now_ms - self.published_ms(entry, now_ms) >= age_ms


class Trimming:
    """One pass over a log's oldest entries, which decides how many are trimmed."""

    def __init__(self, retention: Retention, ages: Ages, *, now_ms: int, size_bytes: int) -> None:
        """`size_bytes`: size of the whole log."""
        self._retention = retention
        self._ages = ages
        self._now_ms = now_ms
        self._left_bytes = size_bytes

    def goes(self, entry: AgedEntry) -> bool:
        """Return whether the oldest remaining entry is trimmed, and count it. The caller stops at the first one that is
        not."""
        minutes, megabytes = self._retention
        too_old = minutes >= 0 and self._ages.is_older(entry, minutes * MS_PER_MINUTE, self._now_ms)
        too_much = megabytes >= 0 and self._left_bytes > megabytes * BYTES_PER_MEGABYTE
        if too_old or too_much:
            self._left_bytes -= entry.size_bytes
        return too_old or too_much


def backlog_bytes(size_bytes: int, first: int, need: int, end: int) -> int:
    """Return the estimated size of the entries from `need` on, assuming that all entries have one size, as upstream."""
    if end <= first:
        return 0
    return size_bytes * max(0, end - max(need, first)) // (end - first)


class Backlog(NamedTuple):
    """The backlog of the slowest subscription or replicator."""

    size_bytes: int
    age_ms: int
    """Age of its oldest message; 0 when there is none."""
    slowest: str


class Exceeded(NamedTuple):
    """An exceeded quota."""

    kind: QuotaKind
    action: QuotaAction
    sentence: str

    def refusal(self) -> ProtocolError | None:
        """Return the error for a producer that attaches; None: it may attach."""
        match self.action:
            case QuotaAction.HOLD:
                return ProtocolError(ServerError.ProducerBlockedQuotaExceededError, self.sentence)
            case QuotaAction.EXCEPTION:
                return ProtocolError(ServerError.ProducerBlockedQuotaExceededException, self.sentence)
            case QuotaAction.EVICT:
                return None


def exceeded(quotas: Quotas, backlog: Backlog) -> list[Exceeded]:
    """Return the exceeded quotas, size first."""
    found = []
    size, age = quotas.get(QuotaKind.SIZE), quotas.get(QuotaKind.AGE)
    if size is not None and 0 <= size.limit_bytes < backlog.size_bytes:
        sentence = (
            f"the backlog of {backlog.slowest} is about {backlog.size_bytes:,} bytes; "
            f"the quota is {size.limit_bytes:,}"
        )
        found.append(Exceeded(QuotaKind.SIZE, size.action, sentence))
    if age is not None and age.limit_seconds >= 0 and age.limit_seconds * 1000 < backlog.age_ms:
        sentence = (
            f"the oldest message that {backlog.slowest} needs is {backlog.age_ms // 1000:,} s old; "
            f"the quota is {age.limit_seconds:,} s"
        )
        found.append(Exceeded(QuotaKind.AGE, age.action, sentence))
    return found


class LogHold(NamedTuple):
    """The need of a component for all entries from an id on."""

    entry_id: int
    asker: str
    """Description of the component for users, such as "subscription billing" or "replicator to eu"."""


HoldSource = Callable[[], Iterable[LogHold]]


class LogHolds:
    """All holds on one log."""

    def __init__(self, sources: Mapping[str, HoldSource]) -> None:
        """`sources`: kind -> source of holds: cursors, replicators, compaction, transactions."""
        self._sources = sources

    def __iter__(self) -> Iterator[LogHold]:
        for source in self._sources.values():
            yield from source()

    def first(self, end_entry_id: int) -> LogHold:
        """Return the hold with the lowest id; one at the log's end when there is none."""
        return min(self, default=LogHold(end_entry_id, "no component"))
