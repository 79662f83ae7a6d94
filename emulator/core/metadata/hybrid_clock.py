"""A hybrid logical clock: wall time that never falls behind what was heard (docs/components/metadata-sync.md).

A reading is (milliseconds, counter). One that was taken after another was heard is later than that one, whatever the
wall clocks say; and it runs ahead of the fastest wall clock by nothing but the counter.
"""

from __future__ import annotations

from typing import NamedTuple


class ClockReading(NamedTuple):
    """Readings compare as they follow each other."""

    time_ms: int
    counter: int


BEGINNING = ClockReading(0, 0)


def tick(latest: ClockReading, now_ms: int) -> ClockReading:
    """For something that happens here now. `latest`: the latest reading that was taken or heard here."""
    if now_ms > latest.time_ms:
        return ClockReading(now_ms, 0)
    return ClockReading(latest.time_ms, latest.counter + 1)


def heard(latest: ClockReading, other: ClockReading) -> ClockReading:
    """The latest reading, after another one was heard."""
    return max(latest, other)
