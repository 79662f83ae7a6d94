"""Trimming and skipping of entries: retention, TTL and backlog quotas (docs/components/life.md, L2 to L5).

    log    ├── trimmed ──┼── kept by retention ──┼── still needed ──▶ end
           first       floor                   need

Each pass checks entries in log order, from the oldest on, and ends with the first one that stays. So it checks all
entries that it trims, and one more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
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
"""Fraction of its quota to which an eviction reduces a backlog, as upstream."""


LOOKS_MAX: Final = 512
"""Maximum number of remembered checks of a log."""
AGE_PARTS: Final = 16
"""Precision of ages: an entry with a future publish time may count as younger by this fraction (1/16) of its age."""


class AgedEntry(NamedTuple):
    """The fields of an entry that retention checks."""

    entry_id: int
    published_ms: int
    """The publish time that its producer set."""
    size_bytes: int


class Ages:
    """The ages of the entries of one log. An age counts from the publish time; if that is in the future, from when the
    entry was first known to be stored. Otherwise the entry would block the trimming of later entries for ever."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int]] = []
        """(end of the log, time) of earlier checks; both ascend. All entries below the end were stored by that time."""

    def looked(self, end_entry_id: int, now_ms: int) -> None:
        """Record the present end of the log. Without it the age of an entry counts from its first check."""
        if not self._ends or self._ends[-1][0] < end_entry_id:
            self._ends.append((end_entry_id, now_ms))
            if len(self._ends) > LOOKS_MAX:
                self._thin_out(now_ms)

    def _thin_out(self, now_ms: int) -> None:
        """Thin out old checks: the older a kept check, the further it is from the next one."""
        ends, kept = self._ends, self._ends[:1]
        for one, following in pairwise(ends[1:]):
            if (following[1] - kept[-1][1]) * AGE_PARTS > now_ms - one[1]:
                kept.append(one)
        self._ends = [*kept, ends[-1]][-LOOKS_MAX:]

    def published_ms(self, entry: AgedEntry, now_ms: int) -> int:
        if entry.published_ms <= now_ms:
            return entry.published_ms
        self.looked(entry.entry_id + 1, now_ms)
        _, known_ms = self._ends[bisect_right(self._ends, entry.entry_id, key=itemgetter(0))]
        return min(known_ms, now_ms)

    def is_older(self, entry: AgedEntry, age_ms: int, now_ms: int) -> bool:
        return now_ms - self.published_ms(entry, now_ms) >= age_ms


class Trimming:
    """One pass over a log's oldest entries that decides how many are trimmed."""

    def __init__(self, retention: Retention, ages: Ages, *, now_ms: int, size_bytes: int) -> None:
        """`size_bytes`: size of the whole log."""
        self._retention = retention
        self._ages = ages
        self._now_ms = now_ms
        self._left_bytes = size_bytes

    def goes(self, entry: AgedEntry) -> bool:
        """Return whether the oldest remaining entry is trimmed. If not, the next one is not checked."""
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
    """A component that needs the log from an id on."""

    entry_id: int
    asker: str
    """Description of the component for users: subscription `billing`, replicator to `eu`."""


HoldSource = Callable[[], Iterable[LogHold]]


class LogHolds:
    """All holds on one log."""

    def __init__(self) -> None:
        self._sources: dict[str, HoldSource] = {}

    def add(self, kind: str, asker: HoldSource) -> None:
        """Register a source of holds, one per kind: cursors, replicators, compaction, transactions."""
        assert kind not in self._sources, f"{kind} is registered already"
        self._sources[kind] = asker

    def __iter__(self) -> Iterator[LogHold]:
        for asker in self._sources.values():
            yield from asker()

    def first(self, end_entry_id: int) -> LogHold:
        """Return the lowest hold; the log's end when no component needs an entry."""
        return min(self, default=LogHold(end_entry_id, "no component"))
