"""No chunk of a message is admitted twice."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.topic.deduplication import ChunkInfo, ChunkTracker


def chunks(sequence_id: int, count: int, publish_time_ms: int = 7) -> list[ChunkInfo]:
    return [ChunkInfo(sequence_id, publish_time_ms, count, number) for number in range(count)]


@pytest.fixture
def tracker() -> ChunkTracker:
    return ChunkTracker()


def test_a_chunk_that_is_admitted_is_not_admitted_again_durable_or_not(tracker: ChunkTracker) -> None:
    message = chunks(5, 4)
    assert [tracker.admit("p", one) for one in message[:2]] == [True, True]
    tracker.stored("p", message[0])
    assert [tracker.admit("p", one) for one in message] == [False, False, True, True]


def test_a_new_life_gives_the_same_number_to_another_message(tracker: ChunkTracker) -> None:
    """Half of one and half of the other would be a message that no producer sent."""
    for one in chunks(5, 3)[:2]:
        tracker.admit("p", one)
        tracker.stored("p", one)
    later = chunks(5, 3, publish_time_ms=8)
    assert all(tracker.admit("p", one) for one in later)


def test_producers_do_not_share_chunks(tracker: ChunkTracker) -> None:
    assert tracker.admit("p", chunks(5, 3)[0])
    assert tracker.admit("q", chunks(5, 3)[0])


def test_a_sequence_that_does_not_begin_with_the_first_chunk_leaves_the_first_admissible(
    tracker: ChunkTracker,
) -> None:
    message = chunks(5, 4)
    assert tracker.admit("p", message[1])
    assert tracker.admit("p", message[0])


def test_of_a_message_that_is_complete_nothing_is_remembered(tracker: ChunkTracker) -> None:
    """Its sequence id is enough."""
    for one in chunks(5, 3):
        tracker.admit("p", one)
        tracker.stored("p", one)
    assert tracker.to_json() == {}


def test_producers_of_incomplete_messages_are_forgotten_some_day() -> None:
    tracker = ChunkTracker(producers_max=2)
    for name in ("a", "b", "c"):
        tracker.stored(name, chunks(1, 2)[0])
    assert list(tracker.to_json()) == ["b", "c"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_sent_again_after_whatever_restart_each_message_lies_there_once_in_order(
    seed: int,
) -> None:
    """A client resends from any chunk without a receipt; a restart keeps what is durable."""
    random = Random(seed)
    wanted = [one for number in range(3) for one in chunks(number, random.randint(2, 5), number)]
    tracker, log, done = ChunkTracker(), list[ChunkInfo](), 0
    while done < len(wanted):
        upto = random.randint(done + 1, len(wanted))
        complete = {one.sequence_id for one in log if one.number == one.chunks - 1}
        for one in wanted[done:upto]:
            # As in the topic: the sequence id of a complete message is checked first.
            if one.sequence_id not in complete and tracker.admit("p", one):
                log.append(one)
                tracker.stored("p", one)
        done = random.randint(done, upto)
        if random.random() < 0.5:
            tracker = ChunkTracker.from_json(json.loads(json.dumps(tracker.to_json())))
        for one in log[random.randint(0, len(log)) :]:  # folded once more
            tracker.stored("p", one)
    assert log == wanted
