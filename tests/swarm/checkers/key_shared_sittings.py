"""Records of consumers with a priority level: when each was connected, when it accepted messages, what it received.

The checks derive when a region certainly had permits of a consumer, and so which consumer had to receive a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

MARGIN_SECONDS = 0.1
"""Virtual seconds, longer than the fault-free latency between a region and a client in the same place."""
WAITS_SECONDS = 0.5
"""Longest fault-free wait of a message while a consumer has permits, in virtual seconds."""


@dataclass(slots=True)
class Sitting:
    """One connection of a consumer, from subscribe to close."""

    name: str
    level: int
    """Priority level; a lower level is preferred."""
    queue: int
    """Size of the receiver queue and number of initial permits. After each half of it received, the consumer sends
    permits for that half."""
    began: float = inf
    """Time of the response to the subscribe request."""
    ended: float = inf
    """Time at which the consumer began to close."""
    open: list[tuple[float, float]] = field(default_factory=list)
    """Periods (first, last) in which the consumer accepted every message at once."""
    taken: list[tuple[float, str]] = field(default_factory=list)
    """(time, message) of each delivery."""

    def is_there(self, since: float, until: float) -> bool:
        return self.began <= since and until <= self.ended

    def is_open(self, since: float, until: float) -> bool:
        return self.is_there(since, until) and any(
            first <= since and until <= last for first, last in self.open
        )

    def permits_least(self, since: float, until: float) -> int:
        """Return the least number of permits that the region had throughout the interval; 0 unless the consumer was
        open. Permits sent before `since` have arrived, and the consumer has accepted every message sent to it."""
        if not self.is_open(since, until):
            return 0
        half = max(1, self.queue // 2)
        asked_for = self.queue + sum(at < since for at, _ in self.taken) // half * half
        return asked_for - sum(at <= until for at, _ in self.taken)


def passed_over(sittings: Iterable[Sitting], *, one_is_active: bool) -> Iterator[str]:
    """Yield a sentence for each message that a consumer received while a consumer of a better level had permits. With a
    single active consumer: while a consumer of a better level was connected."""
    sittings = list(sittings)
    for worse in sittings:
        better = [one for one in sittings if one.level < worse.level]
        for at, what in worse.taken:
            since, until = at - MARGIN_SECONDS, at + MARGIN_SECONDS
            if not worse.is_open(since, at):
                continue  # the message may have waited in the receiver queue for long
            for one in better:
                permits = one.permits_least(since, until)
                if permits > 0 or (one_is_active and one.is_there(since, until)):
                    yield (
                        f"{worse.name} (level {worse.level}) received {what} while {one.name} "
                        f"(level {one.level}) had {permits} or more permits"
                    )
                    return


def left_waiting(sittings: Iterable[Sitting], published: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence when messages waited, no consumer received any, and a consumer had permits. `published`: message
    -> time at which it was stored. A consumer that does not accept messages may hold as many as it has permits; all
    further messages belong to other consumers."""
    sittings = list(sittings)
    taken = sorted(one for sitting in sittings for one in sitting.taken)
    next_message: dict[str, float] = {}
    for at, what in taken:
        next_message.setdefault(what, at)
    for what, stored in published.items():
        since, until = stored, stored + WAITS_SECONDS
        if any(since < at <= until for at, _ in taken):
            continue  # a slow disk may return one message after the other
        waiting = sum(at <= since and next_message.get(one, inf) > until for one, at in published.items())
        aside = sum(
            one.queue
            for one in sittings
            if one.began <= until and one.ended >= since and not one.is_open(since, until)
        )
        able = next((one for one in sittings if one.permits_least(since, until) > 0), None)
        if able is not None and next_message.get(what, inf) > until and waiting > aside:
            yield (
                f"{waiting} messages for {WAITS_SECONDS:g} s and more, among them {what}, while {able.name} "
                f"(level {able.level}) had permits, and others could have {aside} of them"
            )


def unevenly_spread(sittings: Iterable[Sitting], taken_by: dict[int, set[str]]) -> str:
    """Return the violation in the distribution of partitions while exactly these consumers are connected; empty:
    there is none."""
    sittings = list(sittings)
    least = min(one.level for one in sittings)
    best = {one.name for one in sittings if one.level == least}
    for partition, names in sorted(taken_by.items()):
        if len(names) != 1 or not names <= best:
            went = ", ".join(sorted(names))
            return f"partition {partition} went to {went}, and the best are {', '.join(sorted(best))}"
    counts = [sum(name in names for names in taken_by.values()) for name in sorted(best)]
    if max(counts) - min(counts) > 1:
        return f"{len(taken_by)} partitions went to {', '.join(sorted(best))} so: {counts}"
    return ""
