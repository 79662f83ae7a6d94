"""Who gets which entry next: playbooks of the dispatcher, and a random one against a plain model."""

from __future__ import annotations

import random

import pytest

from emulator.core.cursor import Cursor
from emulator.core.dispatch import ConsumerState, Dispatcher, ReadEntry, SubscriptionType
from emulator.errors import ProtocolError, ServerError

EXCLUSIVE, SHARED, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED, SubscriptionType.FAILOVER


def dispatcher(mark_delete: int = -1) -> Dispatcher:
    return Dispatcher(Cursor(mark_delete), max_unacked_messages_per_consumer=1000)


def log(*ids: int, hidden: tuple[int, ...] = ()) -> list[ReadEntry]:
    return [ReadEntry(entry_id, 1, entry_id in hidden) for entry_id in ids]


def handed_out(machine: Dispatcher, from_entry_id: int, entries: list[ReadEntry]) -> list[tuple[str, int]]:
    deliveries = machine.assign(from_entry_id, entries)
    return [(delivery.consumer.name, entries[delivery.place].entry_id) for delivery in deliveries]


def joined(machine: Dispatcher, name: str, type_: SubscriptionType, permits: int = 100) -> ConsumerState:
    consumer = ConsumerState(name, permits=permits)
    machine.add_consumer(consumer, type_)
    return consumer


def test_nothing_is_handed_out_without_permits() -> None:
    """A new consumer asks first."""
    machine = dispatcher()
    consumer = joined(machine, "a", EXCLUSIVE, permits=0)
    assert machine.wants(10) is None
    machine.flow(consumer, 2)
    assert handed_out(machine, 0, log(0, 1, 2, 3)) == [("a", 0), ("a", 1)]
    assert machine.wants(10) is None


def test_a_permit_is_a_message_and_may_be_overdrawn_by_a_batch() -> None:
    """An entry is handed out while permits are positive."""
    machine = dispatcher()
    consumer = joined(machine, "a", EXCLUSIVE, permits=1)
    assert len(machine.assign(0, [ReadEntry(0, 10, False)])) == 1
    assert consumer.permits == -9


def test_markers_are_acknowledged_and_never_delivered() -> None:
    """So that mark-delete can pass them."""
    machine = dispatcher()
    joined(machine, "a", EXCLUSIVE)
    assert handed_out(machine, 0, log(0, 1, 2, hidden=(0, 1))) == [("a", 2)]
    assert machine.cursor.mark_delete == 1


def test_ids_without_an_entry_do_not_hold_mark_delete_back() -> None:
    """Storage promise S3: ids may jump between appends."""
    machine = dispatcher()
    joined(machine, "a", EXCLUSIVE)
    machine.assign(0, log(0, 5))
    machine.cursor.ack(0)
    assert machine.cursor.mark_delete == 4


def test_a_read_that_a_rewind_overtook_is_dropped() -> None:
    """Passing over entries the read did not cover would acknowledge what nobody saw."""
    machine = dispatcher()
    consumer = joined(machine, "a", EXCLUSIVE)
    machine.assign(0, log(0, 1, 2))
    machine.redeliver(consumer, None)
    assert handed_out(machine, 3, log(3, 4)) == []
    assert machine.cursor.mark_delete == -1
    want = machine.wants(5)
    assert want is not None
    assert want.from_entry_id == 0


def test_an_exclusive_subscription_takes_one_consumer() -> None:
    """The second is refused, and the first stays."""
    machine = dispatcher()
    joined(machine, "a", EXCLUSIVE)
    with pytest.raises(ProtocolError) as caught:
        joined(machine, "b", EXCLUSIVE)
    assert caught.value.code is ServerError.ConsumerBusy
    assert [consumer.name for consumer in machine.consumers] == ["a"]


def test_types_cannot_be_mixed() -> None:
    """While somebody is connected."""
    machine = dispatcher()
    joined(machine, "a", SHARED)
    with pytest.raises(ProtocolError):
        joined(machine, "b", FAILOVER)


def test_a_lower_priority_number_becomes_active() -> None:
    """And starts at the first unacknowledged entry."""
    machine = dispatcher()
    joined(machine, "a", FAILOVER)
    machine.assign(0, log(0, 1, 2))
    machine.cursor.ack(0)
    better = ConsumerState("b", priority=-1, permits=10)
    assert machine.add_consumer(better, FAILOVER)
    assert handed_out(machine, 1, log(1, 2)) == [("b", 1), ("b", 2)]


def test_a_newcomer_of_equal_rank_does_not_displace_the_active() -> None:
    """The active one is left in peace."""
    machine = dispatcher()
    joined(machine, "a", FAILOVER)
    assert not machine.add_consumer(ConsumerState("b"), FAILOVER)
    assert machine.active is not None
    assert machine.active.name == "a"


def test_shared_consumers_take_turns() -> None:
    """In runs, so that one read serves several."""
    machine = dispatcher()
    joined(machine, "a", SHARED)
    joined(machine, "b", SHARED)
    names = {name for name, _ in handed_out(machine, 0, log(*range(40)))}
    assert names == {"a", "b"}


def test_what_a_shared_consumer_leaves_goes_to_another_with_its_count() -> None:
    """In log order, before anything new."""
    machine = dispatcher()
    leaver = joined(machine, "a", SHARED, permits=3)
    machine.assign(0, log(0, 1, 2, 3))
    joined(machine, "b", SHARED)
    machine.cursor.ack(1)
    machine.acked(leaver, 1)
    machine.remove_consumer(leaver)
    deliveries = machine.assign(0, log(0, 1, 2, 3))
    assert [(d.place, d.redelivery_count) for d in deliveries] == [(0, 1), (2, 1), (3, 0)]


def test_a_shared_consumer_with_too_much_unacknowledged_waits() -> None:
    """Until it acknowledges."""
    machine = Dispatcher(Cursor(-1), max_unacked_messages_per_consumer=2)
    consumer = joined(machine, "a", SHARED)
    machine.assign(0, log(0, 1))
    assert machine.wants(10) is None
    machine.cursor.ack(0)
    machine.acked(consumer, 0)
    assert machine.wants(10) is not None


def test_an_update_from_another_region_moves_reading_on() -> None:
    """PIP-33: what was acknowledged elsewhere is not delivered here."""
    machine = dispatcher()
    joined(machine, "a", EXCLUSIVE)
    machine.cursor.ack_cumulative(6)
    want = machine.wants(10)
    assert want is not None
    assert want.from_entry_id == 7


@pytest.mark.parametrize("seed", range(50))
def test_every_entry_is_delivered_until_it_is_acknowledged(seed: int) -> None:
    """SHARED, random consumers that come, go, acknowledge and refuse: in the end nothing is left, nothing was
    delivered to two at once, and nothing came again after its acknowledgement."""
    chance = random.Random(seed)
    entries = log(*sorted(chance.sample(range(100), 60)), hidden=tuple(range(0, 100, 7)))
    end = entries[-1].entry_id + 1
    visible = {entry.entry_id for entry in entries if not entry.hidden}
    machine, held, acked = dispatcher(), dict[int, ConsumerState](), set[int]()
    for _ in range(600):
        match chance.randrange(6):
            case 0 if len(machine.consumers) < 3:
                joined(machine, f"c{chance.random()}", SHARED, permits=chance.randrange(1, 8))
            case 1 if machine.consumers and chance.random() < 0.3:
                gone = chance.choice(machine.consumers)
                machine.remove_consumer(gone)
                held = {entry_id: one for entry_id, one in held.items() if one is not gone}
            case 2 if held:
                entry_id = chance.choice(sorted(held))
                machine.cursor.ack(entry_id)
                machine.acked(held.pop(entry_id), entry_id)
                acked.add(entry_id)
            case 3 if held:
                entry_id = chance.choice(sorted(held))
                machine.redeliver(held.pop(entry_id), [entry_id])
            case _:
                _hand_out(machine, entries, end, held, acked, chance)
    joined(machine, "last", SHARED, permits=1000)
    for _ in range(300):
        _hand_out(machine, entries, end, held, acked, chance)
        for entry_id in list(held):
            machine.cursor.ack(entry_id)
            machine.acked(held.pop(entry_id), entry_id)
            acked.add(entry_id)
    assert acked == visible
    assert machine.cursor.mark_delete == end - 1


def _hand_out(
    machine: Dispatcher,
    entries: list[ReadEntry],
    end: int,
    held: dict[int, ConsumerState],
    acked: set[int],
    chance: random.Random,
) -> None:
    for consumer in machine.consumers:
        machine.flow(consumer, chance.randrange(3))
    want = machine.wants(end)
    if want is None:
        return
    read = [entry for entry in entries if entry.entry_id >= want.from_entry_id][: want.entries_max]
    for delivery in machine.assign(want.from_entry_id, read):
        entry_id = read[delivery.place].entry_id
        assert entry_id not in held
        assert entry_id not in acked
        held[entry_id] = delivery.consumer
