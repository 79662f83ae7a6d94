"""The checks of limits and rates, for given times of admission and arrival."""

from __future__ import annotations

from tests.swarm.checkers.limits import Allowance, Attempt, crowded, kept_out, too_fast


def stay(who: str, since: float, until: float) -> Attempt:
    return Attempt(who, since - 0.01, since, "in", until, until + 0.01)


def test_more_at_once_than_may_be_are_too_many() -> None:
    assert crowded([stay("a", 1, 3), stay("b", 2, 4)], 2) == ""
    assert "2 at once, the limit is 1: a, b" in crowded([stay("a", 1, 3), stay("b", 2, 4)], 1)
    assert crowded([stay("a", 1, 2), stay("b", 2, 4)], 1) == ""


def test_who_is_refused_while_there_is_room_is_kept_out() -> None:
    refused = Attempt("b", 5.0, 5.01, "refused")
    assert "b was rejected at 5.010 s" in kept_out([stay("a", 1, 2), refused], 1)
    assert kept_out([stay("a", 1, 4.9), refused], 1) == ""
    assert kept_out([Attempt("a", 1.0), refused], 1) == "", "it is unknown whether it was admitted"


def test_a_rate_gives_what_one_period_allows_and_what_time_brings() -> None:
    twenty = Allowance(20, 1)
    assert too_fast([1.0] * 20 + [1.5] * 10, twenty, 0) == ""
    assert "32 within 0.500 s" in too_fast([1.0] * 20 + [1.5] * 12, twenty, 0)
    assert too_fast([1.0] * 20 + [1.5] * 12, twenty, 2) == ""
