"""How many were somewhere at once, and how fast something came: what limits and rates allow, judged by what programs
know of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

MARGIN_SECONDS = 0.5
"""Longer than it takes until a region that lets go of somebody has done so, when nothing goes wrong."""


@dataclass(slots=True)
class Attempt:
    """Somebody asked to be let in."""

    who: str
    asked: float
    answered: float = inf
    outcome: Literal["in", "refused", "unknown"] = "unknown"
    leaving: float = inf
    """When it began to leave again."""
    left: float = inf
    """When it was told that it has."""

    def may_be_in(self, since: float, until: float) -> bool:
        if self.outcome == "refused":
            return False
        gone = self.left if self.outcome == "in" else self.answered
        return self.asked <= until and gone + MARGIN_SECONDS >= since


def crowded(attempts: Iterable[Attempt], limit: int) -> str:
    """Who was there at a moment at which there were too many; empty: there never was one."""
    admitted = [one for one in attempts if one.outcome == "in"]
    for last in admitted:
        there = [one.who for one in admitted if one.answered <= last.answered < one.leaving]
        if len(there) > limit:
            return f"{len(there)} at once, the limit is {limit}: {', '.join(sorted(there))}"
    return ""


def kept_out(attempts: Iterable[Attempt], limit: int) -> str:
    """Who was refused although there was room for one more; empty: nobody."""
    attempts = list(attempts)
    for one in attempts:
        if one.outcome != "refused":
            continue
        others = {other.who for other in attempts if other.may_be_in(one.asked, one.answered)}
        if len(others - {one.who}) < limit:
            at = f"{one.answered:.3f} s"
            return (
                f"{one.who} was rejected at {at}, when {len(others)} were admitted and the limit is {limit}"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Allowance:
    """So much in a period."""

    amount: int
    period_seconds: int

    def in_seconds(self, seconds: float) -> float:
        """What may come in any so many seconds: what the rate gives, and what one period allows at once."""
        return self.amount * (seconds / self.period_seconds + 1)


def too_fast(times: Sequence[float], allowance: Allowance, under_way: int) -> str:
    """A stretch in which more came than that, and than what may have been under way; empty: there is none."""
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
