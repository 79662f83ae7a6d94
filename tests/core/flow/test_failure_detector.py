"""When the remote end of a link is considered dead."""

from __future__ import annotations

from emulator.core.flow.failure_detector import CALM_INTERVALS, INTERVALS_MAX, Silence


def silent_intervals(silence: Silence) -> int:
    """Return the number of silent intervals after which the peer of a new connection is considered dead."""
    silence.heard()
    assert not silence.interval_over()
    intervals = 1
    while not silence.interval_over():
        intervals += 1
    return intervals


def test_who_says_nothing_for_an_interval_is_dead() -> None:
    assert silent_intervals(Silence()) == 1


def test_who_is_heard_now_and_then_lives() -> None:
    silence = Silence()
    for _ in range(100):
        silence.heard()
        assert not silence.interval_over()


def test_each_time_in_vain_the_next_connection_is_given_twice_as_long_up_to_a_bound() -> None:
    silence = Silence()
    assert [silent_intervals(silence) for _ in range(4)] == [1, 2, 4, 8]
    for _ in range(10):
        silent_intervals(silence)
    assert silent_intervals(silence) == INTERVALS_MAX


def test_a_link_that_is_heard_for_long_is_held_to_one_interval_again() -> None:
    silence = Silence()
    for _ in range(3):
        silent_intervals(silence)
    for _ in range(3 * CALM_INTERVALS):
        silence.heard()
        silence.interval_over()
    assert silent_intervals(silence) == 1


def test_a_short_breath_of_a_new_connection_does_not_count_as_calm() -> None:
    """The handshake arrives, and then the same large entry is sent again."""
    silence = Silence()
    silent_intervals(silence)
    for _ in range(CALM_INTERVALS - 2):
        silence.heard()
        silence.interval_over()
    assert silent_intervals(silence) == 2
