"""The chunks of a message go to one consumer of a shared subscription, in order; other messages are dispatched
meanwhile."""

from __future__ import annotations

import time

import pytest

from emulator.core.dispatch import Dispatcher, Read
from emulator.core.dispatch.chunk_affinity import MESSAGES_MAX, WAITING_MAX, ChunkAffinity
from emulator.core.transactions.names import TxnId
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from tests.core.dispatch.playbook import (
    SHARED,
    Candidate,
    Piece,
    dispatcher,
    found,
    handed_out,
    joined,
    wanted,
)


def piece(entry_id: int, of: str, *, is_last: bool = False) -> Candidate:
    return Candidate(entry_id, 1, False, piece=Piece(of, is_last))


def whole(entry_id: int) -> Candidate:
    return Candidate(entry_id, 1, False)


LOG = [
    piece(0, "x"),
    piece(1, "y"),
    *map(whole, range(2, 40)),
    piece(40, "x"),
    piece(41, "y", is_last=True),
    piece(42, "x", is_last=True),
]


def receivers(given: list[tuple[str, int]], *ids: int) -> set[str]:
    return {name for name, entry_id in given if entry_id in ids}


def test_all_pieces_of_a_message_go_to_one_consumer() -> None:
    machine = dispatcher()
    joined(machine, "one", SHARED)
    joined(machine, "two", SHARED)
    given = handed_out(machine, LOG)
    assert len(given) == len(LOG)
    assert len(receivers(given, 0, 40, 42)) == 1
    assert len(receivers(given, 1, 41)) == 1
    assert receivers(given, *range(2, 40)) == {"one", "two"}


def test_pieces_wait_for_a_consumer_that_takes_nothing_and_come_in_order_afterwards() -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=1)
    assert handed_out(machine, LOG[:1]) == [("one", 0)]
    joined(machine, "two", SHARED)
    log = [piece(0, "x"), piece(1, "x"), whole(2), piece(3, "x", is_last=True), whole(4)]
    assert handed_out(machine, log) == [("two", 2), ("two", 4)]
    machine.flow(one, 10)
    assert handed_out(machine, log) == [("one", 1), ("one", 3)]


def offered(machine: Dispatcher, read: Read, log: list[Candidate]) -> list[tuple[str, int]]:
    candidates = found(read, log)
    return [
        (delivery.consumer.name, candidates[delivery.place].entry_id)
        for delivery in machine.offer(read, candidates, 0)
    ]


def test_pieces_of_a_read_under_way_do_not_overtake_earlier_ones_that_wait_no_longer() -> None:
    """A client discards a message when a chunk does not follow the previous one."""
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=1)
    log = [piece(number, "x", is_last=number == 5) for number in range(6)]
    assert handed_out(machine, log[:1]) == [("one", 0)]
    joined(machine, "two", SHARED, permits=1)
    assert handed_out(machine, log[:3]) == []
    under_way = wanted(machine, 6)
    assert under_way.from_entry_id == 3
    machine.flow(one, 4)
    assert offered(machine, under_way, log) == []
    assert handed_out(machine, log) == [("one", number) for number in range(1, 5)]
    machine.flow(one, 1)
    assert handed_out(machine, log) == [("one", 5)]


def test_nor_do_those_that_are_being_read_again() -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=1)
    log = [piece(number, "x", is_last=number == 5) for number in range(6)]
    assert handed_out(machine, log[:1]) == [("one", 0)]
    joined(machine, "two", SHARED, permits=1)
    assert handed_out(machine, log) == []
    machine.flow(one, 2)
    read = wanted(machine, 6)
    assert offered(machine, read, log) == [("one", 1), ("one", 2)]
    again = wanted(machine, 6)
    assert again.from_entry_id == 4, "3 waits for its consumer"
    machine.flow(one, 3)
    assert offered(machine, again, log) == []
    assert handed_out(machine, log) == [("one", 3), ("one", 4), ("one", 5)]


@pytest.mark.parametrize("leaves", [True, False])
def test_nor_earlier_ones_that_their_consumer_left_behind_or_gave_back(leaves: bool) -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=10)
    log = [piece(number, "x", is_last=number == 5) for number in range(6)]
    handed_out(machine, log[:3])
    joined(machine, "two", SHARED, permits=10)
    under_way = wanted(machine, 6)
    if leaves:
        machine.left(one, 0)
    else:
        machine.returned(one, None)
    assert offered(machine, under_way, log) == []
    given = handed_out(machine, log)
    assert [entry_id for _, entry_id in given] == list(range(6))
    assert len(receivers(given, *range(6))) == 1


def test_when_their_consumer_leaves_another_one_gets_all_pieces_from_the_first() -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=1)
    handed_out(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [piece(0, "x"), piece(1, "x"), piece(2, "x", is_last=True)]
    assert handed_out(machine, log) == []
    machine.left(one, 0)
    assert handed_out(machine, log) == [("two", 0), ("two", 1), ("two", 2)]


def test_what_is_acknowledged_waits_no_more() -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED, permits=1)
    handed_out(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [piece(0, "x"), piece(1, "x"), piece(2, "x", is_last=True)]
    handed_out(machine, log)
    machine.acknowledge(one, [(0, None), (1, None), (2, None)], 3)
    assert machine.cursor.mark_delete == 2
    machine.flow(one, 10)
    assert handed_out(machine, log) == []


def test_what_a_transaction_acknowledged_waits_no_more_and_comes_again_after_its_abort() -> None:
    machine, txn = dispatcher(), TxnId(0, 1)
    acks = machine.cursor.held = PendingAcks()
    one = joined(machine, "one", SHARED, permits=1)
    handed_out(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [piece(0, "x"), piece(1, "x"), piece(2, "x", is_last=True)]
    handed_out(machine, log)
    acks.acknowledge(txn, [ClaimedAck(0), ClaimedAck(1), ClaimedAck(2)], machine.cursor)
    machine.held(one, [0, 1, 2])
    machine.flow(one, 10)
    assert handed_out(machine, log) == []
    acks.end(txn)
    machine.released([0, 1, 2])
    given = handed_out(machine, log)
    assert [entry_id for _, entry_id in given] == [0, 1, 2]
    assert len(receivers(given, 0, 1, 2)) == 1


def test_messages_in_pieces_that_never_end_are_forgotten_some_day() -> None:
    machine = dispatcher()
    one = joined(machine, "one", SHARED)
    pieces = ChunkAffinity()
    for number in range(MESSAGES_MAX + 10):
        pieces.given(Piece(str(number), is_last=False), one)
    assert pieces.receiver_of(Piece("0", is_last=False)) is None
    assert pieces.receiver_of(Piece(str(MESSAGES_MAX), is_last=True)) is one


def test_acknowledging_costs_the_same_however_many_pieces_wait() -> None:
    """It searched all of them for each id, and a small frame has thousands of ids."""
    machine = dispatcher()
    entries = [piece(number, "x") for number in range(WAITING_MAX + 1)]
    joined(machine, "one", SHARED, permits=1)
    handed_out(machine, entries[:1])
    other = joined(machine, "two", SHARED, permits=100)
    while isinstance(read := machine.next(len(entries), 0, 0), Read):
        machine.offer(read, entries[read.from_entry_id : read.from_entry_id + read.entries_max], 0)
    assert machine._strategy.pieces.waiting_count == WAITING_MAX  # type: ignore[attr-defined]
    began = time.perf_counter()
    machine.acknowledge(other, [(0, None)] * 20_000, len(entries))
    assert time.perf_counter() - began < 5, "of 0.1"
    machine.acknowledge(other, [(number, None) for number in range(1, len(entries))], len(entries))
    assert machine._strategy.pieces.waiting_count == 0  # type: ignore[attr-defined]
