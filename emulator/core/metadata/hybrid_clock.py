"""A hybrid logical clock: wall time that never falls behind a received reading (docs/components/metadata-sync.md).

A reading is (milliseconds, counter). A reading taken after another one was received is later than that one, whatever
the wall clocks show; and only its counter runs ahead of the fastest wall clock.
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
