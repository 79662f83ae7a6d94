"""A hybrid logical clock: wall time that never falls behind what was heard (docs/components/metadata-sync.md).

A reading is (milliseconds, counter). One that was taken after another was heard is later than that one, whatever the
wall clocks say; and it runs ahead of the fastest wall clock by nothing but the counter.
"""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """Readings compare as they follow each other."""

    time_ms: int
    counter: int


BEGINNING = Reading(0, 0)


def tick(latest: Reading, now_ms: int) -> Reading:
    """For something that happens here now. `latest`: the latest reading that was taken or heard here."""
    if now_ms > latest.time_ms:
        return Reading(now_ms, 0)
    return Reading(latest.time_ms, latest.counter + 1)


def heard(latest: Reading, other: Reading) -> Reading:
    """The latest reading, after another one was heard."""
    return max(latest, other)
