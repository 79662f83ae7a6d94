"""Rate limits: on average never faster than the configured rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.flow.rate_limit import FOLLOW_MS, UNLIMITED, RateLimit, Throttle, throttle_of
from emulator.core.policies.limits import DISPATCH_RATE
from emulator.core.topic.limits import TopicLimits
from emulator.errors import ProtocolError, ServerError


def test_without_a_rate_there_is_nothing_to_keep() -> None:
    assert throttle_of(UNLIMITED, 0) is None


def test_one_period_may_go_at_once_and_what_was_too_much_is_waited_for() -> None:
    throttle = Throttle(RateLimit(10, 0, 2), 0)
    throttle.take(10, 10**9, 0)
    assert throttle.wait_ms(0) == 200
    assert throttle.wait_ms(200) == 0
    throttle.take(21, 0, 200)
    assert throttle.wait_ms(200) == pytest.approx(4_200)


def test_what_was_unused_for_long_is_no_more_than_one_period_allows() -> None:
    """An unused limit accumulates one period only, even if no caller asked for the wait time before."""
    throttle = Throttle(RateLimit(10, 0, 1), 0)
    throttle.take(10, 0, 100_000)
    assert throttle.wait_ms(100_000) == pytest.approx(100)


def test_what_is_reserved_others_do_not_use_and_time_does_not_give_again() -> None:
    throttle = Throttle(RateLimit(10, 0, 1), 0)
    reserved = throttle.reserve(10, 0)
    assert throttle.wait_ms(0) > 0, "everything is reserved"
    assert throttle.wait_ms(10_000) > 0, "everything is still reserved"
    throttle.release(reserved, 10_000)
    assert throttle.wait_ms(10_000) == 0, "the unused reservation is available again"
    throttle.take(10, 0, 10_000)
    assert throttle.wait_ms(10_000) == pytest.approx(100), "at most one period accumulates"


def test_what_was_reserved_beside_other_use_is_never_more_than_there_was() -> None:
    throttle = Throttle(RateLimit(10, 0, 1), 0)
    throttle.take(7, 0, 0)
    first, second = throttle.reserve(10, 0), throttle.reserve(10, 0)
    assert (first, second) == (3, 0)
    throttle.take(5, 0, 0)
    throttle.release(second, 0)
    throttle.release(first, 0)
    assert throttle.wait_ms(0) == pytest.approx(300), "two went beyond the limit"


def test_where_bytes_are_limited_there_is_one_read_at_a_time() -> None:
    throttle = Throttle(RateLimit(0, 1_000, 1), 0)
    reserved = throttle.reserve(100, 0)
    assert throttle.wait_ms(0) > 0
    throttle.release(reserved, 500)
    throttle.take(100, 3_000, 500)
    assert throttle.wait_ms(500) == pytest.approx(2_001)


@given(
    messages=st.integers(1, 50),
    period=st.integers(1, 10),
    portions=st.lists(st.tuples(st.integers(1, 30), st.floats(0, 500)), max_size=60),
)
def test_over_any_time_no_more_goes_than_that_time_and_one_period_allow(
    messages: int, period: int, portions: list[tuple[int, float]]
) -> None:
    throttle = Throttle(RateLimit(messages, 0, period), 0)
    now, gone, largest = 0.0, 0, 0
    for portion, pause in portions:
        now += pause + throttle.wait_ms(now + pause)
        if throttle.wait_ms(now) > 0.001:
            raise AssertionError("it waited, and has to wait")
        throttle.take(portion, 0, now)
        gone, largest = gone + portion, max(largest, portion)
        assert gone <= messages + now * messages / (period * 1000) + largest + 0.001


def test_limits_are_named_with_the_codes_that_clients_know() -> None:
    TopicLimits().check_producers(10**6, "t")
    limits = TopicLimits(producers=1, consumers=3, consumers_per_subscription=2, subscriptions=1)
    limits.check_producers(0, "t")
    limits.check_consumers(2, 1, "t")
    for check, code in (
        (lambda: limits.check_producers(1, "t"), ServerError.ProducerBusy),
        (lambda: limits.check_consumers(3, 0, "t"), ServerError.ConsumerBusy),
        (lambda: limits.check_consumers(2, 2, "t"), ServerError.ConsumerBusy),
        (lambda: limits.check_subscriptions(1, "t"), ServerError.NotAllowedError),
    ):
        with pytest.raises(ProtocolError) as refused:
            check()
        assert refused.value.code is code


def test_a_rate_on_top_of_what_is_published_is_one() -> None:
    given = {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}
    decoded = DISPATCH_RATE.codec.decode(given)
    assert decoded == RateLimit(5, 0, 1, relative=True)
    assert DISPATCH_RATE.codec.decode(DISPATCH_RATE.codec.encode(decoded)) == decoded
    with pytest.raises(ValueError, match="relativeToPublishRate"):
        DISPATCH_RATE.codec.decode({**given, "relativeToPublishRate": 1})


def test_a_relative_rate_adds_what_is_published() -> None:
    published = [0.0, 0.0]
    throttle = Throttle(RateLimit(10, 0, 1, relative=True), 0, lambda: (published[0], published[1]))
    throttle.take(10, 0, 0)
    assert throttle.wait_ms(0) == 100
    published[0] = 40
    throttle.take(0, 0, 1_000)
    assert throttle.wait_ms(1_000) == 0
    throttle.take(60, 0, 2_000)
    assert throttle.wait_ms(2_000) == pytest.approx(1_000 * 11 / 50), "50 a second"
    published[0] = 0
    throttle.take(50, 0, 3_000)
    assert throttle.wait_ms(3_000) > 500, "10 a second again"


def test_a_relative_rate_is_looked_at_again_before_a_long_wait_is_over() -> None:
    published = [0.0]
    throttle = Throttle(RateLimit(1, 0, 86_400, relative=True), 0, lambda: (published[0], 0))
    throttle.take(1, 0, 0)
    assert throttle.wait_ms(0) == FOLLOW_MS
    published[0] = 5
    assert throttle.wait_ms(1_000) == pytest.approx(200, rel=0.01)


def test_what_is_not_limited_stays_so_when_a_rate_is_relative() -> None:
    throttle = Throttle(RateLimit(0, 100, 1, relative=True), 0, lambda: (1, 50))
    throttle.take(10**6, 150, 0)
    assert 0 < throttle.wait_ms(0) < 1_000
    assert throttle_of(RateLimit(0, 0, 1, relative=True), 0, lambda: (1, 1)) is None


def test_a_rate_that_is_not_relative_reads_no_publish_rate() -> None:
    def publish_rate() -> tuple[float, float]:
        raise AssertionError

    throttle = Throttle(RateLimit(10, 0, 1), 0, publish_rate)
    assert throttle.wait_ms(0) == 0
