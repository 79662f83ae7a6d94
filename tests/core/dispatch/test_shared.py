"""SHARED: round robin, redelivery, and the single record of pending messages."""

from __future__ import annotations

from tests.core.dispatch.playbook import END, SHARED, Candidate, dispatched, dispatcher, joined, log, wanted


def test_shared_consumers_are_served_in_turn(machine):
    """Each gets several entries in a row, so that one read serves several consumers."""
    joined(machine, "a", SHARED)
    joined(machine, "b", SHARED)
    assert {name for name, _ in dispatched(machine, log(*range(40)))} == {"a", "b"}


def test_a_better_priority_is_served_first(machine):
    joined(machine, "a", SHARED, priority=1)
    joined(machine, "b", SHARED, permits=2)
    assert dispatched(machine, log(0, 1, 2)) == [("b", 0), ("b", 1), ("a", 2)]


def test_what_a_consumer_leaves_goes_to_another_with_its_count(machine):
    """In log order, before any new message."""
    leaver = joined(machine, "a", SHARED, permits=3)
    dispatched(machine, log(0, 1, 2, 3))
    joined(machine, "b", SHARED)
    machine.acknowledge(leaver, [(1, None)], END)
    machine.strategy.left(leaver, 0)
    replayed = machine.strategy.offer(wanted(machine), log(0, 1, 2), 0)
    assert [(d.candidate_index, d.redelivery_count) for d in replayed] == [(0, 1), (2, 1)]
    new = machine.strategy.offer(wanted(machine), log(3), 0)
    assert [(d.candidate_index, d.redelivery_count) for d in new] == [(0, 0)]


def test_a_replay_reads_no_more_than_it_needs(machine):
    consumer = joined(machine, "a", SHARED, permits=1000)
    dispatched(machine, log(*range(20)))
    machine.strategy.returned(consumer, [3, 9])
    read = wanted(machine)
    assert (read.from_entry_id, read.entries_max) == (3, 7)


def test_a_consumer_with_too_much_unacknowledged_waits():
    """Until it acknowledges."""
    machine = dispatcher(unacked_messages_max=2)
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1, 2))
    assert machine.strategy.next(10, 0, 0) is None
    machine.acknowledge(consumer, [(0, None)], END)
    assert wanted(machine).from_entry_id == 2


def test_a_rewind_counts_nothing_twice(machine):
    """Messages that consumers held are dispatched again, so they do not hold them any more."""
    first = joined(machine, "a", SHARED, permits=2)
    dispatched(machine, log(0, 1))
    second = joined(machine, "b", SHARED)
    machine.strategy.rewound()
    assert first.unacked_messages == 0
    assert dispatched(machine, log(0, 1)) == [("b", 0), ("b", 1)]
    assert (first.unacked_messages, second.unacked_messages) == (0, 2)


def test_a_seek_past_what_consumers_hold_leaves_nothing_counted(machine):
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1))
    machine.cursor.seek(10)
    machine.strategy.rewound()
    machine.strategy.returned(consumer, None)
    assert consumer.unacked_messages == 0
    assert dispatched(machine, log(0, 1, 10)) == [("a", 10)]


def test_an_update_from_another_region_takes_from_the_books_what_it_acknowledges():
    machine = dispatcher(unacked_messages_max=2)
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1))
    machine.cursor.ack_range(0, 0)
    machine.strategy.moved()
    assert consumer.unacked_messages == 1
    assert wanted(machine).from_entry_id == 2
    machine.strategy.returned(consumer, None)
    machine.cursor.ack_range(1, 1)
    machine.strategy.moved()
    assert dispatched(machine, log(0, 1, 2)) == [("a", 2)]


def test_a_batch_acknowledged_in_part_counts_what_is_left(machine):
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, [Candidate(0, 5, False)])
    assert consumer.unacked_messages == 5
    machine.acknowledge(consumer, [(0, (0b00110,))], END)
    assert consumer.unacked_messages == 2
    machine.acknowledge(consumer, [(0, (0b00100,))], END)
    assert consumer.unacked_messages == 1
    machine.acknowledge(consumer, [(0, (0b00010,))], END)
    assert (consumer.unacked_messages, machine.cursor.mark_delete) == (0, 0)


def test_bits_beyond_the_batch_count_for_nothing(machine):
    """A client that sets all bits of a word must not keep the entry open for ever."""
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, [Candidate(0, 3, False)])
    machine.acknowledge(consumer, [(0, (~0b111,))], END)
    assert (consumer.unacked_messages, machine.cursor.mark_delete) == (0, 0)


def test_a_consumer_may_acknowledge_what_another_holds(machine):
    first = joined(machine, "a", SHARED, permits=1)
    dispatched(machine, [Candidate(0, 4, False)])
    second = joined(machine, "b", SHARED)
    machine.acknowledge(second, [(0, (0b1000,))], END)
    assert (first.unacked_messages, second.unacked_messages) == (1, 0)
    machine.acknowledge(second, [(0, None)], END)
    assert (first.unacked_messages, second.unacked_messages) == (0, 0)


def test_what_is_acknowledged_while_it_waits_for_replay_is_not_handed_out_again(machine):
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1))
    machine.strategy.returned(consumer, None)
    machine.acknowledge(consumer, [(0, None)], END)
    assert dispatched(machine, log(0, 1)) == [("a", 1)]


def test_what_was_trimmed_is_not_replayed_for_ever(machine):
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0, 1, 2))
    machine.strategy.returned(consumer, [1])
    machine.strategy.offer(wanted(machine), log(2), 0)
    assert machine.strategy.next(3, 0, 0) is None
    assert (machine.cursor.mark_delete, consumer.unacked_messages) == (-1, 2)


def test_counts_of_redelivery_begin_anew_with_the_first_consumer(machine):
    consumer = _given_back(machine)
    machine.strategy.left(consumer, 0)
    joined(machine, "b", SHARED)
    (delivery,) = machine.strategy.offer(wanted(machine), log(0), 0)
    assert delivery.redelivery_count == 0


def _given_back(machine):
    consumer = joined(machine, "a", SHARED)
    dispatched(machine, log(0))
    machine.strategy.returned(consumer, [0])
    return consumer
