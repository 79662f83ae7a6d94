"""The priority of a producer that waits for exclusive access (PIP-440), and how long it holds back when it returns.

A client does not know the priorities of others, so the delay is a function of its own alone: the highest one there is
comes back at once, the lowest one after `longest`, 0 in the middle, and the curve is steepest around 0, where people
choose their numbers.

    priority   -2**31 … -100   -10     0    10   100 … 2**31-1
    delay        1.00   0.95  0.75  0.50  0.25  0.05   0.00     of `longest`
"""

from __future__ import annotations

from typing import Final

PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
_HALF_WAY: Final = 10
"""The priority that halves the delay of 0."""


def checked_priority(priority: int) -> int:
    """The priority, if the wire can say it. ValueError otherwise."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ValueError(f"priority {priority!r} must be an integer")
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise ValueError(f"priority {priority} must be from {PRIORITY_MIN} to {PRIORITY_MAX} (int32)")
    return priority


def return_delay_seconds(priority: int, longest_seconds: float) -> float:
    """How long a producer of this priority holds back, the longer the lower it is."""
    return longest_seconds * (1 - priority / (_HALF_WAY + abs(priority))) / 2
