"""What of a log goes, and what a subscription skips: retention, TTL and quotas (docs/rooms/life.md, L2 to L5).

    log    ├── let go ──┼── kept by retention ──┼── somebody needs it ──▶ end
           first      floor                   need

Entries are looked at in the order of the log, from the oldest on, and looking ends with the first one that stays. So
each entry is looked at once before it goes, and once per look while it stays.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.core.policies.lifetime import BYTES_PER_MEGABYTE, MS_PER_MINUTE, Retention

EVICT_TO: float = 0.9
"""Of its quota: how much of a backlog is left after an eviction, as upstream."""


class Seen(NamedTuple):
    """An entry, as far as its age and weight count."""

    entry_id: int
    published_ms: int
    """What its sender said."""
    size_bytes: int


class Ages:
    """How old entries are. What a sender says counts, unless it claims the future: such a message is as old as the
    time since it was looked at first, or it would keep everything behind it for ever."""

    def __init__(self) -> None:
        self._ahead: tuple[int, int] | None = None
        """The entry that claimed the future last, and when that was seen."""

    def published_ms(self, entry: Seen, now_ms: int) -> int:
        if entry.published_ms <= now_ms:
            return entry.published_ms
        if self._ahead is None or self._ahead[0] != entry.entry_id:
            self._ahead = entry.entry_id, now_ms
        return min(self._ahead[1], now_ms)

    def is_older(self, entry: Seen, age_ms: int, now_ms: int) -> bool:
        return now_ms - self.published_ms(entry, now_ms) >= age_ms


class Trimming:
    """One look at a log's oldest entries: how many of them retention lets go."""

    def __init__(self, retention: Retention, ages: Ages, *, now_ms: int, size_bytes: int) -> None:
        """`size_bytes`: of the whole log."""
        self._retention = retention
        self._ages = ages
        self._now_ms = now_ms
        self._left_bytes = size_bytes

    def goes(self, entry: Seen) -> bool:
        """Whether the oldest entry that is left goes. The next one is not asked about when it does not."""
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
