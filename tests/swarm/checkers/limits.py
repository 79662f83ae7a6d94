"""Check the recorded admissions and message times of programs against limits of clients and message rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

MARGIN_SECONDS = 0.5
"""Virtual seconds, longer than a region takes to remove a client without faults."""


@dataclass(slots=True)
class Attempt:
    """A request of a client to be admitted (as producer, consumer or subscription). Times are virtual seconds."""

    who: str
    requested_at: float
    answered: float = inf
    outcome: Literal["in", "refused", "unknown"] = "unknown"
    leaving: float = inf
    """Time at which the client began to close."""
    left: float = inf
    """Time of the response to the close request."""

    def may_be_in(self, since: float, until: float) -> bool:
        if self.outcome == "refused":
            return False
        gone = self.left if self.outcome == "in" else self.answered
        return self.requested_at <= until and gone + MARGIN_SECONDS >= since


def crowded(attempts: Iterable[Attempt], limit: int) -> str:
    """Return a sentence with the clients that were admitted at one time beyond the limit; empty: never beyond it."""
    admitted = [one for one in attempts if one.outcome == "in"]
    for last in admitted:
        there = [one.who for one in admitted if one.answered <= last.answered < one.leaving]
        if len(there) > limit:
            return f"{len(there)} at once, the limit is {limit}: {', '.join(sorted(there))}"
    return ""


def kept_out(attempts: Iterable[Attempt], limit: int) -> str:
    """Return a sentence with a client that was rejected although the limit was not reached; empty: there is none."""
    attempts = list(attempts)
    for one in attempts:
        if one.outcome != "refused":
            continue
        others = {other.who for other in attempts if other.may_be_in(one.requested_at, one.answered)}
        if len(others - {one.who}) < limit:
            at = f"{one.answered:.3f} s"
            return (
                f"{one.who} was rejected at {at}, when {len(others)} were admitted and the limit is {limit}"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A rate limit: `amount` messages or bytes per period."""

    amount: int
    period_seconds: int

    def in_seconds(self, seconds: float) -> float:
        """Return the most that may arrive in any interval of this length: the rate plus the burst of one period."""
        return self.amount * (seconds / self.period_seconds + 1)


def too_fast(times: Sequence[float], allowance: Allowance, under_way: int) -> str:
    """Return a sentence with an interval that exceeds the rate by more than `under_way` messages; empty: there is
    none."""
    times = sorted(times)
    for first, since in enumerate(times):
        for last in range(first, len(times)):
            count, seconds = last - first + 1, times[last] - since
            if count > allowance.in_seconds(seconds + MARGIN_SECONDS / 10) + under_way:
                return (
                    f"{count} within {seconds:.3f} s from {since:.3f} s on, the rate is {allowance.amount} in "
                    f"{allowance.period_seconds} s"
                )
    return ""
