"""The subscribe rate of one consumer."""

from __future__ import annotations

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.topic.limits import CONSUMERS_MAX, SubscribeRateLimiter

TWICE_IN_TEN_SECONDS = RateLimit(2, 0, 10)
ME, OTHER = ("10.0.0.1", "me", 1), ("10.0.0.1", "other", 2)


def test_a_consumer_that_came_as_often_as_it_may_comes_again_later() -> None:
    arrivals = SubscribeRateLimiter()
    admitted = [arrivals.admit(ME, TWICE_IN_TEN_SECONDS, now_ms) for now_ms in (0, 10, 20, 5_020, 5_030)]
    assert admitted == [True, True, False, True, False]


def test_another_consumer_has_a_budget_of_its_own() -> None:
    arrivals = SubscribeRateLimiter()
    assert all(arrivals.admit(ME, TWICE_IN_TEN_SECONDS, 0) for _ in range(2))
    assert arrivals.admit(OTHER, TWICE_IN_TEN_SECONDS, 0)
    assert not arrivals.admit(ME, TWICE_IN_TEN_SECONDS, 0)


def test_another_rate_begins_anew_and_none_lets_everybody_in() -> None:
    arrivals = SubscribeRateLimiter()
    assert all(arrivals.admit(ME, TWICE_IN_TEN_SECONDS, 0) for _ in range(2))
    assert arrivals.admit(ME, RateLimit(1, 0, 1), 0)
    assert not arrivals.admit(ME, RateLimit(1, 0, 1), 0)
    assert all(arrivals.admit(ME, UNLIMITED, 0) for _ in range(5))
    assert len(arrivals) == 0


def test_whoever_stayed_away_for_a_period_is_forgotten() -> None:
    arrivals = SubscribeRateLimiter()
    arrivals.admit(ME, TWICE_IN_TEN_SECONDS, 0)
    arrivals.admit(OTHER, TWICE_IN_TEN_SECONDS, 10_000)
    assert len(arrivals) == 1


def test_consumers_that_give_themselves_ever_new_names_take_no_more_than_so_much_memory() -> None:
    arrivals = SubscribeRateLimiter()
    for number in range(CONSUMERS_MAX + 10):
        arrivals.admit(("10.0.0.1", f"name-{number}", 1), TWICE_IN_TEN_SECONDS, 0)
    assert len(arrivals) == CONSUMERS_MAX
