"""The chunks of a message go to one consumer of a shared subscription, in order; other messages are dispatched
meanwhile."""

from __future__ import annotations

import time

import pytest

from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.shared import MESSAGES_MAX, WAITING_MAX, ChunkAffinity
from emulator.core.dispatch.types import Read
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from emulator.model.transaction_names import TxnId
from emulator.model.values import MessageChunk
from tests.core.dispatch.playbook import (
    SHARED,
    Candidate,
    dispatched,
    dispatcher,
    found,
    joined,
    wanted,
)


def chunk(entry_id: int, of: str, *, is_last: bool = False) -> Candidate:
    return Candidate(entry_id, 1, False, chunk=MessageChunk(of, is_last))


def whole(entry_id: int) -> Candidate:
    return Candidate(entry_id, 1, False)


LOG = [
    chunk(0, "x"),
    chunk(1, "y"),
    *map(whole, range(2, 40)),
    chunk(40, "x"),
    chunk(41, "y", is_last=True),
    chunk(42, "x", is_last=True),
]


def receivers(given: list[tuple[str, int]], *ids: int) -> set[str]:
    return {name for name, entry_id in given if entry_id in ids}


def test_all_chunks_of_a_message_go_to_one_consumer(machine: Dispatcher) -> None:
    joined(machine, "one", SHARED)
    joined(machine, "two", SHARED)
    given = dispatched(machine, LOG)
    assert len(given) == len(LOG)
    assert len(receivers(given, 0, 40, 42)) == 1
    assert len(receivers(given, 1, 41)) == 1
    assert receivers(given, *range(2, 40)) == {"one", "two"}


def test_chunks_wait_for_a_consumer_without_permits_and_come_in_order_afterwards(machine: Dispatcher) -> None:
    one = joined(machine, "one", SHARED, permits=1)
    assert dispatched(machine, LOG[:1]) == [("one", 0)]
    joined(machine, "two", SHARED)
    log = [chunk(0, "x"), chunk(1, "x"), whole(2), chunk(3, "x", is_last=True), whole(4)]
    assert dispatched(machine, log) == [("two", 2), ("two", 4)]
    machine.strategy.flow(one, 10)
    assert dispatched(machine, log) == [("one", 1), ("one", 3)]


def offered(machine: Dispatcher, read: Read, log: list[Candidate]) -> list[tuple[str, int]]:
    candidates = found(read, log)
    return [
        (delivery.consumer.name, candidates[delivery.candidate_index].entry_id)
        for delivery in machine.strategy.offer(read, candidates, 0)
    ]


def test_chunks_of_a_read_under_way_do_not_overtake_earlier_ones_that_wait_no_longer(
    machine: Dispatcher,
) -> None:
    """A client discards a message when a chunk does not follow the previous one."""
    one = joined(machine, "one", SHARED, permits=1)
    log = [chunk(number, "x", is_last=number == 5) for number in range(6)]
    assert dispatched(machine, log[:1]) == [("one", 0)]
    joined(machine, "two", SHARED, permits=1)
    assert dispatched(machine, log[:3]) == []
    under_way = wanted(machine, 6)
    assert under_way.from_entry_id == 3
    machine.strategy.flow(one, 4)
    assert offered(machine, under_way, log) == []
    assert dispatched(machine, log) == [("one", number) for number in range(1, 5)]
    machine.strategy.flow(one, 1)
    assert dispatched(machine, log) == [("one", 5)]


def test_nor_do_those_that_are_being_read_again(machine: Dispatcher) -> None:
    one = joined(machine, "one", SHARED, permits=1)
    log = [chunk(number, "x", is_last=number == 5) for number in range(6)]
    assert dispatched(machine, log[:1]) == [("one", 0)]
    joined(machine, "two", SHARED, permits=1)
    assert dispatched(machine, log) == []
    machine.strategy.flow(one, 2)
    read = wanted(machine, 6)
    assert offered(machine, read, log) == [("one", 1), ("one", 2)]
    again = wanted(machine, 6)
    assert again.from_entry_id == 4, "3 waits for its consumer"
    machine.strategy.flow(one, 3)
    assert offered(machine, again, log) == []
    assert dispatched(machine, log) == [("one", 3), ("one", 4), ("one", 5)]


@pytest.mark.parametrize("leaves", [True, False])
def test_nor_earlier_ones_that_their_consumer_left_behind_or_returned(
    machine: Dispatcher, leaves: bool
) -> None:
    one = joined(machine, "one", SHARED, permits=10)
    log = [chunk(number, "x", is_last=number == 5) for number in range(6)]
    dispatched(machine, log[:3])
    joined(machine, "two", SHARED, permits=10)
    under_way = wanted(machine, 6)
    if leaves:
        machine.strategy.left(one, 0)
    else:
        machine.strategy.returned(one, None)
    assert offered(machine, under_way, log) == []
    given = dispatched(machine, log)
    assert [entry_id for _, entry_id in given] == list(range(6))
    assert len(receivers(given, *range(6))) == 1


def test_when_their_consumer_leaves_another_one_gets_all_chunks_from_the_first(machine: Dispatcher) -> None:
    one = joined(machine, "one", SHARED, permits=1)
    dispatched(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [chunk(0, "x"), chunk(1, "x"), chunk(2, "x", is_last=True)]
    assert dispatched(machine, log) == []
    machine.strategy.left(one, 0)
    assert dispatched(machine, log) == [("two", 0), ("two", 1), ("two", 2)]


def test_what_is_acknowledged_waits_no_more(machine: Dispatcher) -> None:
    one = joined(machine, "one", SHARED, permits=1)
    dispatched(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [chunk(0, "x"), chunk(1, "x"), chunk(2, "x", is_last=True)]
    dispatched(machine, log)
    machine.acknowledge(one, [(0, None), (1, None), (2, None)], 3)
    assert machine.cursor.mark_delete == 2
    machine.strategy.flow(one, 10)
    assert dispatched(machine, log) == []


def test_what_a_transaction_acknowledged_waits_no_more_and_comes_again_after_its_abort() -> None:
    machine, txn = dispatcher(), TxnId(0, 1)
    acks = machine.cursor.held = PendingAcks()
    one = joined(machine, "one", SHARED, permits=1)
    dispatched(machine, LOG[:1])
    joined(machine, "two", SHARED)
    log = [chunk(0, "x"), chunk(1, "x"), chunk(2, "x", is_last=True)]
    dispatched(machine, log)
    acks.acknowledge(txn, [ClaimedAck(0), ClaimedAck(1), ClaimedAck(2)], machine.cursor)
    machine.held(one, [0, 1, 2])
    machine.strategy.flow(one, 10)
    assert dispatched(machine, log) == []
    acks.end(txn)
    machine.strategy.released([0, 1, 2])
    given = dispatched(machine, log)
    assert [entry_id for _, entry_id in given] == [0, 1, 2]
    assert len(receivers(given, 0, 1, 2)) == 1


def test_an_abort_does_not_release_a_chunk_that_waits_for_its_consumer() -> None:
    """A client can acknowledge a chunk as a batch. The chunk was in `replay`, too."""
    machine, txn = dispatcher(), TxnId(0, 1)
    acks = machine.cursor.held = PendingAcks()
    one = joined(machine, "one", SHARED, permits=1)
    dispatched(machine, LOG[:1])
    joined(machine, "two", SHARED)
    dispatched(machine, [chunk(0, "x"), chunk(1, "x")])
    acks.acknowledge(txn, [ClaimedAck(1, (0b10,), 2)], machine.cursor)
    machine.held(one, [1])
    acks.end(txn)
    machine.strategy.released([1])
    assert list(machine.strategy.chunks.waiting()) == [1]
    assert not machine.strategy.replay


def test_chunked_messages_that_never_end_are_forgotten_some_day(machine: Dispatcher) -> None:
    one = joined(machine, "one", SHARED)
    chunks = ChunkAffinity()
    for number in range(MESSAGES_MAX + 10):
        chunks.record_dispatch(MessageChunk(str(number), is_last=False), one)
    assert chunks.receiver_of(MessageChunk("0", is_last=False)) is None
    assert chunks.receiver_of(MessageChunk(str(MESSAGES_MAX), is_last=True)) is one


def test_acknowledging_costs_the_same_however_many_chunks_wait(machine: Dispatcher) -> None:
    """It searched all of them for each id, and a small frame has thousands of ids."""
    entries = [chunk(number, "x") for number in range(WAITING_MAX + 1)]
    joined(machine, "one", SHARED, permits=1)
    dispatched(machine, entries[:1])
    other = joined(machine, "two", SHARED, permits=100)
    while isinstance(read := machine.strategy.next(len(entries), 0, 0), Read):
        machine.strategy.offer(read, entries[read.from_entry_id : read.from_entry_id + read.entries_max], 0)
    assert machine.strategy.chunks.waiting_count == WAITING_MAX  # type: ignore[attr-defined]
    began = time.perf_counter()
    machine.acknowledge(other, [(0, None)] * 20_000, len(entries))
    assert time.perf_counter() - began < 5, "of 0.1"
    machine.acknowledge(other, [(number, None) for number in range(1, len(entries))], len(entries))
    assert machine.strategy.chunks.waiting_count == 0  # type: ignore[attr-defined]
