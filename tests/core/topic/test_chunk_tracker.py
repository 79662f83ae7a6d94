"""No chunk of a message is admitted twice."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.topic.chunk_tracker import ChunkInfo, UnfinishedMessages


def pieces(sequence_id: int, count: int, publish_time_ms: int = 7) -> list[ChunkInfo]:
    return [ChunkInfo(sequence_id, publish_time_ms, count, number) for number in range(count)]


def test_a_piece_that_is_admitted_is_not_admitted_again_durable_or_not() -> None:
    unfinished = UnfinishedMessages()
    message = pieces(5, 4)
    assert [unfinished.admit("p", one) for one in message[:2]] == [True, True]
    unfinished.stored("p", message[0])
    assert [unfinished.admit("p", one) for one in message] == [False, False, True, True]


def test_a_new_life_gives_the_same_number_to_another_message() -> None:
    """Half of one and half of the other would be a message that no producer sent."""
    unfinished = UnfinishedMessages()
    for one in pieces(5, 3)[:2]:
        unfinished.admit("p", one)
        unfinished.stored("p", one)
    later = pieces(5, 3, publish_time_ms=8)
    assert all(unfinished.admit("p", one) for one in later)


def test_producers_do_not_share_pieces() -> None:
    unfinished = UnfinishedMessages()
    assert unfinished.admit("p", pieces(5, 3)[0])
    assert unfinished.admit("q", pieces(5, 3)[0])


def test_what_does_not_begin_with_the_first_piece_says_nothing_of_the_first() -> None:
    unfinished = UnfinishedMessages()
    message = pieces(5, 4)
    assert unfinished.admit("p", message[1])
    assert unfinished.admit("p", message[0])


def test_of_a_message_that_is_complete_nothing_is_remembered() -> None:
    """Its sequence id is enough."""
    unfinished = UnfinishedMessages()
    for one in pieces(5, 3):
        unfinished.admit("p", one)
        unfinished.stored("p", one)
    assert unfinished.to_json() == {}


def test_those_who_began_and_never_went_on_are_forgotten_some_day() -> None:
    unfinished = UnfinishedMessages(producers_max=2)
    for name in ("a", "b", "c"):
        unfinished.stored(name, pieces(1, 2)[0])
    assert list(unfinished.to_json()) == ["b", "c"]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_sent_again_after_whatever_restart_each_message_lies_there_once_in_order(
    seed: int,
) -> None:
    """A client resends from any chunk without a receipt; a restart keeps what is durable."""
    random = Random(seed)
    wanted = [one for number in range(3) for one in pieces(number, random.randint(2, 5), number)]
    unfinished, log, done = UnfinishedMessages(), list[ChunkInfo](), 0
    while done < len(wanted):
        upto = random.randint(done + 1, len(wanted))
        complete = {one.sequence_id for one in log if one.number == one.pieces - 1}
        for one in wanted[done:upto]:
            # As in the topic: the sequence id of a complete message is checked first.
            if one.sequence_id not in complete and unfinished.admit("p", one):
                log.append(one)
                unfinished.stored("p", one)
        done = random.randint(done, upto)
        if random.random() < 0.5:
            unfinished = UnfinishedMessages.from_json(json.loads(json.dumps(unfinished.to_json())))
        for one in log[random.randint(0, len(log)) :]:  # folded once more
            unfinished.stored("p", one)
    assert log == wanted
