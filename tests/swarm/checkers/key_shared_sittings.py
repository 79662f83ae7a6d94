"""What one consumer with a level of priority knows of itself: when it was there, when it took what came, what it took.

From that follows from outside when its region certainly had permits of it, and so who was to be given a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

MARGIN_SECONDS = 0.1
"""Longer than anything is under way between a region and a client that stands there, when nothing goes wrong."""
WAITS_SECONDS = 0.5
"""So long no message waits that somebody has permits for, when nothing goes wrong."""


@dataclass(slots=True)
class Sitting:
    """A consumer from its subscription to its end, over one connection."""

    name: str
    level: int
    """Of priority: lower is better."""
    queue: int
    """So many messages it asks for ahead, and for half as many again whenever it took those."""
    began: float = inf
    """When it was told that it is subscribed."""
    ended: float = inf
    """When it began to leave."""
    open: list[tuple[float, float]] = field(default_factory=list)
    """When it took whatever came at once."""
    taken: list[tuple[float, str]] = field(default_factory=list)
    """(when, what)."""

    def is_there(self, since: float, until: float) -> bool:
        return self.began <= since and until <= self.ended

    def is_open(self, since: float, until: float) -> bool:
        return self.is_there(since, until) and any(
            first <= since and until <= last for first, last in self.open
        )

    def permits_least(self, since: float, until: float) -> int:
        """So many its region had of it at least, all the while. What it asked for before is there by then, and what it
        was sent it has taken."""
        if not self.is_open(since, until):
            return 0
        half = max(1, self.queue // 2)
        asked_for = self.queue + sum(at < since for at, _ in self.taken) // half * half
        return asked_for - sum(at <= until for at, _ in self.taken)


def passed_over(sittings: Iterable[Sitting], *, one_is_active: bool) -> Iterator[str]:
    """Messages that one of a worse level was given, a sentence each, while a better one had permits; where only one is
    active at a time, while a better one was there."""
    sittings = list(sittings)
    for worse in sittings:
        better = [one for one in sittings if one.level < worse.level]
        for at, what in worse.taken:
            since, until = at - MARGIN_SECONDS, at + MARGIN_SECONDS
            if not worse.is_open(since, at):
                continue  # it may have waited for its consumer since long ago
            for one in better:
                permits = one.permits_least(since, until)
                if permits > 0 or (one_is_active and one.is_there(since, until)):
                    yield (
                        f"{worse.name} (level {worse.level}) received {what} while {one.name} "
                        f"(level {one.level}) had {permits} or more permits"
                    )
                    return


def left_waiting(sittings: Iterable[Sitting], published: Mapping[str, float]) -> Iterator[str]:
    """When messages waited that somebody had permits for, and nobody was given anything. `published`: when each was
    there. Those who do not take what comes may have as many messages as they asked for; what is more than that belongs
    to somebody else."""
    sittings = list(sittings)
    taken = sorted(one for sitting in sittings for one in sitting.taken)
    given: dict[str, float] = {}
    for at, what in taken:
        given.setdefault(what, at)
    for what, stored in published.items():
        since, until = stored, stored + WAITS_SECONDS
        if any(since < at <= until for at, _ in taken):
            continue  # a slow disk may bring one message after the other
        waiting = sum(at <= since and given.get(one, inf) > until for one, at in published.items())
        aside = sum(
            one.queue
            for one in sittings
            if one.began <= until and one.ended >= since and not one.is_open(since, until)
        )
        able = next((one for one in sittings if one.permits_least(since, until) > 0), None)
        if able is not None and given.get(what, inf) > until and waiting > aside:
            yield (
                f"{waiting} messages for {WAITS_SECONDS:g} s and more, among them {what}, while {able.name} "
                f"(level {able.level}) had permits, and others could have {aside} of them"
            )


def unevenly_spread(sittings: Iterable[Sitting], taken_by: dict[int, set[str]]) -> str:
    """What is wrong with who is given which partition, while these and nobody else are there; empty: nothing."""
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
