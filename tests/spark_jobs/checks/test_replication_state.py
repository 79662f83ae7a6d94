"""The messages that another failover would deliver again, and positions that diverge."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from emulator.run.history_events import HistoryEvent
from spark_jobs.checks.replication_state import (
    SubscriptionState,
    measure_replication_state,
    replication_state_result,
)
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.evidence.positions import place_number
from spark_jobs.sources.policies import Namespace
from tests.spark_jobs.literal import (
    NAMESPACES,
    TOPIC,
    Row,
    acknowledged,
    evidence_from,
    published,
    received,
    stored,
    subscribed,
)

BOTH = ("a", "b")


def standings(
    engine: QueryEngine,
    acknowledged_in: dict[str, Iterable[int]],
    cursors: Iterable[Row],
    regions: Iterable[str] = BOTH,
    *,
    replicated: bool = True,
) -> tuple[SubscriptionState, ...]:
    """Evaluate ten messages of a in both regions. `acknowledged_in`: region -> numbers that s acknowledged there, in
    this order."""
    rows = [stored(region, number, number) for region in BOTH for number in range(10)]
    events: list[HistoryEvent | list[HistoryEvent]] = [
        subscribed(region, replicated=replicated) for region in BOTH
    ]
    events += [published(number) for number in range(10)]
    at_ms = 50.0
    for region, numbers in acknowledged_in.items():
        for number in numbers:
            at_ms += 1
            events += [received(number, region, at_ms), acknowledged(region, number, at_ms + 0.5)]
    with use_engine(engine):
        evidence = evidence_from(rows, events, cursors=cursors)
        return measure_replication_state(evidence, list(regions), NAMESPACES)


def counts(region: str, first: int, last: int) -> Row:
    """Return a row of CURSOR_SCHEMA: the cursor of s counts the entries from `first` to `last`."""
    return (TOPIC, "s", region, place_number(1, first), place_number(1, last), place_number(1, 9))


def test_what_the_other_region_s_cursor_does_not_count_would_be_read_again(engine: QueryEngine) -> None:
    (one,) = standings(engine, {"a": range(10)}, [counts("a", 0, 9), counts("b", 0, 3), counts("b", 7, 7)])
    assert (one.subscription, one.region) == ("s", "a")
    assert one.redelivered == {"b": 5}
    assert one.split == {}


def test_where_no_position_ever_arrived_everything_would_be(engine: QueryEngine) -> None:
    (one,) = standings(engine, {"a": range(4)}, [counts("a", 0, 3)])
    assert one.redelivered == {"b": 4}


def test_a_position_is_split_when_each_counts_what_the_other_does_not(engine: QueryEngine) -> None:
    cursors = [counts("a", 0, 7), counts("b", 0, 3), counts("b", 8, 9)]
    (one,) = standings(engine, {"a": range(8), "b": [8, 9]}, cursors)
    assert (one.region, one.redelivered) == ("b", {"a": 2})
    assert one.split == {("a", "b"): (4, 2)}
    told = replication_state_result([one], [], NAMESPACES)
    assert told is not None
    assert told.sentence == (
        "If s failed over from b now, it would receive 2 messages again in a."
        " s is split: 4 messages acknowledged in a and not in b, 2 in b and not in a."
    )


def test_a_cursor_that_begins_with_a_hole_does_not_count_the_hole(engine: QueryEngine) -> None:
    (one,) = standings(engine, {"a": range(10)}, [counts("a", 0, 9), counts("b", 4, 6)])
    assert one.redelivered == {"b": 7}


def test_regions_that_are_lost_are_no_place_to_go(engine: QueryEngine) -> None:
    (one,) = standings(engine, {"b": range(10)}, [counts("b", 0, 9)], regions=["b"])
    assert one.redelivered == {}


def test_a_subscription_of_one_region_is_not_reported(engine: QueryEngine) -> None:
    assert standings(engine, {"a": range(4)}, [counts("a", 0, 3)], replicated=False) == ()


@pytest.mark.parametrize(("lost", "grows"), [(["c"], True), ([], False)])
def test_after_a_loss_the_sentence_explains_the_growing_number(lost: list[str], grows: bool) -> None:
    told = replication_state_result(
        [SubscriptionState("s", TOPIC, "a", {"b": 12})],
        lost,
        {"public/default": Namespace((*BOTH, "c"), True)},
    )
    assert told is not None
    assert ("No snapshot completes without c" in told.sentence) == grows
