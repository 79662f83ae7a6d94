"""Figures compared with limits, and the resulting outcome."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.run.limits import parse_limits
from spark_jobs.figures.limits import check_limits, exit_code
from spark_jobs.verdict import Verdict

FIGURES: dict[str, Any] = {
    "loss": {
        "unrecovered": 62,
        "by_producer": [
            {"producer": "orders", "acknowledged": 60},
            {"producer": "returns", "acknowledged": 2},
        ],
    },
    "gaps": {"billing": 0.84, "audit": None},
    "measures": {
        "outage": {"orders": {"seconds": 2.5, "from_ms": 1.0, "ended": True}},
        "stall": {"billing": {"seconds": 0.5, "from_ms": 1.0, "ended": True}},
        "latency_seconds": {"billing": {"p50": 0.01, "p99": 0.2, "max": 3.0}},
        "lag_seconds": {"a > b": {"p50": 0.07, "p99": 0.09, "max": 2.5}},
        "repeated": {"billing": 244},
    },
}
NOTHING: dict[str, Any] = {
    "loss": None,
    "gaps": {},
    "measures": {"outage": {}, "stall": {}, "latency_seconds": {}, "repeated": {}},
}


@pytest.mark.parametrize(
    ("limit", "outcome", "said"),
    [
        ("unrecovered<=62", "kept", "unrecovered was 62"),
        ("unrecovered=0", "missed", "unrecovered was 62"),
        ("unrecovered[returns]<=2", "kept", "unrecovered was 2 (returns)"),
        ("redelivered<244", "missed", "redelivered was 244 (billing)"),
        ("gap[billing]<=1s", "kept", "gap was 0.840 s (billing)"),
        ("gap<=1m", "missed", "gap was endless (audit)"),
        ("stall<=500ms", "kept", "stall was 0.500 s (billing)"),
        ("outage<=2s", "missed", "outage was 2.500 s (orders)"),
        ("latency.p99<=200ms", "kept", "latency.p99 was 0.200 s (billing)"),
        ("latency.max<=2s", "missed", "latency.max was 3.000 s (billing)"),
        ("lag<=2s", "missed", "lag was 2.500 s (a > b)"),
        ("lag[a > b]<=3s", "kept", "lag was 2.500 s (a > b)"),
        ("outage[ordres]<=2s", "unknown", "there is no figure of ordres; figures exist for: orders"),
    ],
)
def test_the_worst_figure_decides(limit: str, outcome: str, said: str) -> None:
    (result,) = check_limits(parse_limits(limit), FIGURES)
    assert (result.outcome, result.sentence) == (outcome, said)


def test_where_nothing_was_lost_nothing_is_missed_and_where_nothing_happened_nothing_is_known() -> None:
    outcomes = [
        one.outcome for one in check_limits(parse_limits("unrecovered=0,gap<=1s,outage<=1s"), NOTHING)
    ]
    assert outcomes == ["kept", "kept", "unknown"]


@pytest.mark.parametrize(
    ("verdict", "limits", "code"),
    [
        ("valid", "unrecovered<=62", 0),
        ("valid", "unrecovered=0", 1),
        ("valid", "outage[nobody]<=1s", 2),
        ("unknown", "unrecovered<=62", 2),
        ("unknown", "unrecovered=0", 1),
        ("unknown", "unrecovered=0,outage[nobody]<=1s", 1),
        ("invalid", "unrecovered<=62", 1),
        ("valid", "", 0),
    ],
)
def test_the_gravest_decides_the_exit_code(verdict: Verdict, limits: str, code: int) -> None:
    assert exit_code(verdict, check_limits(parse_limits(limits), FIGURES)) == code
