"""EXCLUSIVE and FAILOVER: one consumer gets everything, in log order."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.types import ConsumerState, Delivery, DispatchLimits, Read, Wake
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from emulator.model.transaction_names import TxnId
from tests.core.dispatch.playbook import (
    END,
    EXCLUSIVE,
    FAILOVER,
    FAILOVER_DELAY_MS,
    Candidate,
    dispatched,
    found,
    joined,
    log,
    wanted,
)


def test_nothing_is_handed_out_without_permits(machine):
    consumer = joined(machine, "a", EXCLUSIVE, permits=0)
    assert machine.strategy.next(10, 0, 0) is None
    machine.strategy.flow(consumer, 2)
    assert dispatched(machine, log(0, 1, 2, 3)) == [("a", 0), ("a", 1)]
    assert machine.strategy.next(10, 0, 0) is None


def test_nothing_is_handed_out_to_a_full_connection(machine):
    consumer = joined(machine, "a", EXCLUSIVE)
    machine.strategy.blocked(consumer, blocked=True)
    assert machine.strategy.next(10, 0, 0) is None
    machine.strategy.blocked(consumer, blocked=False)
    assert wanted(machine).from_entry_id == 0


def test_a_permit_is_a_message_and_may_be_overdrawn_by_a_batch(machine):
    consumer = joined(machine, "a", EXCLUSIVE, permits=1)
    assert dispatched(machine, [Candidate(0, 10, False)]) == [("a", 0)]
    assert consumer.permits == -9


def test_what_is_acknowledged_of_a_batch_costs_no_permit(machine):
    machine.cursor.ack_batch(0, (0b0110,), 4)
    consumer = joined(machine, "a", EXCLUSIVE, permits=10)
    read = wanted(machine)
    (delivery,) = machine.strategy.offer(read, [Candidate(0, 4, False)], 0)
    assert (delivery.ack_set, consumer.permits) == ((0b0110,), 8)


def test_markers_are_acknowledged_and_never_delivered(machine):
    """So that mark-delete can pass them."""
    joined(machine, "a", EXCLUSIVE)
    assert dispatched(machine, log(0, 1, 2, hidden=(0, 1))) == [("a", 2)]
    assert machine.cursor.mark_delete == 1


def test_ids_without_an_entry_do_not_hold_mark_delete_back(machine):
    """Storage promise S3: ids may jump between appends."""
    joined(machine, "a", EXCLUSIVE)
    machine.strategy.offer(wanted(machine, 6), log(0, 5), 0)
    machine.cursor.ack(0)
    assert machine.cursor.mark_delete == 4


def test_a_read_that_finds_nothing_passes_what_it_covered_and_no_more(machine):
    """The log grew while the read was under way: the new entries are not part of the gap."""
    joined(machine, "a", EXCLUSIVE)
    read = wanted(machine, end_entry_id=5)
    machine.strategy.offer(read, [], 0)
    assert machine.cursor.mark_delete == 4
    assert dispatched(machine, log(5, 6)) == [("a", 5), ("a", 6)]


def test_a_read_that_a_rewind_overtook_is_dropped(machine):
    """Skipping entries that the read did not cover would acknowledge entries that no consumer received."""
    consumer = joined(machine, "a", EXCLUSIVE)
    machine.strategy.offer(wanted(machine, 3), log(0, 1, 2), 0)
    overtaken = wanted(machine, 5)
    machine.strategy.returned(consumer, None)
    assert machine.strategy.offer(overtaken, log(3, 4), 0) == []
    assert machine.strategy.offer(overtaken, [], 0) == []
    assert machine.cursor.mark_delete == -1
    assert wanted(machine, 5).from_entry_id == 0


def test_a_read_is_overtaken_even_by_a_rewind_to_where_it_began(machine):
    """Comparing ids could not distinguish the two."""
    joined(machine, "a", EXCLUSIVE)
    overtaken = wanted(machine)
    machine.strategy.rewound()
    assert machine.strategy.offer(overtaken, log(0), 0) == []


def test_a_lower_priority_number_becomes_active(machine):
    """It starts at the first unacknowledged entry."""
    joined(machine, "a", FAILOVER)
    dispatched(machine, log(0, 1, 2))
    machine.cursor.ack(0)
    better = joined(machine, "b", FAILOVER, permits=10, priority=-1)
    assert machine.strategy.active is better
    assert dispatched(machine, log(0, 1, 2)) == [("b", 1), ("b", 2)]


def test_a_consumer_that_displaces_another_waits_for_its_acknowledgements(machine):
    joined(machine, "a", FAILOVER)
    joined(machine, "b", FAILOVER, priority=-1)
    assert machine.strategy.next(END, 0, 0) == Wake(FAILOVER_DELAY_MS)
    assert wanted(machine, now_ms=FAILOVER_DELAY_MS).from_entry_id == 0


def test_a_consumer_that_follows_one_that_left_waits_for_nothing(machine):
    first = joined(machine, "a", FAILOVER)
    joined(machine, "b", FAILOVER)
    machine.strategy.left(first, 0)
    assert dispatched(machine, log(0)) == [("b", 0)]


def test_a_newcomer_of_equal_rank_does_not_displace_the_active(machine):
    first = joined(machine, "a", FAILOVER)
    read = wanted(machine)
    joined(machine, "b", FAILOVER)
    assert machine.strategy.active is first
    assert len(machine.strategy.offer(read, log(0), 0)) == 1, "its read still counts"


def test_only_the_active_consumer_may_request_redelivery(machine):
    first = joined(machine, "a", FAILOVER)
    second = joined(machine, "b", FAILOVER)
    dispatched(machine, log(0, 1))
    machine.strategy.returned(second, None)
    assert dispatched(machine, log(0, 1)) == []
    machine.strategy.returned(first, None)
    assert dispatched(machine, log(0, 1)) == [("a", 0), ("a", 1)]


def test_an_update_from_another_region_moves_reading_on(machine):
    """PIP-33: messages acknowledged in another region are not delivered here."""
    joined(machine, "a", EXCLUSIVE)
    machine.cursor.ack_range(0, 6)
    machine.strategy.moved()
    assert wanted(machine, 10).from_entry_id == 7


def test_the_read_position_is_never_behind_mark_delete(machine):
    """Also without a consumer."""
    machine.cursor.ack_range(0, 6)
    assert machine.strategy.read_entry_id == 7


def test_a_long_acknowledged_run_is_jumped_over(machine):
    machine.cursor.ack_range(1, 899)
    joined(machine, "a", EXCLUSIVE)
    read = wanted(machine)
    assert (read.from_entry_id, read.entries_max) == (0, 100)
    machine.strategy.offer(read, log(0), 0)
    assert wanted(machine).from_entry_id == 900


def test_next_changes_nothing(machine):
    joined(machine, "a", EXCLUSIVE)
    machine.cursor.ack_range(0, 6)
    read = wanted(machine)
    assert [machine.strategy.next(END, 0, 0) for _ in range(3)] == [read] * 3
    assert len(machine.strategy.offer(read, found(read, log(*range(20))), 0)) == 13


def test_partitions_spread_evenly_over_consumers_of_the_best_priority_while_they_come_and_go():
    """Four partitions, each of which sees the same consumers come and go."""

    def of(partition: int) -> Dispatcher:
        return Dispatcher(Cursor(-1), DispatchLimits(1_000, FAILOVER_DELAY_MS, partition_index=partition))

    partitions = [of(index) for index in range(4)]
    consumers: dict[tuple[str, int], ConsumerState] = {}

    def active() -> list[str]:
        return [machine.strategy.active.name for machine in partitions]

    for name, priority in (("b", 0), ("c", 0), ("a", 0), ("worse", 1)):
        for index, machine in enumerate(partitions):
            consumers[name, index] = joined(machine, name, FAILOVER, priority=priority)
    assert active() == ["a", "b", "c", "a"]
    for index, machine in enumerate(partitions):
        machine.strategy.left(consumers["b", index], now_ms=50)
    assert active() == ["a", "c", "a", "c"]
    assert partitions[3].strategy.next(END, 50, 0) == Wake(50 + FAILOVER_DELAY_MS), "a may still acknowledge"
    assert isinstance(partitions[1].strategy.next(END, 500, 0), Read)
    for name in ("a", "c"):
        for index, machine in enumerate(partitions):
            machine.strategy.left(consumers[name, index], now_ms=600)
    assert active() == ["worse"] * 4


ENTRIES = 12
entry_steps = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 1, 3]), st.sampled_from([1, 1, 3]), st.booleans()), max_size=12
)
"""(difference to the id before, number of messages, whether the entry is a marker)"""
changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["ack", "ack_cumulative", "seek"]), st.integers(0, ENTRIES)),
        st.tuples(st.just("ack_batch"), st.integers(0, ENTRIES), st.just((0b101,)), st.just(3)),
    ),
    max_size=3,
)
held_entries = st.none() | st.lists(st.integers(0, ENTRIES), min_size=1, max_size=2)


@given(entry_steps, st.integers(1, 20), changes, changes, held_entries)
@example([(1, 1, False)] * 8, 20, [], [], None)
@example([(1, 3, False)] * 8, 5, [], [], None)
@example([(1, 1, False)] * 8, 20, [("ack_cumulative", 2)], [], None)
@example([(1, 1, False)] * 8, 20, [], [("ack_cumulative", 2)], None)
@example([(1, 1, False)] * 8, 20, [], [("ack_cumulative", 0)], None)
@example([(1, 1, False)] * 8, 20, [("ack", 4)], [], None)
@example([(1, 3, False)] * 8, 20, [("ack_batch", 4, (0b101,), 3)], [], None)
@example([(1, 1, False)] * 8, 20, [], [], [4])
@example([(1, 1, False)] * 3 + [(1, 1, True)] + [(3, 1, False)] * 3, 20, [], [], None)
def test_a_run_of_whole_entries_is_dispatched_as_entries_one_by_one(
    steps: list[tuple[int, int, bool]],
    permits: int,
    before: list[tuple],
    during: list[tuple],
    held: list[int] | None,
) -> None:
    """`before`, `during`: what the cursor acknowledges before the read and while the store reads."""
    entry_id, entries = -1, []
    for step, messages, hidden in steps:
        entry_id += step
        entries.append(Candidate(entry_id, messages, hidden))
    outcomes = []
    for in_runs in (True, False):
        machine = Dispatcher(Cursor(-1), DispatchLimits(1_000, FAILOVER_DELAY_MS))
        consumer = joined(machine, "a", EXCLUSIVE, permits)
        if not in_runs:
            machine.strategy._dispatch_whole = lambda *_: 0  # type: ignore[attr-defined]
        cursor = machine.cursor
        if held is not None:
            cursor.held = PendingAcks()
            cursor.held.acknowledge(TxnId(0, 1), [ClaimedAck(entry_id) for entry_id in held], cursor)
        for name, *arguments in before:
            getattr(cursor, name)(*arguments)
        given = []
        while isinstance(read := machine.strategy.next(entry_id + 1, 0, 0), Read):
            for name, *arguments in during:
                getattr(cursor, name)(*arguments)
            deliveries = machine.strategy.offer(read, found(read, entries), 0)
            given.append([(one.candidate_index, *one[2:], read.from_entry_id) for one in deliveries])
            assert all(one.consumer is consumer for one in deliveries)
            assert all(type(one) is Delivery for one in deliveries)
        outcomes.append(
            (given, consumer.permits, machine.strategy.read_entry_id, cursor.mark_delete, cursor.acked_ranges)
        )
    assert outcomes[0] == outcomes[1]
