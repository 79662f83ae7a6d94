"""The output of `geoemu failover-plan` and `geoemu translate`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator.cli.failover import plan_as_text, translation_as_text
from emulator.model.failover_plans import FailoverPlan, PartitionedPlan, Translation

PLAN = FailoverPlan(
    topic="persistent://public/default/orders",
    subscription="billing",
    source="us-east",
    target="eu-central",
    redelivered_messages=1_238,
    exact=True,
    quiet=True,
    resume="3413002:67",
    oldest_redelivered_age_ms=12_140,
    skipped_messages=0,
    missing_messages=3,
    information_age_ms=0,
    why=("mark-delete 113 has not reached the oldest of 8 known snapshots (entry 135, 22 entries later)",),
    wait_for=("acknowledgements up to entry 135",),
)


def test_a_plan_is_printed_in_80_columns() -> None:
    assert plan_as_text(PLAN).splitlines() == [
        "billing of orders: us-east -> eu-central",
        "  redelivered  1,238 messages; the oldest was published 12.1 s ago",
        "  resumes at   3413002:67",
        "  skipped      0 messages",
        "  missing      3 messages, not stored in eu-central yet",
        "  knowledge    present: us-east contributed to the plan",
        "  because      mark-delete 113 has not reached the oldest of 8 known snapshots",
        "               (entry 135, 22 entries later)",
        "  waits for    acknowledgements up to entry 135",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"exact": False}, "  redelivered  at most 1,238 messages; the oldest was published 12.1 s ago"),
        ({"complete": False, "exact": False}, "  redelivered  at least 1,238 messages; no bound is known"),
        ({"oldest_redelivered_age_ms": None}, "  redelivered  1,238 messages"),
        ({"resume": None}, "  resumes at   the next message that eu-central stores"),
        ({"skipped_messages": None}, "  skipped      unknown: us-east does not respond"),
        ({"missing_messages": None}, "  missing      unknown: us-east does not respond"),
        ({"information_age_ms": 20_800}, "  knowledge    20.8 s old: the newest position that us-east sent"),
        (
            {"information_age_ms": None},
            "  knowledge    none: eu-central received no position of the subscription from",
        ),
    ],
)
def test_a_plan_states_what_is_a_bound_or_unknown(change: dict[str, object], line: str) -> None:
    text = plan_as_text(replace(PLAN, **change))  # type: ignore[arg-type]
    assert line in text.splitlines()
    assert max(map(len, text.splitlines())) <= 80


def test_a_plan_of_partitions_has_sums_and_a_row_for_each() -> None:
    other = replace(PLAN, redelivered_messages=2, exact=False, resume=None, missing_messages=None)
    lines = plan_as_text(PartitionedPlan.of(PLAN.topic, (PLAN, other))).splitlines()
    assert lines[:4] == [
        "billing of orders: us-east -> eu-central",
        "  redelivered  at most 1,240 messages; the oldest was published 12.1 s ago",
        "  skipped      0 messages",
        "  missing      unknown: us-east does not respond",
    ]
    assert lines[-4:] == [
        "  partition 0  1,238 messages; the oldest was published 12.1 s ago; resumes at",
        "               3413002:67",
        "  partition 1  at most 2 messages; the oldest was published 12.1 s ago; resumes",
        "               at the next message",
    ]
    assert max(map(len, lines)) <= 80


def test_a_translation_is_exact_or_has_bounds() -> None:
    found = Translation(
        PLAN.topic, "5:17", "us-east", "eu-central", exact="3:9", origin="us-east:5:17", basis="the entry"
    )
    assert translation_as_text(found).splitlines() == [
        "orders: position 5:17 of us-east, translated to eu-central",
        "  exact        3:9",
        "  origin       us-east:5:17",
        "  by           the entry",
    ]
    bounds = replace(found, exact=None, after="3:8", origin=None, basis="a snapshot of us-east")
    assert translation_as_text(bounds).splitlines()[1:] == [
        "  after        3:8",
        "  up to        unknown",
        "  origin       unknown",
        "  by           a snapshot of us-east",
    ]


def test_json_contains_every_field() -> None:
    assert FailoverPlan.from_json(PLAN.to_json()) == PLAN
    whole = PartitionedPlan.of(PLAN.topic, (PLAN, PLAN)).to_json()
    assert whole["redelivered_messages"] == 2 * PLAN.redelivered_messages
    assert whole["partitions"] == [PLAN.to_json(), PLAN.to_json()]
    assert whole.keys() == {*PLAN.to_json(), "partitions"}
    found = Translation(PLAN.topic, "5:17", "us-east", "eu-central")
    assert Translation.from_json(found.to_json()) == found
