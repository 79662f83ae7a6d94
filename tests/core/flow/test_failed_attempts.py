"""The limit of failed attempts per source: its budget, its memory, and what counts as one source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.flow import failed_attempts
from emulator.core.flow.failed_attempts import PERIOD_SECONDS, FailedAttempts, source_of


def test_a_source_waits_when_its_failures_are_used_up() -> None:
    failures = FailedAttempts(3)
    for _ in range(3):
        assert failures.wait_seconds("a", 100.0) == 0
        failures.note("a", 100.0)
    assert failures.wait_seconds("a", 100.0) == pytest.approx(20.0)
    assert failures.wait_seconds("a", 110.0) == pytest.approx(10.0)
    assert failures.wait_seconds("b", 100.0) == 0
    assert failures.wait_seconds("a", 120.0) == 0
    failures.note("a", 120.0)
    assert failures.wait_seconds("a", 120.0) == pytest.approx(20.0)


def test_without_a_limit_no_source_waits_or_is_stored() -> None:
    failures = FailedAttempts(0)
    for _ in range(1_000):
        failures.note("a", 1.0)
    assert (failures.wait_seconds("a", 1.0), len(failures)) == (0, 0)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 40.0), st.booleans()), max_size=60),
)
def test_no_source_fails_more_often_than_its_limit_permits(
    failures_max: int, attempts: list[tuple[str, float, bool]]
) -> None:
    """In each period, a source fails at most twice its limit: what it had, and what it regains meanwhile."""
    failures, now, failed = FailedAttempts(failures_max), 0.0, dict[str, list[float]]()
    for source, later, is_wrong in attempts:
        now += later
        if failures.wait_seconds(source, now) == 0 and is_wrong:
            failures.note(source, now)
            failed.setdefault(source, []).append(now)
    for times in failed.values():
        for first in times:
            assert sum(first <= time < first + PERIOD_SECONDS for time in times) <= 2 * failures_max


def test_the_memory_for_sources_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_attempts, "SOURCES_MAX", 10)
    failures = FailedAttempts(1)
    failures.note("attacker", 0.0)
    for number in range(9):
        failures.note(f"host {number}", 0.0)
    failures.note("attacker", 60.0)
    for number in range(9, 18):
        failures.note(f"host {number}", 60.0)
    assert len(failures) == 10
    assert failures.wait_seconds("attacker", 61.0) > 0, "the oldest sources are forgotten first"
    failures.note("a", 1_000.0)
    assert len(failures) == 1, "whole budgets are forgotten"


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]", "2001:db8:1:2::"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("us-east", "us-east"),
        ("", ""),
    ],
)
def test_a_source_is_an_address_or_an_ipv6_network(host: str, source: str) -> None:
    assert source_of(host) == source
