"""How long actors stood still."""

from __future__ import annotations

from emulator.history import Event
from spark_jobs.engines.contract import Engine
from spark_jobs.engines.current import in_use
from spark_jobs.measures import Measures, Stretch, take_measures

from .literal import evidence_from, published, received, stored, subscribed


def measured(engine: Engine, events: list[Event | list[Event]], messages: int, end_ms: float) -> Measures:
    rows = [stored(region, number, number) for region in ("a", "b") for number in range(messages)]
    with in_use(engine):
        return take_measures(evidence_from(rows, events), end_ms, [])


def slowly(sequence_id: int, asked_ms: float, acked_ms: float) -> list[Event]:
    return [published(sequence_id, at_ms=asked_ms)[0], published(sequence_id, at_ms=acked_ms - 1)[1]]


def test_the_longest_wait_is_told_first_then_others_that_were_long(engine: Engine) -> None:
    events: list[Event | list[Event]] = [
        published(0, at_ms=10),
        slowly(1, 3000, 3400),
        slowly(2, 5000, 6500),
        # Short, and not the longest.
        slowly(3, 7000, 7100),
    ]
    assert measured(engine, events, 4, 8000).outages == {
        "p": (Stretch(1.5, 5000.0, True), Stretch(0.4, 3000.0, True))
    }


def test_an_actor_that_never_waited_long_has_its_longest_wait(engine: Engine) -> None:
    assert measured(engine, [slowly(0, 100, 107)], 1, 8000).outages == {"p": (Stretch(0.007, 100.0, True),)}


def test_a_wait_without_an_end_goes_on_until_the_history_ends(engine: Engine) -> None:
    events: list[Event | list[Event]] = [published(0, at_ms=10), published(1, at_ms=5000)[:1]]
    assert measured(engine, events, 1, 8000).outages["p"][0] == Stretch(3.0, 5000.0, False)


def test_a_stall_begins_when_something_waits_and_not_when_nothing_is_there(engine: Engine) -> None:
    events: list[Event | list[Event]] = [
        subscribed("a"),
        published(0, at_ms=10),
        received(0, "a", 20),
        published(1, at_ms=5000),
        received(1, "a", 5601),
    ]
    assert measured(engine, events, 2, 8000).stalls["s"][0] == Stretch(0.6, 5001.0, True)
