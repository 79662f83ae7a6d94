"""Limits as users write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.run.limits import COUNTS, MEASURES, Limit, as_text, parse_limit, parse_limits


def test_limits_are_read_with_measure_actor_operator_and_value() -> None:
    assert parse_limits("unrecovered=0, redelivered<=500,gap<=5s , latency.p99[billing] < 200ms") == (
        Limit("unrecovered", None, "=", 0),
        Limit("redelivered", None, "<=", 500),
        Limit("gap", None, "<=", 5),
        Limit("latency.p99", "billing", "<", 0.2),
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("gap", "'gap' is not a limit: write for example gap<=5s"),
        ("gap>5s", "'gap>5s' is not a limit"),
        ("gpa<=5s", "'gpa' is not a measure: must be one of .* \\(did you mean 'gap'\\?\\)"),
        ("backlog<=5s", "'backlog' is not a measure: must be one of unrecovered, redelivered, gap"),
        ("gap<=5", "gap: '5' must be a duration with its unit, like 500ms, 10s or 2m"),
        ("unrecovered<=-1", "unrecovered: '-1' must be a whole number, 0 or more"),
        ("redelivered<=2s", "redelivered: '2s' must be a whole number"),
        ("outage[]<=2s", "is not a limit"),
    ],
)
def test_what_is_no_limit_is_refused_with_its_rule(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_limit(written)


_LIMITS = st.builds(
    lambda measure, actor, operator, number: Limit(
        measure, actor, operator, number if measure in COUNTS else number / 1000
    ),
    st.sampled_from(MEASURES),
    st.none() | st.text("abcdefghij-_/0123456789", min_size=1),
    st.sampled_from(("=", "<=", "<")),
    st.integers(0, 999).map(float),
)


@given(st.lists(_LIMITS, max_size=4))
def test_what_is_written_is_read_again(limits: list[Limit]) -> None:
    assert parse_limits(as_text(limits)) == tuple(limits)


@pytest.mark.parametrize(
    "written",
    [
        "unrecovered<=1000000",
        f"redelivered<{2**53}",
        "gap<=1000000s",
        "outage=1234.567s",
        "lag<=0.0000012s",
        "stall<999.9999ms",
    ],
)
def test_a_limit_with_many_digits_is_read_again_unchanged(written: str) -> None:
    limit = parse_limit(written)
    assert parse_limit(limit.text) == limit


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_limits(as_text(parse_limits(text))) == parse_limits(text)
