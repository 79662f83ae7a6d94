"""Outages of actors: how long they made no progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from emulator.run.history_events import HistoryEvent
from spark_jobs.engines.contract import QueryEngine
from spark_jobs.engines.frames import use_engine
from spark_jobs.figures.measures import Measures, Stretch, take_measures
from spark_jobs.frames.faults import down_on_purpose
from tests.spark_jobs.literal import evidence_from, published, received, stored, subscribed


def measured(
    engine: QueryEngine,
    events: list[HistoryEvent | list[HistoryEvent]],
    messages: int,
    end_ms: float,
    down_on_purpose: Mapping[str, list[float]] | None = None,
) -> Measures:
    rows = [stored(region, number, number) for region in ("a", "b") for number in range(messages)]
    with use_engine(engine):
        return take_measures(evidence_from(rows, events), end_ms, [], down_on_purpose)


def slowly(sequence_id: int, asked_ms: float, acked_ms: float) -> list[HistoryEvent]:
    return [published(sequence_id, at_ms=asked_ms)[0], published(sequence_id, at_ms=acked_ms - 1)[1]]


def test_the_longest_wait_is_first_then_others_that_were_long(engine: QueryEngine) -> None:
    events: list[HistoryEvent | list[HistoryEvent]] = [
        published(0, at_ms=10),
        slowly(1, 3000, 3400),
        slowly(2, 5000, 6500),
        # A short wait that is not the longest is not listed.
        slowly(3, 7000, 7100),
    ]
    assert measured(engine, events, 4, 8000).outages == {
        "p": (Stretch(1.5, 5000.0, True), Stretch(0.4, 3000.0, True))
    }


def test_an_actor_that_never_waited_long_has_its_longest_wait(engine: QueryEngine) -> None:
    assert measured(engine, [slowly(0, 100, 107)], 1, 8000).outages == {"p": (Stretch(0.007, 100.0, True),)}


def test_a_wait_without_an_end_goes_on_until_the_history_ends(engine: QueryEngine) -> None:
    events: list[HistoryEvent | list[HistoryEvent]] = [published(0, at_ms=10), published(1, at_ms=5000)[:1]]
    assert measured(engine, events, 1, 8000).outages["p"][0] == Stretch(3.0, 5000.0, False)


def test_a_stall_begins_when_something_waits_and_not_when_nothing_is_there(engine: QueryEngine) -> None:
    events: list[HistoryEvent | list[HistoryEvent]] = [
        subscribed("a"),
        published(0, at_ms=10),
        received(0, "a", 20),
        published(1, at_ms=5000),
        received(1, "a", 5601),
    ]
    assert measured(engine, events, 2, 8000).stalls["s"][0] == Stretch(0.6, 5001.0, True)


def test_a_message_delivered_before_its_receipt_begins_no_stall(engine: QueryEngine) -> None:
    """The receipt of message 0 arrives at 40 ms, after the delivery; message 1 is pending from 5 001 ms."""
    early: list[HistoryEvent | list[HistoryEvent]] = [
        subscribed("a"),
        slowly(0, 10, 40),
        received(0, "a", 20),
    ]
    assert measured(engine, early, 1, 8000).stalls["s"] == (Stretch(0.0, 20.0, True),)
    later = [*early, published(1, at_ms=5000), received(1, "a", 5601)]
    assert measured(engine, later, 2, 8000).stalls["s"] == (Stretch(0.6, 5001.0, True),)


@pytest.mark.parametrize("writer", ["test", "test-4711"])
def test_an_outage_ends_when_a_step_ends_the_program(engine: QueryEngine, writer: str) -> None:
    """The program was killed at 5 s and started at 7.5 s: the producer waited for 0.2 s, and later for 0.3 s."""
    events: list[HistoryEvent | list[HistoryEvent]] = [
        published(0, at_ms=10),
        published(1, at_ms=4800)[:1],
        slowly(2, 7600, 7900),
    ]
    events = [[replace(one, actor=writer) for one in item] for item in events if isinstance(item, list)]
    found = measured(engine, events, 2, 9000, {"test": [5000.0]}).outages["p"]
    assert found == (Stretch(0.3, 7600.0, True),)
    assert measured(engine, events, 2, 9000).outages["p"][0] == Stretch(3.1, 4800.0, True)


def test_the_end_of_another_program_ends_no_outage(engine: QueryEngine) -> None:
    events: list[HistoryEvent | list[HistoryEvent]] = [published(0, at_ms=10), slowly(1, 3000, 6000)]
    assert measured(engine, events, 2, 9000, {"tes": [4000.0]}).outages["p"][0] == Stretch(3.0, 3000.0, True)


def test_what_no_client_waits_for_any_more_is_no_outage(engine: QueryEngine) -> None:
    events: list[HistoryEvent | list[HistoryEvent]] = [published(0, at_ms=10), published(1, at_ms=4900)[:1]]
    assert measured(engine, events, 1, 9000, {"test": [5000.0]}).outages["p"][0] == Stretch(0.1, 4900.0, True)


def test_steps_that_end_programs_are_read_off_the_facts() -> None:
    facts = [
        {"at_ms": float(number), "op": op, "detail": detail}
        for number, (op, detail) in enumerate(
            [
                ("note", "kill shop"),
                ("note", "start shop"),
                ("note", "stop shop"),
                ("kill", None),
                ("note", "pause other shop"),
                ("note", "killing me softly"),
                ("phase", "kill shop"),
                ("note", "finish shop"),
            ]
        )
    ]
    assert down_on_purpose(facts) == {"shop": [0.0, 2.0, 7.0], "other shop": [4.0]}
