"""The subscribe rate of one consumer."""

from __future__ import annotations

import pytest

from emulator.core.flow.rate_limit import UNLIMITED, RateLimit
from emulator.core.topic.limits import CONSUMERS_MAX, SubscribeRateLimiter

TWICE_IN_TEN_SECONDS = RateLimit(2, 0, 10)
ME, OTHER = ("10.0.0.1", "me", 1), ("10.0.0.1", "other", 2)


@pytest.fixture
def limiter() -> SubscribeRateLimiter:
    return SubscribeRateLimiter()


def test_a_consumer_that_came_as_often_as_it_may_comes_again_later(limiter: SubscribeRateLimiter) -> None:
    admitted = [limiter.admit(ME, TWICE_IN_TEN_SECONDS, now_ms) for now_ms in (0, 10, 20, 5_020, 5_030)]
    assert admitted == [True, True, False, True, False]


def test_another_consumer_has_a_budget_of_its_own(limiter: SubscribeRateLimiter) -> None:
    assert all(limiter.admit(ME, TWICE_IN_TEN_SECONDS, 0) for _ in range(2))
    assert limiter.admit(OTHER, TWICE_IN_TEN_SECONDS, 0)
    assert not limiter.admit(ME, TWICE_IN_TEN_SECONDS, 0)


def test_another_rate_begins_anew_and_no_rate_admits_every_consumer(limiter: SubscribeRateLimiter) -> None:
    assert all(limiter.admit(ME, TWICE_IN_TEN_SECONDS, 0) for _ in range(2))
    assert limiter.admit(ME, RateLimit(1, 0, 1), 0)
    assert not limiter.admit(ME, RateLimit(1, 0, 1), 0)
    assert all(limiter.admit(ME, UNLIMITED, 0) for _ in range(5))
    assert len(limiter) == 0


def test_the_limiter_forgets_a_consumer_that_did_not_subscribe_for_a_period(
    limiter: SubscribeRateLimiter,
) -> None:
    limiter.admit(ME, TWICE_IN_TEN_SECONDS, 0)
    limiter.admit(OTHER, TWICE_IN_TEN_SECONDS, 10_000)
    assert len(limiter) == 1


def test_consumers_that_give_themselves_ever_new_names_take_no_more_than_so_much_memory(
    limiter: SubscribeRateLimiter,
) -> None:
    for number in range(CONSUMERS_MAX + 10):
        limiter.admit(("10.0.0.1", f"name-{number}", 1), TWICE_IN_TEN_SECONDS, 0)
    assert len(limiter) == CONSUMERS_MAX
