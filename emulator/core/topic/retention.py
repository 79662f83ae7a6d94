"""What is trimmed, and what a subscription skips: retention, TTL and quotas (docs/components/life.md, L2 to L5).

    log    ├── trimmed ──┼── kept by retention ──┼── still needed ──▶ end
           first       floor                   need

Entries are checked in log order, from the oldest on; the check ends with the first one that stays. So each entry is
checked once before it is trimmed, and once per pass while it stays.
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
"""Of its quota: how much of a backlog is left after an eviction, as upstream."""


LOOKS_MAX: Final = 512
"""That are remembered of a log."""
AGE_PARTS: Final = 16
"""For by such a part of its age an entry that claims the future may be taken for younger."""


class AgedEntry(NamedTuple):
    """An entry, as far as its age and weight count."""

    entry_id: int
    published_ms: int
    """The publish time that its producer set."""
    size_bytes: int


class Ages:
    """The ages of entries. The publish time counts unless it is in the future: the age of such a message is the time
    since it was first known to be stored, or it would keep everything behind it for ever."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int]] = []
        """Ends of the log at some checks, and their times; both ascend. Entries below were stored by then."""

    def looked(self, end_entry_id: int, now_ms: int) -> None:
        """Record that the log ends here now. Otherwise the age of an entry counts from its first check."""
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
    """One look at a log's oldest entries: how many of them retention lets go."""

    def __init__(self, retention: Retention, ages: Ages, *, now_ms: int, size_bytes: int) -> None:
        """`size_bytes`: of the whole log."""
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
    """About how much of a log is not acknowledged: entries are taken to be of one size, as upstream does."""
    if end <= first:
        return 0
    return size_bytes * max(0, end - max(need, first)) // (end - first)


class Backlog(NamedTuple):
    """What is not acknowledged by the slowest subscription, or not in the slowest region."""

    size_bytes: int
    age_ms: int
    """Of its oldest message; 0 when there is none."""
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
    """All that are, size first."""
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
    """One that needs the log from an id on."""

    entry_id: int
    asker: str
    """As people know it: subscription `billing`, replicator to `eu`."""


HoldSource = Callable[[], Iterable[LogHold]]


class LogHolds:
    """Of one log."""

    def __init__(self) -> None:
        self._askers: dict[str, HoldSource] = {}

    def add(self, kind: str, asker: HoldSource) -> None:
        """From now on it is asked, too. One a kind: cursors, replicators, compaction, transactions."""
        assert kind not in self._askers, f"{kind} is registered already"
        self._askers[kind] = asker

    def __iter__(self) -> Iterator[LogHold]:
        for asker in self._askers.values():
            yield from asker()

    def first(self, end_entry_id: int) -> LogHold:
        """Return the lowest hold; the log's end when no component needs an entry."""
        return min(self, default=LogHold(end_entry_id, "no component"))
