"""Fail-over plans of a run, compared with the fail-overs that followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from emulator.run.history_events import HistoryEvent
from spark_jobs.checks.check import Circumstances
from spark_jobs.checks.plans_kept import over_estimates, plan_figures, plans_kept
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.evidence.positions import place_number
from spark_jobs.frames.plans import PlanComparison, compare_plans
from spark_jobs.frames.summary import summarise_history
from spark_jobs.sources.plans import recorded_plans
from spark_jobs.verdict import CheckResult
from tests.spark_jobs.literal import (
    NAMESPACES,
    TOPIC,
    Row,
    acknowledged,
    event,
    evidence_from,
    history_frame,
    published,
    received,
    stored,
    subscribed,
)

ALL = Circumstances(NAMESPACES)
PLANNED_MS, MOVED_MS = 100.0, 110.0
LAST = 9
"""Entry id of the last of the ten messages; in b, where an entry of its own comes first, it is one higher."""
Events = Iterable[HistoryEvent | list[HistoryEvent]]


def planned(
    redelivered: int,
    *,
    at_ms: float = PLANNED_MS,
    exact: bool = True,
    quiet: bool = True,
    source: str = "a",
    target: str = "b",
    **fields: Any,
) -> HistoryEvent:
    figures = {"begun_at_ms": at_ms - 1, "redelivered_messages": redelivered, "exact": exact, "quiet": quiet}
    place = {"region": source, "other_region": target, "subscription": "s"}
    return event(at_ms, "failover_plan", "fact", **place, plan=figures | fields)


def state(mark_delete: int, *ranges: list[int], last: int = LAST + 1) -> dict[str, object]:
    """Return what a plan states of a's cursor, and of the end of b's log."""
    return {
        "source_mark_delete": f"1:{mark_delete}",
        "source_acknowledged": list(ranges),
        "target_last": f"1:{last}",
    }


def consumed(
    region: str, numbers: Iterable[int], at_ms: float, *, first_entry: int = 0
) -> list[HistoryEvent]:
    """Receive and acknowledge messages. `first_entry`: entry id of message 0 in the region."""
    return [
        one
        for number in numbers
        for one in (
            received(number, region, at_ms, first_entry + number),
            acknowledged(region, first_entry + number, at_ms + 0.5),
        )
    ]


def in_b(numbers: Iterable[int], at_ms: float = MOVED_MS + 1) -> list[HistoryEvent]:
    return consumed("b", numbers, at_ms, first_entry=1)


def compared(*events: HistoryEvent | list[HistoryEvent]) -> PlanComparison:
    """Compare the only plan. Ten messages of a are stored in both regions; b counts all as acknowledged at the end."""
    (comparison,) = all_compared(events)
    return comparison


def all_compared(events: Events, *, cursors: Sequence[Row] | None = None) -> tuple[PlanComparison, ...]:
    rows = [stored("a", number, number) for number in range(10)]
    rows += [stored("b", 0, 0, "b", producer="other")]
    rows += [stored("b", 1 + number, number) for number in range(10)]
    before: Events = [subscribed("a"), *(published(number) for number in range(10))]
    history = [one for item in [*before, *events] for one in (item if isinstance(item, list) else [item])]
    evidence = evidence_from(rows, history, cursors=[counts(0, LAST + 1)] if cursors is None else cursors)
    facts = summarise_history(history_frame(history)).facts
    return compare_plans(evidence, recorded_plans(facts))


def counts(first: int, last: int) -> Row:
    """Return a row of CURSOR_SCHEMA: the cursor of s in b counts the entries from `first` to `last`."""
    return (TOPIC, "s", "b", place_number(1, first), place_number(1, last), place_number(1, LAST + 1))


def verdict(*comparisons: PlanComparison, circumstances: Circumstances = ALL) -> CheckResult:
    return plans_kept(comparisons, circumstances)


MOVED = subscribed("b", MOVED_MS)
IN_A = consumed("a", range(6), 50)
"""The consumer acknowledged 0 to 5 in a."""


def test_a_plan_that_predicts_the_redeliveries_is_kept(engine: QueryEngine) -> None:
    """b counted 0 to 3 as acknowledged; it delivers 4 and 5 again."""
    found = compared(IN_A, planned(2, **state(5)), MOVED, in_b(range(4, 10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 2, 0)
    assert found.is_exact
    assert found.over_estimate == 0
    assert verdict(found).verdict == "valid"


def test_a_shorter_range_from_the_first_entry_hides_no_longer_one(engine: QueryEngine) -> None:
    """A stored cursor may list entries up to its mark-delete position again, part by part."""
    events = [*IN_A, planned(2, **state(5)), MOVED, *in_b(range(4, 10))]
    for cursors in ([counts(0, 3), counts(0, 10)], [counts(0, 10), counts(0, 3)]):
        (found,) = all_compared(events, cursors=cursors)
        assert found.is_exact


def test_more_redeliveries_than_planned_break_the_plan(engine: QueryEngine) -> None:
    found = compared(IN_A, planned(2, **state(5)), MOVED, in_b(range(3, 10)))
    assert (found.outcome, found.redelivered) == ("exceeded", 3)
    result = verdict(found)
    assert result.verdict == "invalid"
    assert "the plan stated 2, and 3 messages were redelivered" in result.sentence
    (witness,) = result.witness
    assert witness["kind"] == "more than planned"
    assert (witness["region"], witness["other_region"], witness["subscription"]) == ("b", "a", "s")
    assert (witness["planned"], witness["redelivered"]) == (2, 3)


def test_fewer_redeliveries_break_an_exact_plan_of_a_quiet_topic(engine: QueryEngine) -> None:
    found = compared(IN_A, planned(3, **state(5)), MOVED, in_b(range(4, 10)))
    assert (found.outcome, found.redelivered) == ("missed", 2)
    assert verdict(found).verdict == "invalid"
    assert verdict(found).witness[0]["kind"] == "fewer than planned"


@pytest.mark.parametrize(
    ("changed", "events", "cursors"),
    [
        pytest.param({"exact": False}, [MOVED, *in_b(range(4, 10))], None, id="upper bound"),
        pytest.param({"quiet": False}, [MOVED, *in_b(range(4, 10))], None, id="not quiet"),
        pytest.param(
            {}, [*consumed("a", [6], 105), MOVED, *in_b(range(4, 10))], None, id="acknowledged since"
        ),
        pytest.param({}, [MOVED, *in_b(range(4, 6))], [counts(0, 6)], id="not consumed to the end"),
        pytest.param({}, [MOVED, *in_b(range(4, 10))], [], id="no cursor"),
        pytest.param(
            {}, [MOVED, *in_b(range(4, 10)), subscribed("a", 150)], None, id="the consumer left again"
        ),
    ],
)
def test_fewer_redeliveries_are_an_over_estimate_otherwise(
    engine: QueryEngine, changed: dict[str, Any], events: Events, cursors: Sequence[Row] | None
) -> None:
    (found,) = all_compared([*IN_A, planned(3, **changed, **state(5)), *events], cursors=cursors)
    assert (found.outcome, found.redelivered, found.over_estimate) == ("kept", 2, 1)
    assert not found.is_exact
    assert verdict(found).verdict == "valid"


def test_messages_acknowledged_since_the_plan_may_be_redelivered(engine: QueryEngine) -> None:
    later = consumed("a", [6, 7], 102)
    found = compared(IN_A, planned(2, **state(5)), later, MOVED, in_b(range(4, 10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 2, 2)


def test_an_acknowledgement_that_the_region_had_not_received_counts_as_since_the_plan(
    engine: QueryEngine,
) -> None:
    """The client recorded the request before it sent it: a counted only 0 to 3."""
    found = compared(IN_A, planned(0, **state(3)), MOVED, in_b(range(4, 10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 0, 2)


def test_cumulative_acknowledgements_count_what_they_acknowledge(engine: QueryEngine) -> None:
    receives = [received(number, "a", 50, number) for number in range(9)]
    asked = acknowledged("a", 8, 60, how="cumulative")
    found = compared(receives, asked, planned(2, **state(5)), MOVED, in_b(range(4, 10)))
    assert (found.redelivered, found.acknowledged_since) == (2, 3)


def test_individual_acknowledgements_are_part_of_the_plan(engine: QueryEngine) -> None:
    """Shared: 0 is open, so b received no position; a acknowledged 1 to 5 and 8."""
    in_a = consumed("a", [1, 2, 3, 4, 5, 8], 50)
    stated = state(-1, [1, 5], [8, 8])
    found = compared(in_a, planned(6, **stated), MOVED, in_b(range(10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 6, 0)
    assert found.is_exact
    assert compared(in_a, planned(5, **stated), MOVED, in_b(range(10))).outcome == "exceeded"


def test_overlapping_ranges_count_a_message_once(engine: QueryEngine) -> None:
    stated = state(-1, [4, 8], [1, 5], [2, 3], [7, 6])
    found = compared(consumed("a", range(1, 9), 50), planned(8, **stated), MOVED, in_b(range(10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 8, 0)


def test_a_range_that_the_plan_omits_makes_it_weaker_and_not_wrong(engine: QueryEngine) -> None:
    in_a = consumed("a", [1, 2, 8], 50)
    found = compared(in_a, planned(3, **state(-1, [1, 2])), MOVED, in_b(range(10)))
    assert (found.outcome, found.redelivered, found.acknowledged_since) == ("kept", 2, 1)
    assert not found.is_exact


def test_a_message_delivered_twice_after_the_failover_is_one_redelivery(engine: QueryEngine) -> None:
    found = compared(IN_A, planned(2, **state(5)), MOVED, in_b(range(4, 10)), in_b([4, 5], 140))
    assert (found.outcome, found.redelivered) == ("kept", 2)


def test_a_message_is_redelivered_that_the_target_delivered_before_the_plan(engine: QueryEngine) -> None:
    """b delivered 4 earlier, and its consumer left without acknowledging it; a's consumer did."""
    earlier = [subscribed("b", 20), received(4, "b", 21, 5), subscribed("a", 40)]
    found = compared(earlier, IN_A, planned(2, **state(5)), MOVED, in_b(range(4, 10)))
    assert (found.outcome, found.redelivered) == ("kept", 2)
    assert compared(earlier, IN_A, planned(1, **state(5)), MOVED, in_b(range(4, 10))).outcome == "exceeded"


def test_a_plan_without_a_response_of_the_source_bounds_what_the_target_stored(engine: QueryEngine) -> None:
    """b stored 0 to 6 and had acknowledged nothing."""
    alone = {"target_last": "1:7", "exact": False, "quiet": False}
    found = compared(IN_A, planned(7, **alone), MOVED, in_b(range(10)))
    assert (found.outcome, found.redelivered, found.over_estimate) == ("kept", 6, 1)
    wrong = compared(IN_A, planned(6, **alone), MOVED, in_b(range(10)))
    assert (wrong.outcome, wrong.redelivered) == ("exceeded", 7)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        pytest.param([], "not followed", id="no failover"),
        pytest.param([subscribed("b", 90), *in_b([8])], "not followed", id="a standby consumer"),
        pytest.param([subscribed("c", MOVED_MS)], "not followed", id="to another region"),
        pytest.param(
            [MOVED, event(120, "seek", "ok", region="b", subscription="s"), *in_b(range(10), 130)],
            "moved",
            id="sought",
        ),
        pytest.param(
            [subscribed("b", 90), *in_b([0], 105), MOVED, *in_b(range(10))],
            "consumed in both",
            id="two consumers",
        ),
    ],
)
def test_a_plan_is_not_compared(engine: QueryEngine, events: Events, outcome: str) -> None:
    (found,) = all_compared([*IN_A, planned(0, **state(5)), *events])
    assert found.outcome == outcome
    result = verdict(found)
    assert result.verdict == "not applicable"
    assert "No plan could be compared. Not compared: " in result.sentence


def test_each_plan_before_a_failover_is_compared_with_it(engine: QueryEngine) -> None:
    events = [*IN_A, planned(5, **state(4)), planned(2, at_ms=105.0, **state(5)), MOVED, *in_b(range(4, 10))]
    first, second = all_compared(events)
    assert (first.redelivered, first.over_estimate) == (1, 4)
    assert (second.redelivered, second.over_estimate) == (2, 0)
    result = verdict(first, second)
    assert result.verdict == "valid"
    assert (
        "2 plans compared with the fail-over that followed: 7 messages planned, 3 redelivered"
        in result.sentence
    )
    assert "Over-estimate: p50 0, p99 4 messages." in result.sentence


def test_a_failover_ends_when_the_subscription_continues_elsewhere(engine: QueryEngine) -> None:
    """Messages that b delivers after the fail-back belong to another fail-over."""
    back = [subscribed("a", 130), *consumed("a", [6, 7], 131), subscribed("b", 140), *in_b(range(3), 141)]
    found = compared(IN_A, planned(2, **state(5)), MOVED, in_b([4, 5]), back)
    assert (found.outcome, found.redelivered) == ("kept", 2)


IN_B = in_b([4, 5, 6, 7])
"""b delivers 4 to 7; 8 and 9 are received by no consumer, and acknowledged by none."""


@pytest.mark.parametrize(("stated", "outcome"), [(0, "skipped"), (1, "skipped"), (2, "kept"), (None, "kept")])
def test_a_fail_over_skips_at_most_the_planned_number(
    engine: QueryEngine, stated: int | None, outcome: str
) -> None:
    """b counts 8 and 9 as acknowledged."""
    known = {} if stated is None else {"skipped_messages": stated}
    found = compared(IN_A, planned(2, **known, **state(5)), MOVED, IN_B)
    assert (found.outcome, found.skipped) == (outcome, 2)
    result = verdict(found)
    assert result.verdict == ("invalid" if outcome == "skipped" else "valid")
    if outcome == "skipped":
        assert f"the plan stated {stated} skipped messages, and b skipped 2" in result.sentence
        assert result.witness[0]["kind"] == "more skipped than planned"
        assert (result.witness[0]["planned_skipped"], result.witness[0]["skipped"]) == (stated, 2)


@pytest.mark.parametrize(
    ("events", "cursors"),
    [
        pytest.param([MOVED, IN_B], [counts(0, 8)], id="not counted by the target"),
        pytest.param([MOVED, IN_B, [received(n, "b", 120, 1 + n) for n in (8, 9)]], None, id="delivered"),
        pytest.param(
            [MOVED, IN_B, subscribed("a", 150), consumed("a", [8, 9], 151)], None, id="acknowledged"
        ),
    ],
)
def test_a_message_is_not_skipped_that_is_delivered_or_open_or_acknowledged(
    engine: QueryEngine, events: Events, cursors: Sequence[Row] | None
) -> None:
    (found,) = all_compared([IN_A, planned(2, skipped_messages=0, **state(5)), *events], cursors=cursors)
    assert (found.outcome, found.skipped) == ("kept", 0)
    assert "Skipped: 0 planned, 0 found." in verdict(found).sentence


def test_messages_that_the_source_had_acknowledged_are_not_skipped(engine: QueryEngine) -> None:
    """Its cursor is wrong, which is the fault of INV-18: no consumer acknowledged 8 and 9."""
    found = compared(IN_A, planned(2, skipped_messages=0, **state(5, [8, 9])), MOVED, IN_B)
    assert (found.outcome, found.skipped) == ("kept", 0)


@pytest.mark.parametrize(("at_ms", "skipped"), [(5.0, 0), (12.0, 2)])
def test_a_plan_states_nothing_of_messages_that_are_published_later(
    engine: QueryEngine, at_ms: float, skipped: int
) -> None:
    """Producers receive their acknowledgements at 11."""
    stated = planned(0, at_ms=at_ms, skipped_messages=0, **state(-1))
    found = compared(stated, subscribed("b", 20), in_b(range(8), 21))
    assert found.skipped == skipped


def test_without_plans_nothing_is_computed(engine: QueryEngine) -> None:
    assert compare_plans(None, ()) == ()  # type: ignore[arg-type]
    assert verdict().verdict == "not applicable"
    assert plan_figures(()) is None


@pytest.mark.parametrize(
    "circumstances",
    [
        Circumstances(NAMESPACES, history_damaged=True),
        Circumstances(NAMESPACES, damaged_regions=frozenset("a")),
        Circumstances(NAMESPACES, damaged_regions=frozenset("b")),
    ],
    ids=["history", "source", "target"],
)
def test_damaged_evidence_proves_no_broken_plan(engine: QueryEngine, circumstances: Circumstances) -> None:
    found = compared(IN_A, planned(1, **state(5)), MOVED, in_b(range(4, 10)))
    result = verdict(found, circumstances=circumstances)
    assert result.verdict == "unknown"
    assert result.witness


def test_the_figures_are_percentiles_of_the_over_estimates(engine: QueryEngine) -> None:
    plan = compared(IN_A, planned(2, **state(5)), MOVED, in_b(range(4, 10))).plan
    several = [PlanComparison(plan, "kept", redelivered=2 - over) for over in (0, 1, 5, 2)]
    several.append(PlanComparison(plan, "not followed"))
    assert over_estimates(several) == (1, 5)
    figures = plan_figures(several)
    assert figures is not None
    assert (figures["compared"], figures["over_estimate"]) == (4, {"p50": 1, "p99": 5})
    assert "redelivered" not in figures["plans"][-1]
    assert figures["plans"][0]["from"] == "a"
