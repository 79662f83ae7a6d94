"""Delayed delivery: never early (INV-29), in the order of delivery times, in little memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch import multiple_consumers
from emulator.core.dispatch.delayed import BLOCK_ENTRIES, Delayed
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.types import DispatchLimits, Read, Wake
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from emulator.model.transaction_names import TxnId
from tests.core.dispatch.playbook import (
    EXCLUSIVE,
    FAILOVER,
    FAILOVER_DELAY_MS,
    KEY_SHARED,
    SHARED,
    Candidate,
    dispatched,
    dispatcher,
    joined,
    log,
)


def due(entry_id: int, due_ms: int, key_hash: int = 0) -> Candidate:
    return Candidate(entry_id, 1, False, key_hash, due_ms)


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_nothing_is_delivered_before_its_time_and_the_earliest_first(type_):
    machine, entries = dispatcher(), [due(0, 300), due(1, 100), due(2, 0), due(3, 200), due(4, 100)]
    joined(machine, "a", type_)
    assert dispatched(machine, entries, wall_ms=0) == [("a", 2)]
    assert machine.delayed_entries == 4
    assert machine.strategy.next(5, 0, 0) == Wake(100)
    assert dispatched(machine, entries, wall_ms=99) == []
    assert dispatched(machine, entries, wall_ms=100) == [("a", 1), ("a", 4)]
    assert dispatched(machine, entries, wall_ms=1_000) == [("a", 3), ("a", 0)]
    assert machine.delayed_entries == 0
    assert machine.strategy.next(5, 0, 1_000) is None


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_what_a_transaction_acknowledged_before_its_time_and_gives_back_is_not_due_by_that(type_):
    """A transaction can name ids of messages that its client never received."""
    machine, entries = dispatcher(), [due(0, 300), due(1, 0)]
    consumer = joined(machine, "a", type_)
    assert dispatched(machine, entries) == [("a", 1)]
    machine.held(consumer, [0])
    machine.strategy.released([0])
    assert dispatched(machine, entries, wall_ms=299) == []
    assert machine.strategy.next(2, 0, 299) == Wake(1)
    assert dispatched(machine, entries, wall_ms=300) == [("a", 0)]


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_an_abort_dispatches_a_batch_that_is_not_due_once(type_):
    """The transaction held one of its messages. It was in `replay`, too, and dispatched a second time."""
    machine, entries, txn = dispatcher(), [Candidate(0, 2, False, 0, 300)], TxnId(0, 1)
    acks = machine.cursor.held = PendingAcks()
    consumer = joined(machine, "a", type_)
    assert dispatched(machine, entries) == []
    acks.acknowledge(txn, [ClaimedAck(0, (0b10,), 2)], machine.cursor)
    machine.held(consumer, [0])
    acks.end(txn)
    machine.strategy.released([0])
    assert dispatched(machine, entries, wall_ms=300) == [("a", 0)]
    assert machine.delayed_entries == 0


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER])
def test_one_that_is_served_alone_gets_everything_at_once(machine, type_):
    joined(machine, "a", type_)
    assert dispatched(machine, [due(0, 300), due(1, 100)]) == [("a", 0), ("a", 1)]


def test_the_wait_is_on_the_clock_that_only_goes_forward(machine):
    joined(machine, "a", SHARED)
    dispatched(machine, [due(0, 1_000_500)], wall_ms=1_000_000)
    assert machine.strategy.next(1, 77, 1_000_100) == Wake(77 + 400)
    assert machine.strategy.next(1, 77, 0) == Wake(77 + multiple_consumers.WAKE_MS_MAX), (
        "a clock may jump forward"
    )


def test_what_is_due_within_one_tick_goes_out_at_its_end():
    machine = Dispatcher(Cursor(-1), DispatchLimits(1_000, FAILOVER_DELAY_MS, tick_ms=100))
    joined(machine, "a", SHARED)
    entries = [due(0, 101), due(1, 199), due(2, 200), due(3, 201)]
    assert dispatched(machine, entries, wall_ms=100) == []
    assert machine.strategy.next(4, 0, 100) == Wake(100)
    assert dispatched(machine, entries, wall_ms=199) == []
    assert dispatched(machine, entries, wall_ms=200) == [("a", 0), ("a", 1), ("a", 2)]


def test_without_delays_everything_goes_out_also_what_waits():
    limits = DispatchLimits(1_000, FAILOVER_DELAY_MS)
    machine = Dispatcher(Cursor(-1), limits)
    joined(machine, "a", SHARED)
    assert dispatched(machine, [due(0, 300)]) == []
    limits.delays = False
    assert dispatched(machine, [due(0, 300), due(1, 400)]) == [("a", 0), ("a", 1)]


def test_what_is_new_goes_out_past_what_waits_and_after_what_is_due(machine):
    joined(machine, "a", SHARED)
    entries = [due(0, 100), *log(1)]
    assert dispatched(machine, entries, wall_ms=0) == [("a", 1)]
    entries += log(2)
    assert dispatched(machine, entries, wall_ms=100) == [("a", 0), ("a", 2)]


def test_what_is_returned_is_not_delayed_again(machine):
    a = joined(machine, "a", SHARED)
    entries = [due(0, 100)]
    assert dispatched(machine, entries, wall_ms=100) == [("a", 0)]
    machine.strategy.returned(a, [0])
    assert dispatched(machine, entries, wall_ms=100) == [("a", 0)]


def test_a_consumer_with_one_permit_finds_what_it_can_have_in_few_reads(machine):
    joined(machine, "a", SHARED, permits=1)
    entries, reads = [*(due(entry_id, 10**6) for entry_id in range(950)), *log(950)], 0
    while isinstance(read := machine.strategy.next(951, 0, 0), Read):
        found = entries[read.from_entry_id : read.from_entry_id + read.entries_max]
        given = machine.strategy.offer(read, found, 0)
        reads += 1
    assert [found[one.candidate_index].entry_id for one in given] == [950]
    assert reads < 15, "not one for each that is delayed"


def test_what_was_acknowledged_while_it_waited_is_not_delivered(machine):
    a = joined(machine, "a", SHARED)
    entries = [due(entry_id, 100) for entry_id in range(4)]
    dispatched(machine, entries)
    machine.acknowledge(a, [(1, None)], 4)
    machine.cursor.ack_cumulative_except(0, [])
    machine.strategy.moved()
    assert machine.delayed_entries == 2
    assert dispatched(machine, entries, wall_ms=100) == [("a", 2), ("a", 3)]


def test_a_seek_and_the_last_consumer_that_leaves_forget_what_waits_and_it_is_read_again(machine):
    a, entries = joined(machine, "a", SHARED), [due(0, 100), due(1, 200)]
    dispatched(machine, entries)
    machine.cursor.seek(1)
    machine.strategy.rewound()
    assert machine.delayed_entries == 0
    dispatched(machine, entries)
    assert machine.delayed_entries == 1
    machine.strategy.left(a, 0)
    assert machine.delayed_entries == 0
    joined(machine, "b", SHARED)
    assert dispatched(machine, entries, wall_ms=200) == [("b", 1)]


def test_over_the_bound_nothing_new_is_read_until_something_is_due(monkeypatch):
    monkeypatch.setattr(multiple_consumers, "DELAYED_MAX", 3)
    machine = dispatcher()
    joined(machine, "a", SHARED, permits=1_000)
    entries = [due(entry_id, 100) for entry_id in range(500)] + log(500)
    dispatched(machine, entries)
    assert machine.strategy.next(501, 0, 0) == Wake(100)
    assert len(dispatched(machine, entries, wall_ms=100)) == 501


def test_a_key_keeps_its_order_among_what_waits_for_its_consumer(machine):
    a = joined(machine, "a", KEY_SHARED, permits=1)
    entries = [due(0, 100, 7), due(1, 50, 7), Candidate(2, 1, False, 7)]
    assert dispatched(machine, entries) == [("a", 2)]
    assert dispatched(machine, entries, wall_ms=100) == []
    machine.strategy.flow(a, 10)
    assert dispatched(machine, entries, wall_ms=100) == [("a", 1), ("a", 0)]


@pytest.mark.parametrize("seed", range(10))
def test_delayed_against_a_sorted_list(seed):
    chance = random.Random(seed)
    delayed, model = Delayed(), []
    for entry_id in range(6_000):
        when = chance.choice((entry_id // 7, chance.randrange(500), 10**12 - entry_id))
        delayed.add(when, entry_id)
        model.append((when, entry_id))
        if chance.random() < 0.1:
            _, gone = model.pop(chance.randrange(len(model)))
            delayed.discard(gone)
    acked = {entry_id for _, entry_id in model if chance.random() < 0.1}
    cursor = Cursor(-1)
    for entry_id in acked:
        cursor.ack(entry_id)
    delayed.forget(cursor.acked_bits)
    model = sorted(one for one in model if one[1] not in acked)
    assert delayed.count == len(model)
    taken = []
    while delayed:
        taken.append((delayed.first_due_ms, delayed.first_id))
        assert delayed.pop_first() == taken[-1][1]
    assert taken == model
    assert not delayed._dues


def test_a_run_is_what_follows_each_other_and_is_due():
    delayed = Delayed()
    for when, entry_id in ((5, 10), (5, 11), (6, 12), (6, 14), (9, 15)):
        delayed.add(when, entry_id)
    limits = ((8, 100), (5, 100), (8, 1))
    assert [delayed.due_run_length(*one) for one in limits] == [3, 2, 1]


@pytest.mark.long
def test_a_million_cost_less_than_twenty_bytes_each_wherever_their_times_lie():
    entries, chance = 100_000, random.Random(1)
    for times in (range(entries), [chance.randrange(10**7) for _ in range(entries)]):
        tracemalloc.start()
        delayed = Delayed()
        for entry_id, when in enumerate(times):
            delayed.add(when, entry_id)
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held_bytes < 20 * entries
    assert max(map(len, delayed._dues)) <= BLOCK_ENTRIES
