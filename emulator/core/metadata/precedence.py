"""Which of two events of one element wins.

The proposal's rule asks the events alone, so every cluster answers alike, in whatever order they came. Upstream's asks
the cluster that is told: when it applied what it has, and its own name. Clusters that are told in different orders then
keep different values; it is here to show that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from emulator.core.metadata.event import Stamp


class Entry(NamedTuple):
    """What one element is."""

    stamp: Stamp
    """Of the event that won."""
    is_deleted: bool
    value: Any
    applied_ms: int
    """By the clock of the region that applied it here; upstream's rule looks at it, and people do."""


@dataclass(frozen=True, slots=True)
class Rule:
    wins: Callable[[Stamp, Entry | None, str], bool]
    """(a new event's stamp, what there is, the cluster that asks): whether the new one takes its place."""
    has_tombstones: bool = True
    """What was deleted is remembered, so that an older event does not bring it back."""


def _latest(stamp: Stamp, present: Entry | None, here: str) -> bool:
    return present is None or stamp.is_later_than(present.stamp)


def _upstream(stamp: Stamp, present: Entry | None, here: str) -> bool:
    """The event's time is held against the time at which the present value was applied here; of equal times the
    event's cluster against this one, and the name that sorts last wins."""
    if present is None or present.is_deleted:
        return True
    return (stamp.time_ms, stamp.source) > (present.applied_ms, here)


LATEST = Rule(_latest)
"""The proposal's, made a total order."""
UPSTREAM = Rule(_upstream, has_tombstones=False)
