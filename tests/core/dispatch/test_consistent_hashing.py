"""KEY_SHARED, AUTO_SPLIT: the owner of every slot, as Pulsar 4.0's consistent hashing computes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.dispatch.consistent_hash import KEY_BYTES_MAX, SLOTS, SlotOwners, hash_of, ring_slot
from emulator.core.dispatch.types import ConsumerState, KeySharing
from emulator.model.hashing import murmur3
from tests.core.dispatch.playbook import KEY_SHARED, Candidate, dispatched, dispatcher, joined

NAMES = ("a", "a0", "a\0000", "", "é", "worker")


@dataclass(eq=False)
class Member:
    """A consumer of the independent computation."""

    consumer: ConsumerState
    name_index: int


class Ring:
    """The independent computation: a list of points, searched from its beginning for every slot."""

    def __init__(self) -> None:
        self._members: list[Member] = []

    def join(self, consumer: ConsumerState) -> None:
        taken = [one.name_index for one in self._members if one.consumer.name == consumer.name]
        self._members.append(Member(consumer, min(set(range(len(taken) + 1)) - set(taken))))

    def leave(self, consumer: ConsumerState) -> None:
        self._members = [one for one in self._members if one.consumer is not consumer]

    def owners(self, step: int = 1) -> list[ConsumerState]:
        """Return the owner of every `step`th one of the slots 1 to 65,535, in order."""
        points: dict[int, ConsumerState] = {}
        for member in self._members:
            for number in range(100):
                text = "\0".join((member.consumer.name, str(member.name_index), str(number)))
                slot = (murmur3(text.encode()) % 2**31) % 65_535 + 1
                points.setdefault(slot, member.consumer)
        owners: list[ConsumerState] = []
        for slot in sorted(points):
            owners += [points[slot]] * (slot - len(owners))
        return (owners + [points[min(points)]] * (65_535 - len(owners)))[::step]


def owners_of(shares: SlotOwners, step: int = 1) -> list[ConsumerState | None]:
    return [shares.owner_of(slot) for slot in range(1, SLOTS, step)]


def shared_by(names: Sequence[str]) -> tuple[SlotOwners, list[ConsumerState]]:
    shares: SlotOwners = SlotOwners()
    consumers = [ConsumerState(name) for name in names]
    for one in consumers:
        shares.add(one, KeySharing())
    return shares, consumers


@pytest.mark.parametrize(
    "names",
    [
        ("one",),
        ("a", "b", "c"),
        ("same",) * 3,
        ("a", "a0", "a", "a0"),
        ("w-1", "w-11", "w-1", "w"),
        ("",) * 5,
    ],
)
def test_every_slot_belongs_to_the_consumer_that_the_ring_gives_it_to(names: tuple[str, ...]) -> None:
    shares, consumers = shared_by(names)
    ring = Ring()
    for one in consumers:
        ring.join(one)
    assert owners_of(shares) == ring.owners()


CROWD = " ".join(f"+m{number % 7}" for number in range(120)) + " -3 -50 -51 +m3 -0 -90"
OF_PULSAR = {
    "+same +same +same": "f7b68070cb3fe789fb6ce6309d2a0dd01516bba5e65b622be7e642cf4a31d955",
    "+a +b +c": "6958ac30fdf5ae95dbd9a35c937eb3106b3b219d2316640e2846d0b803840cd6",
    "+a +a0 +a +a0": "75cc77db0f4298990683015ec7a6f8188de163dd0e4a058049cb3431e4ea6e7a",
    "+same +same +same -1": "c9e18d1ca69246acd9d92f440d1aebcded36d9119da8b88a2a494b2a6cb96be2",
    "+same +same +same -0 +same": "32e9f0f9c38211343c29eea42692f4b997a5a53e3e61a06c3386b65520121068",
    "+w-1 +w-11 +w-1 +w": "9b6f006f9630fb95a6a1b044eee8feb096d8b96b76844263b8f7080315e67e15",
    "+é +é": "32063e5210047509dd52facd0c3b6fc72b83623ac5c0775c55ee66f6a84040f6",
    CROWD: "db807a9d5b3ba5cb766ff0a19ae88775738e818867d83c181ce4fd1cf5c30196",
}
"""Joins and leaves (`+name`, `-number`), and SHA-256 over the numbers of the owners of the slots 1 to 65,535, as
`ConsistentHashingStickyKeyConsumerSelector(100)` of Pulsar 4.0.7 computed them."""


@pytest.mark.parametrize("moves", OF_PULSAR)
def test_the_owners_are_those_that_pulsar_chooses(moves: str) -> None:
    shares, consumers = SlotOwners(), list[ConsumerState]()
    for move in moves.split(" "):
        if move.startswith("-"):
            shares.remove(consumers[int(move[1:])])
        else:
            consumers.append(ConsumerState(move[1:]))
            shares.add(consumers[-1], KeySharing())
    numbers = {consumer: number for number, consumer in enumerate(consumers)}
    owners = bytes(numbers[owner] for owner in owners_of(shares) if owner is not None)
    assert len(owners) == SLOTS - 1
    assert sha256(owners).hexdigest() == OF_PULSAR[moves]


def test_keys_have_the_slots_that_pulsar_gives_them() -> None:
    assert (ring_slot(hash_of(b"key1")), ring_slot(hash_of(b"order-7"))) == (7_357, 14_198)


@pytest.mark.parametrize("names", [("same",) * 3, ("", "", ""), ("a", "a0", "a00"), ("a", "a", "a0")])
def test_consumers_share_keys_whatever_their_names_are(names: tuple[str, ...]) -> None:
    machine = dispatcher(unacked_messages_max=10_000)
    consumers = [joined(machine, name, KEY_SHARED, permits=10_000) for name in names]
    entries = [Candidate(number, 1, False, hash_of(b"key-%d" % number)) for number in range(900)]
    dispatched(machine, entries)
    assert sum(one.pending.messages for one in consumers) == 900
    assert all(one.pending.messages > 150 for one in consumers), "no consumer starves"


def test_what_a_consumer_drains_is_not_added_to_another_one_of_its_name() -> None:
    machine = dispatcher()
    first = joined(machine, "same", KEY_SHARED, permits=1_000)
    entries = [Candidate(number, 1, False, hash_of(b"key-%d" % number)) for number in range(200)]
    dispatched(machine, entries)
    second = joined(machine, "same", KEY_SHARED, permits=1_000)
    assert set(machine.strategy.draining) == {first}
    assert machine.strategy.draining[first] > 40
    assert second not in machine.strategy.draining


def test_a_consumer_that_comes_back_gets_the_slots_that_it_had() -> None:
    shares, (first, second, third) = shared_by(("same",) * 3)
    before = owners_of(shares)
    shares.remove(second)
    back = ConsumerState("same")
    shares.add(back, KeySharing())
    assert owners_of(shares) == [back if owner is second else owner for owner in before]
    assert {first, third, back} == set(owners_of(shares))


Moves = st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES), st.integers(0, 7)), max_size=10)


STEP = 17
"""The number of slots that are checked after each move."""


@settings(max_examples=40, deadline=None)
@given(Moves)
def test_only_slots_of_the_consumer_that_joins_or_leaves_change_their_owner(
    moves: list[tuple[bool, str, int]],
) -> None:
    shares, ring, there = SlotOwners(), Ring(), []
    before: list[ConsumerState | None] = owners_of(shares, STEP)
    for joins, name, number in moves:
        if joins and len(there) < 8:
            moving = ConsumerState(name)
            there.append(moving)
            shares.add(moving, KeySharing())
            ring.join(moving)
        elif there:
            moving = there.pop(number % len(there))
            shares.remove(moving)
            ring.leave(moving)
        else:
            continue
        after = owners_of(shares, STEP)
        assert all(moving in (old, new) for old, new in zip(before, after, strict=True) if old is not new)
        if there:
            assert after == ring.owners(STEP)
            _no_consumer_starves(after, there)
        before = after


def _no_consumer_starves(owners: Sequence[ConsumerState | None], there: list[ConsumerState]) -> None:
    slots = Counter(owners)
    assert set(slots) == set(there), "every slot has an owner, and every consumer has slots"
    assert min(slots.values()) > len(owners) / len(there) / 3


def test_a_key_of_any_length_is_hashed_at_once_and_not_kept() -> None:
    huge = [bytes([number]) * 4_000_000 for number in range(3)]
    assert len({hash_of(key) for key in huge}) == 3
    assert hash_of(huge[0]) == hash_of(bytes(4_000_000))
    assert hash_of(b"a" * KEY_BYTES_MAX) != hash_of(b"a" * (KEY_BYTES_MAX + 1))
