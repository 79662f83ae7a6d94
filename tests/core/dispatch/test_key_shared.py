"""KEY_SHARED: one consumer per key, in order, while consumers come and go."""

from __future__ import annotations

import time

import pytest

from emulator.core.dispatch.consistent_hash import SLOTS, SlotOwners, hash_of, range_slot
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.key_shared import ASIDE_MAX, ASIDE_PER_CONSUMER
from emulator.core.dispatch.types import ConsumerState, KeySharing, Read
from emulator.core.transactions.pending_acks import ClaimedAck, PendingAcks
from emulator.errors import ProtocolError, ServerError
from emulator.model.hashing import murmur3
from emulator.model.transaction_names import TxnId
from tests.core.dispatch.playbook import (
    END,
    KEY_SHARED,
    Candidate,
    dispatched,
    dispatcher,
    found,
    joined,
    wanted,
)

TXN = TxnId(0, 1)
KEYS = [f"key-{number}".encode() for number in range(50)]


def log(*keys: bytes) -> list[Candidate]:
    return [Candidate(number, 1, False, hash_of(key)) for number, key in enumerate(keys)]


def owner_of(machine: Dispatcher, key: bytes) -> ConsumerState:
    shares = machine.strategy.slot_owners
    return shares.owner_of(shares.slot_of(hash_of(key)))


def sticky(
    machine: Dispatcher, name: str, *ranges: tuple[int, int], may_reorder: bool = False
) -> ConsumerState:
    consumer = ConsumerState(name, 0, 100, key_sharing=KeySharing(True, ranges, may_reorder))
    machine.joined(consumer, KEY_SHARED, now_ms=0)
    return consumer


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"\x21", 0x72661CF4),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43\x65\x87", 0xF55B516B),
    ],
)
def test_the_hash_is_murmur3(data: bytes, hashed: int) -> None:
    assert murmur3(data) == hashed


def test_keys_are_spread_and_each_goes_to_one_consumer(machine: Dispatcher) -> None:
    for name in "abc":
        joined(machine, name, KEY_SHARED, permits=1000)
    given = dispatched(machine, log(*KEYS * 4))
    assert len(given) == 200
    consumers = {key: {name for name, entry_id in given if (KEYS * 4)[entry_id] == key} for key in KEYS}
    assert all(len(names) == 1 for names in consumers.values())
    assert {name for names in consumers.values() for name in names} == {"a", "b", "c"}


def test_a_consumer_that_comes_takes_its_share_and_no_more() -> None:
    shares: SlotOwners = SlotOwners()
    old = [ConsumerState(name) for name in "abcd"]
    for one in old:
        shares.add(one, KeySharing())
    before = {slot: shares.owner_of(slot) for slot in range(0, SLOTS, 97)}
    new = ConsumerState("e")
    shares.add(new, KeySharing())
    moved = {slot for slot, owner in before.items() if shares.owner_of(slot) is not owner}
    assert all(shares.owner_of(slot) is new for slot in moved)
    assert 0.1 < len(moved) / len(before) < 0.35
    shares.remove(new)
    assert {slot: shares.owner_of(slot) for slot in before} == before


def test_a_key_waits_until_its_former_consumer_has_acknowledged_it(machine: Dispatcher) -> None:
    first = sticky(machine, "first", (0, SLOTS - 1))
    dispatched(machine, log(b"k"))
    machine.strategy.left(first, 0)
    second = sticky(machine, "second", (0, SLOTS - 1))
    assert dispatched(machine, log(b"k", b"k")) == [("second", 0), ("second", 1)]
    machine.acknowledge(second, [(0, None), (1, None)], END)


def test_a_moved_key_is_held_back_from_its_new_consumer(machine: Dispatcher) -> None:
    old = joined(machine, "a", KEY_SHARED, permits=1000)
    entries = log(*KEYS)
    assert len(dispatched(machine, entries)) == len(KEYS)
    joined(machine, "b", KEY_SHARED, permits=1000)
    moved = [number for number, key in enumerate(KEYS) if owner_of(machine, key).name == "b"]
    assert moved
    assert machine.strategy.draining == {old: len(moved)}
    more = log(*KEYS, *KEYS)
    given = dispatched(machine, more)
    assert {name for name, _ in given} == {"a"}
    assert len(given) == len(KEYS) - len(moved)
    machine.acknowledge(old, [(moved[0], None)], END)
    assert dispatched(machine, more) == [("b", len(KEYS) + moved[0])]


def test_keys_that_may_be_reordered_do_not_wait(machine: Dispatcher) -> None:
    sticky(machine, "low", (0, 100), may_reorder=True)
    sticky(machine, "all", (101, SLOTS - 1), may_reorder=True)
    machine.strategy.left(machine.strategy.consumers[0], 0)
    assert machine.strategy.slot_owners.may_reorder


def test_a_slow_consumer_delays_no_other_consumer(machine: Dispatcher) -> None:
    sticky(machine, "slow", (0, 30_000)).permits = 1
    sticky(machine, "quick", (30_001, SLOTS - 1))
    entries = log(*KEYS)
    given = dispatched(machine, entries)
    assert [name for name, _ in given].count("slow") == 1
    assert [name for name, _ in given].count("quick") == sum(
        range_slot(hash_of(key)) > 30_000 for key in KEYS
    )


def test_what_waited_for_a_consumer_goes_to_it_in_order_when_it_has_permits(machine: Dispatcher) -> None:
    slow = sticky(machine, "slow", (0, SLOTS - 1))
    slow.permits = 1
    entries = log(b"k", b"k", b"k")
    assert dispatched(machine, entries) == [("slow", 0)]
    machine.strategy.flow(slow, 10)
    assert dispatched(machine, entries) == [("slow", 1), ("slow", 2)]


def test_a_key_without_an_owner_waits_and_delays_no_other_key(machine: Dispatcher) -> None:
    sticky(machine, "few", (0, 10))
    entries = log(*KEYS)
    assert len(dispatched(machine, entries)) == sum(range_slot(hash_of(key)) <= 10 for key in KEYS)
    sticky(machine, "rest", (11, SLOTS - 1))
    assert len(dispatched(machine, entries)) == sum(range_slot(hash_of(key)) > 10 for key in KEYS)


def test_nothing_new_is_read_while_too_much_is_aside() -> None:
    machine = dispatcher(unacked_messages_max=10**6)
    sticky(machine, "none of it", (0, 0))
    entries = [Candidate(number, 1, False, 7) for number in range(ASIDE_PER_CONSUMER + 2_000)]
    end = len(entries)
    while isinstance(read := machine.strategy.next(end, 0, 0), Read):
        at = read.from_entry_id
        machine.strategy.offer(read, entries[at : at + read.entries_max], 0)
    assert ASIDE_PER_CONSUMER <= machine.strategy.read_entry_id < end
    sticky(machine, "all", (1, SLOTS - 1)).permits = 10**6
    assert isinstance(machine.strategy.next(end, 0, 0), Read)


def test_what_comes_back_goes_out_again_before_later_entries_of_its_key(machine: Dispatcher) -> None:
    consumer = sticky(machine, "one", (0, SLOTS - 1))
    entries = log(b"k", b"k", b"k", b"k")
    dispatched(machine, entries[:2])
    machine.strategy.returned(consumer, [0])
    assert dispatched(machine, entries) == [("one", 0), ("one", 2), ("one", 3)]


def test_an_abort_during_a_read_releases_a_message_before_later_ones_of_its_key(
    machine: Dispatcher,
) -> None:
    """The slot has moved meanwhile: the new consumer received the later message first (INV-69)."""
    acks = machine.cursor.held = PendingAcks()
    sticky(machine, "idle", (0, 0))
    old = sticky(machine, "old", (1, SLOTS - 1))
    entries = log(b"k", b"k", b"k", b"k")
    assert dispatched(machine, entries[:1]) == [("old", 0)]
    acks.acknowledge(TXN, [ClaimedAck(0)], machine.cursor)
    machine.held(old, [0])
    machine.strategy.left(old, 0)
    sticky(machine, "new", (1, SLOTS - 1))
    read = wanted(machine, len(entries))
    acks.end(TXN)
    machine.strategy.released([0])
    assert machine.strategy.offer(read, found(read, entries), 0) == []
    assert dispatched(machine, entries) == [("new", entry_id) for entry_id in range(4)]


def test_a_released_message_that_is_acknowledged_delays_no_later_one(machine: Dispatcher) -> None:
    acks = machine.cursor.held = PendingAcks()
    consumer = sticky(machine, "one", (0, SLOTS - 1))
    entries = log(b"k", b"k", b"k")
    dispatched(machine, entries[:2])
    acks.acknowledge(TXN, [ClaimedAck(0), ClaimedAck(1)], machine.cursor)
    machine.held(consumer, [0, 1])
    read = wanted(machine, len(entries))
    acks.end(TXN)
    machine.strategy.released([0, 1])
    machine.acknowledge(consumer, [(0, None)], END)
    machine.cursor.ack_cumulative_except(1, [])
    machine.strategy.moved()
    assert len(machine.strategy.offer(read, found(read, entries), 0)) == 1


def test_an_abort_dispatches_a_batch_that_is_set_aside_once(machine: Dispatcher) -> None:
    """The transaction held one of its messages. It was in `replay`, too, and dispatched a second time."""
    acks = machine.cursor.held = PendingAcks()
    slow, quick = sticky(machine, "slow", (0, 30_000)), sticky(machine, "quick", (30_001, SLOTS - 1))
    entries = [Candidate(0, 2, False, 1), Candidate(1, 1, False, 40_000)]
    assert dispatched(machine, entries[:1]) == [("slow", 0)]
    acks.acknowledge(TXN, [ClaimedAck(0, (0b10,), 2)], machine.cursor)
    machine.held(slow, [0])
    machine.strategy.returned(slow, [0])
    slow.permits = 0
    assert dispatched(machine, entries) == [("quick", 1)]
    acks.end(TXN)
    machine.strategy.released([0])
    machine.strategy.flow(slow, 10)
    assert dispatched(machine, entries) == [("slow", 0)]
    machine.strategy.flow(quick, 10)
    assert machine.strategy.next(2, 0, 0) is None


@pytest.mark.parametrize(
    ("ranges", "rule"),
    [
        ((), "must name ranges"),
        (((5, 4),), "must lie in"),
        (((0, SLOTS),), "must lie in"),
        (((-1, 3),), "must lie in"),
        (((0, 5), (5, 9)), "5..9 conflicts with another range of the same consumer"),
        (((90, 200),), "90..200 conflicts with another consumer's"),
        (tuple((at, at) for at in range(200, 1_300)), "may name 1000 ranges"),
    ],
)
def test_ranges_that_cannot_be_are_refused(
    machine: Dispatcher, ranges: tuple[tuple[int, int], ...], rule: str
) -> None:
    sticky(machine, "there", (100, 110))
    with pytest.raises(ProtocolError, match=rule) as caught:
        sticky(machine, "comer", *ranges)
    assert caught.value.code is ServerError.ConsumerAssignError
    assert [one.name for one in machine.strategy.consumers] == ["there"]


def test_consumers_of_one_subscription_have_one_mode(machine: Dispatcher) -> None:
    there = joined(machine, "auto", KEY_SHARED)
    with pytest.raises(ProtocolError, match="one mode"):
        sticky(machine, "sticky", (0, 5))
    machine.strategy.left(there, 0)
    sticky(machine, "sticky", (0, 5))
    assert wanted(machine).from_entry_id == 0


def test_acknowledging_costs_the_same_however_much_waits_for_others() -> None:
    """A small frame holds twenty thousand acknowledgements, and each was searched for in every slot: minutes without
    any service to clients."""
    machine = dispatcher(unacked_messages_max=1_000_000)
    taker, *_ = [joined(machine, f"c{number}", KEY_SHARED, permits=0) for number in range(12)]
    machine.strategy.flow(taker, 10_000)
    entries = [Candidate(number, 1, False, number * 7_919 % SLOTS) for number in range(40_000)]
    while isinstance(read := machine.strategy.next(len(entries), 0, 0), Read):
        machine.strategy.offer(read, entries[read.from_entry_id : read.from_entry_id + read.entries_max], 0)
    held = list(taker.pending.by_entry)
    assert machine.strategy.read_entry_id - len(held) >= ASIDE_MAX
    began = time.perf_counter()
    machine.acknowledge(taker, [(entry_id, None) for entry_id in held], len(entries))
    machine.acknowledge(taker, [(held[0], None)] * 20_000, len(entries))
    assert time.perf_counter() - began < 5, "of 0.1"


def test_a_consumer_with_one_permit_has_one_read_however_much_is_set_aside() -> None:
    """All entries set aside for it were read again, and all but one set aside again: by each FLOW."""
    machine = dispatcher(unacked_messages_max=1_000_000)
    slow, quick = sticky(machine, "slow", (0, 100)), sticky(machine, "quick", (101, SLOTS - 1))
    slow.permits, quick.permits = 0, 1_000
    entries = [Candidate(number, 1, False, number % 101) for number in range(2 * ASIDE_PER_CONSUMER)]
    assert dispatched(machine, entries) == []
    for number in range(3):
        machine.strategy.flow(slow, 1)
        read = wanted(machine, len(entries))
        assert (read.from_entry_id, read.entries_max) == (number, 1)
        given = machine.strategy.offer(read, found(read, entries), 0)
        assert [one.candidate_index for one in given] == [0]
        assert machine.strategy.next(len(entries), 0, 0) is None


def test_what_waited_for_another_s_acknowledgements_waits_for_its_own_consumer_next(
    machine: Dispatcher,
) -> None:
    old = sticky(machine, "old", (0, SLOTS - 1), may_reorder=False)
    entries = log(b"k", b"k", b"k")
    dispatched(machine, entries[:1])
    machine.strategy.slot_owners.remove(old)
    new = sticky(machine, "new", (0, SLOTS - 1))
    assert dispatched(machine, entries) == []
    new.permits = 0
    machine.acknowledge(old, [(0, None)], END)
    assert dispatched(machine, entries) == []
    machine.strategy.flow(new, 1)
    assert dispatched(machine, entries) == [("new", 1)]
