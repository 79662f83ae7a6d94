"""When the remote end of a link is considered dead."""

from __future__ import annotations

import pytest

from emulator.core.flow.failure_detector import CALM_INTERVALS, INTERVALS_MAX, FailureDetector


def silent_intervals(detector: FailureDetector) -> int:
    """Return the number of silent intervals after which the peer of a new connection is considered dead."""
    detector.heard()
    assert not detector.interval_over()
    intervals = 1
    while not detector.interval_over():
        intervals += 1
    return intervals


@pytest.fixture
def detector() -> FailureDetector:
    return FailureDetector()


def test_a_peer_that_is_silent_for_an_interval_is_dead() -> None:
    assert silent_intervals(FailureDetector()) == 1


def test_a_peer_that_sends_now_and_then_is_alive(detector: FailureDetector) -> None:
    for _ in range(100):
        detector.heard()
        assert not detector.interval_over()


def test_each_drop_doubles_the_allowance_of_the_next_connection_up_to_a_bound(
    detector: FailureDetector,
) -> None:
    assert [silent_intervals(detector) for _ in range(4)] == [1, 2, 4, 8]
    for _ in range(10):
        silent_intervals(detector)
    assert silent_intervals(detector) == INTERVALS_MAX


def test_a_link_with_long_traffic_is_allowed_one_interval_again(detector: FailureDetector) -> None:
    for _ in range(3):
        silent_intervals(detector)
    for _ in range(3 * CALM_INTERVALS):
        detector.heard()
        detector.interval_over()
    assert silent_intervals(detector) == 1


def test_a_short_breath_of_a_new_connection_does_not_count_as_calm(detector: FailureDetector) -> None:
    """The handshake arrives, and then the same large entry is sent again."""
    silent_intervals(detector)
    for _ in range(CALM_INTERVALS - 2):
        detector.heard()
        detector.interval_over()
    assert silent_intervals(detector) == 2
