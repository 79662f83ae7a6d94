"""Which producers may publish: the table of PIP-68, the queue of PIP-440, and what survives a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.access.machine import Access
from emulator.core.access.types import (
    NO_OWNER,
    AccessGrant,
    AccessRules,
    Admit,
    Claimant,
    Decision,
    Enqueue,
    Evict,
    Refuse,
    WriteGrant,
)
from emulator.model.values import AccessMode

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAITING, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING
OK, WAITS, FENCED, BUSY = "ok", "waits", "ProducerFenced", "ProducerBusy"


@dataclass(eq=False)
class Producer:
    """A producer."""

    producer_name: str
    access_mode: AccessMode = EXCLUSIVE
    topic_epoch: int | None = None
    queue_priority: int = 0
    was_opened_before: bool = False


@dataclass
class World:
    """An access machine with a log that stores its writes at once, unless `writes` is false."""

    access: Access = field(default_factory=Access)
    writes: bool = True
    end: int = 0
    """The end of the log."""
    stored: list[AccessGrant] = field(default_factory=list)
    responses: dict[Claimant, object] = field(default_factory=dict)
    """The last response to each: an epoch, None for shared access, or an error name."""
    promoted: list[str] = field(default_factory=list)
    now_us: int = 0

    def enter(self, one: Producer) -> object:
        self.now_us += 1
        self.carry_out(self.access.enter(one, self.now_us))
        return self.responses.get(one, "nothing")

    def entered(self, name: str, mode: AccessMode = EXCLUSIVE, **fields: int) -> Producer:
        """Let a new producer enter, and return it."""
        producer = Producer(name, mode, **fields)
        self.enter(producer)
        return producer

    def came_and_left(self, name: str, mode: AccessMode = EXCLUSIVE) -> None:
        self.left(self.entered(name, mode))

    def left(self, one: Producer) -> None:
        self.carry_out(self.access.left(one))

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                self.responses[decision.claimant] = decision.epoch
                self.promoted.append(decision.claimant.producer_name)
            elif isinstance(decision, Enqueue):
                self.responses[decision.claimant] = WAITS
            elif isinstance(decision, Refuse):
                self.responses[decision.claimant] = decision.code.name
            elif isinstance(decision, Evict):
                self.responses[decision.claimant] = "evicted"
        if any(isinstance(decision, WriteGrant) for decision in decisions) and self.writes:
            self.write()

    def write(self) -> None:
        change = self.access.change
        assert change is not None
        self.end += 1
        self.stored.append(change.at(self.end))
        self.carry_out(self.access.written(self.stored[-1]))

    def write_in_doubt(self) -> None:
        """Store the grant, but report the write as in doubt."""
        change = self.access.change
        assert change is not None
        self.stored.append(change.at(self.end))
        self.carry_out(self.access.not_written("the outcome is unknown"))

    def restarted(self, *, reserved: bool = True) -> World:
        line = {place.claimant.producer_name: place.arrived_us for place in self.access.queue.entries}
        access = Access(self.stored[-1] if self.stored else None, reserved=reserved, queued_before=line)
        return World(access, end=self.end, stored=self.stored, now_us=self.now_us)


@pytest.fixture
def world() -> World:
    return World()


TABLE = {
    SHARED: {SHARED: OK, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    EXCLUSIVE: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    WAITING: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    FENCING: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
}
"""First producer -> second one -> the result for the second one."""
CELLS = [(first, second) for first in AccessMode for second in AccessMode]


@pytest.mark.parametrize(("first", "second"), CELLS, ids=lambda mode: mode.label)
def test_who_gets_in_beside_whom(world: World, first: AccessMode, second: AccessMode) -> None:
    holder, second_producer = world.entered("holder", first), Producer("second_producer", second)
    got = world.enter(second_producer)
    assert (OK if got is None or isinstance(got, int) else got) == TABLE[first][second]
    assert (world.responses[holder] == "evicted") == (second is FENCING)


@pytest.mark.parametrize("first", list(AccessMode), ids=lambda mode: mode.label)
def test_a_fenced_producer_gets_producer_fenced_when_its_client_connects_again(
    world: World, first: AccessMode
) -> None:
    loser = Producer("loser", first)
    epoch = world.enter(loser)
    world.enter(Producer("winner", FENCING))
    assert isinstance(epoch, int) or epoch is None
    assert world.enter(Producer("loser", first, topic_epoch=epoch, was_opened_before=True)) == FENCED


def test_a_new_instance_with_the_name_of_a_fenced_producer_is_treated_like_any_other(world: World) -> None:
    world.enter(Producer("loser", SHARED))
    winner = world.entered("winner", FENCING)
    assert world.enter(Producer("loser", SHARED)) == BUSY
    world.left(winner)
    assert world.enter(Producer("loser", SHARED)) is None


def test_shared_producers_receive_no_epoch(world: World) -> None:
    owner = Producer("owner")
    assert world.enter(owner) == 0
    world.left(owner)
    assert world.enter(Producer("shared", SHARED)) is None


def test_fencing_refuses_waiting_producers_too(world: World) -> None:
    world.enter(Producer("owner"))
    waiter = world.entered("waiter", WAITING)
    assert world.enter(Producer("winner", FENCING)) == 1
    assert world.responses[waiter] == FENCED


def test_the_last_shared_producer_that_leaves_makes_room(world: World) -> None:
    first, second = world.entered("a", SHARED), world.entered("b", SHARED)
    waiter = world.entered("waiter", WAITING)
    world.left(first)
    assert world.responses[waiter] == WAITS
    world.left(second)
    assert world.responses[waiter] == 0


def test_the_highest_priority_is_promoted_first_then_the_oldest(world: World) -> None:
    owner = world.entered("owner")
    low, old, new, high = (
        Producer("low", WAITING, queue_priority=-3),
        Producer("old", WAITING),
        Producer("new", WAITING),
        Producer("high", WAITING, queue_priority=7),
    )
    for one in (low, old, new, high):
        assert world.enter(one) == WAITS
    for leaving in (owner, high, old, new):
        world.left(leaving)
    assert world.promoted == ["owner", "high", "old", "new", "low"]


def test_a_random_number_decides_between_producers_that_came_at_once() -> None:
    access = Access()
    world = World(access)
    world.enter(Producer("owner"))
    access.enter(Producer("later drawn", WAITING), arrived_us=9, tie_breaker=2)
    access.enter(Producer("first drawn", WAITING), arrived_us=9, tie_breaker=1)
    assert [one.producer_name for one in access.waiting()] == ["first drawn", "later drawn"]


def test_a_priority_never_evicts_an_owner(world: World) -> None:
    owner = world.entered("owner", WAITING)
    assert world.enter(Producer("high", WAITING, queue_priority=2**31 - 1)) == WAITS
    assert world.access.owner is owner


def test_priorities_have_no_effect_outside_of_the_queue(world: World) -> None:
    world.enter(Producer("owner"))
    assert world.enter(Producer("shared", SHARED, queue_priority=9)) == BUSY
    assert world.enter(Producer("exclusive", EXCLUSIVE, queue_priority=9)) == FENCED


def test_an_owner_that_comes_back_first_keeps_its_epoch(world: World) -> None:
    owner = Producer("owner")
    assert world.enter(owner) == 0
    world.left(owner)
    assert world.enter(Producer("owner", topic_epoch=0, was_opened_before=True)) == 0
    assert world.stored[-1] == AccessGrant(0, "owner", first_entry=1)


def test_an_owner_that_comes_back_second_is_fenced_for_good(world: World) -> None:
    owner, other = world.entered("owner"), Producer("other")
    world.left(owner)
    assert world.enter(other) == 1
    again = Producer("owner", WAITING, topic_epoch=0, was_opened_before=True)
    assert world.enter(again) == FENCED
    world.left(other)
    assert world.enter(again) == FENCED


def test_an_owner_that_comes_back_after_shared_producers_gets_a_new_epoch(world: World) -> None:
    """The messages in between are not the owner's: its old epoch would claim them."""
    owner, shared = world.entered("owner"), Producer("shared", SHARED)
    world.left(owner)
    world.enter(shared)
    world.left(shared)
    assert world.enter(Producer("owner", topic_epoch=0, was_opened_before=True)) == 1


@pytest.mark.parametrize("claimed", [1, 2**63, 2**64 - 1])
def test_an_epoch_that_was_never_granted_is_no_epoch(world: World, claimed: int) -> None:
    world.came_and_left("owner")
    assert world.enter(Producer("other", topic_epoch=claimed)) == 1


def test_the_epoch_of_another_owner_is_no_epoch(world: World) -> None:
    world.came_and_left("owner")
    assert world.enter(Producer("other", topic_epoch=0)) == 1


def test_an_older_epoch_of_another_owner_is_fenced(world: World) -> None:
    world.came_and_left("owner")
    world.came_and_left("newer owner")
    assert world.enter(Producer("other", topic_epoch=0)) == FENCED


def test_a_producer_that_leaves_is_removed_from_the_queue_at_once(world: World) -> None:
    owner, waiter = world.entered("owner"), world.entered("waiter", WAITING)
    world.entered("next", WAITING)
    world.left(waiter)
    world.left(owner)
    assert world.promoted == ["owner", "next"]
    assert world.access.epoch == 1, "dead producers use no epoch"


def test_no_producer_receives_an_epoch_that_is_not_durable() -> None:
    world = World(writes=False)
    owner = Producer("owner")
    assert world.enter(owner) == "nothing"
    world.write()
    assert world.responses[owner] == 0


def test_what_comes_while_a_grant_is_written_is_decided_afterwards_in_its_order() -> None:
    world = World(writes=False)
    owner, exclusive, shared, waiter = (
        Producer("owner"),
        Producer("exclusive"),
        Producer("shared", SHARED),
        Producer("w", WAITING),
    )
    for one in (owner, exclusive, shared, waiter):
        assert world.enter(one) == "nothing"
    world.write()
    assert [world.responses[one] for one in (owner, exclusive, shared, waiter)] == [0, FENCED, BUSY, WAITS]


def test_an_owner_that_leaves_while_its_grant_is_written_makes_room_for_the_next() -> None:
    world = World(writes=False)
    owner, waiter = world.entered("owner"), world.entered("waiter", WAITING)
    world.left(owner)
    world.write()
    assert world.access.owner is waiter
    world.write()
    assert world.responses == {waiter: 1}


def test_a_fencing_producer_waits_for_the_grant_that_is_being_written() -> None:
    world = World(writes=False)
    owner, winner = world.entered("owner"), world.entered("winner", FENCING)
    world.write()
    assert world.responses[owner] == "evicted"
    world.write()
    assert world.responses[winner] == 1


@pytest.mark.parametrize(
    "rules", [AccessRules(), AccessRules(promotes_once=True)], ids=["ours", "upstream's"]
)
def test_a_promotion_that_cannot_be_stored_is_tried_with_the_next_one(rules: AccessRules) -> None:
    world = World(Access(rules=rules))
    owner, first = world.entered("owner"), world.entered("first", WAITING)
    second = world.entered("second", WAITING)
    world.writes = False
    world.left(owner)
    world.writes = True
    world.carry_out(world.access.not_written("disk full"))
    assert world.responses[first] == "PersistenceError"
    if rules.promotes_once:
        assert world.access.owner is None, "upstream: no owner, and a producer waits"
        assert world.responses[second] == WAITS
    else:
        assert world.responses[second] == 1


def test_a_producer_that_waits_behind_a_failing_store_is_refused_and_may_come_again() -> None:
    world = World(writes=False)
    owner = world.entered("owner")
    late = world.entered("late", SHARED)
    world.carry_out(world.access.not_written("disk full"))
    assert world.responses == {owner: "PersistenceError", late: "PersistenceError"}
    world.writes = True
    assert world.enter(Producer("again")) == 0


def doubtful(world: World) -> None:
    """The write under way fails, and yet the grant is stored."""
    world.write_in_doubt()
    world.writes = True


def test_a_grant_that_may_be_stored_is_barred_before_shared_producers_publish() -> None:
    """Otherwise their messages would belong to the epoch of a producer that never had it."""
    for world in (World(), World(Access(AccessGrant(0, "former", 0, 1)), end=1)):
        world.writes = False
        world.enter(Producer("owner"))
        doubtful(world)
        shared = world.entered("shared", SHARED)
        assert world.responses[shared] is None
        newest = world.stored[-1]
        assert newest.epoch == world.stored[0].epoch
        assert (newest.owner, newest.first_entry) == (NO_OWNER, newest.end_entry)


def test_a_former_owner_does_not_go_on_in_its_epoch_when_a_newer_one_may_be_stored(world: World) -> None:
    world.came_and_left("owner")
    world.writes = False
    world.enter(Producer("other", FENCING))
    doubtful(world)
    assert world.enter(Producer("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True)) == 1
    assert world.stored[-1].owner == "owner"


def test_an_owner_that_comes_back_while_its_end_may_be_stored_has_it_undone(world: World) -> None:
    owner = world.entered("owner")
    world.writes = False
    world.left(owner)
    doubtful(world)
    assert world.stored[-1].end_entry is not None
    assert world.enter(Producer("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True)) == 0
    assert world.stored[-1].end_entry is None


def test_a_return_that_may_be_stored_is_ended_before_shared_producers_publish(world: World) -> None:
    world.came_and_left("owner")
    world.writes = False
    world.enter(Producer("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True))
    doubtful(world)
    assert world.stored[-1].end_entry is None
    shared = Producer("shared", SHARED)
    assert world.enter(shared) is None
    assert world.stored[-1].end_entry is not None


def test_the_end_of_ownership_is_durable_before_shared_producers_publish() -> None:
    world = World(writes=False)
    owner, shared = world.entered("owner"), Producer("shared", SHARED)
    world.write()
    world.left(owner)
    assert world.enter(shared) == "nothing"
    world.write()
    assert world.stored[-1].end_entry is not None
    assert world.responses[shared] is None


# After a restart.


def left_behind(*names: str) -> World:
    """A region that was killed while `owner` had the topic and these producers waited for it, in this order."""
    world = World()
    world.enter(Producer("owner", WAITING))
    for name in names:
        world.enter(Producer(name, WAITING))
    return world.restarted()


def test_the_owner_gets_its_topic_back_although_others_came_first() -> None:
    world = left_behind("waiter")
    assert world.enter(Producer("waiter", WAITING)) == WAITS
    assert world.enter(Producer("stranger", EXCLUSIVE)) == FENCED
    assert world.enter(Producer("shared", SHARED)) == BUSY
    assert world.enter(Producer("owner", WAITING, topic_epoch=0, was_opened_before=True)) == 0


def test_waiting_producers_keep_their_order_over_a_restart() -> None:
    world = left_behind("first", "second", "third")
    for name in ("third", "newcomer", "first", "second"):
        world.enter(Producer(name, WAITING))
    names = [one.producer_name for one in world.access.waiting()]
    assert names == ["first", "second", "third", "newcomer"]


def test_a_dead_owner_delays_others_for_no_more_than_the_grace_period() -> None:
    world = left_behind("waiter")
    waiter = world.entered("waiter", WAITING)
    world.carry_out(world.access.grace_period_over())
    assert world.responses[waiter] == 1
    assert world.enter(Producer("owner", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=lambda mode: mode.label)
def test_a_new_instance_of_a_former_owner_need_not_wait_for_itself(mode: AccessMode) -> None:
    assert left_behind().enter(Producer("owner", mode)) == 1


def test_a_new_instance_of_a_former_owner_queues_behind_waiting_producers() -> None:
    world = left_behind("waiter")
    waiter = world.entered("waiter", WAITING)
    assert world.enter(Producer("owner", WAITING)) == WAITS
    assert world.responses[waiter] == 1


def test_fencing_does_not_wait_for_a_former_owner() -> None:
    assert left_behind().enter(Producer("winner", FENCING)) == 1


def test_without_a_grace_period_the_first_producer_has_the_topic(world: World) -> None:
    world.enter(Producer("owner"))
    assert world.restarted(reserved=False).enter(Producer("other")) == 1


def test_a_topic_whose_owner_left_is_not_reserved_for_it(world: World) -> None:
    world.came_and_left("owner")
    again = world.restarted()
    assert again.access.reserved_for is None
    assert again.enter(Producer("shared", SHARED)) is None


def test_after_a_restart_the_end_of_an_epoch_is_stored_before_shared_producers_publish() -> None:
    world = left_behind()
    world.carry_out(world.access.grace_period_over())
    assert world.stored[-1].end_entry is not None
    assert world.enter(Producer("shared", SHARED)) is None


def test_an_owner_on_a_new_connection_takes_over_from_itself(world: World) -> None:
    old, waiter = world.entered("owner"), world.entered("waiter", WAITING)
    new = Producer("owner", topic_epoch=0, was_opened_before=True)
    assert world.access.hand_over(old, new)
    world.left(old)
    assert world.enter(new) == 0
    assert world.responses[waiter] == WAITS


def test_no_other_producer_takes_over_from_an_owner(world: World) -> None:
    old = world.entered("owner")
    assert not world.access.hand_over(old, Producer("owner"))
    assert not world.access.hand_over(old, Producer("other", topic_epoch=0))


# Another exclusive region.


def test_when_the_exclusive_region_changes_every_publishing_producer_is_evicted_and_barred(
    world: World,
) -> None:
    owner, waiter = world.entered("owner", WAITING), world.entered("waiter", WAITING)
    world.carry_out(world.access.set_exclusive_region("eu"))
    assert world.responses == {owner: "evicted", waiter: WAITS}
    assert world.enter(Producer("owner", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED
    assert world.enter(Producer("other", FENCING)) == "NotAllowedError"
    world.carry_out(world.access.set_exclusive_region(""))
    assert world.responses[waiter] == 2


def test_an_owner_of_before_a_change_of_the_exclusive_region_is_barred_after_it_too(world: World) -> None:
    world.came_and_left("owner")
    world.carry_out(world.access.set_exclusive_region("eu"))
    world = world.restarted()
    assert world.enter(Producer("owner", topic_epoch=0, was_opened_before=True)) == FENCED


def test_a_bar_that_cannot_be_stored_is_written_later(world: World) -> None:
    world.entered("owner")
    world.writes = False
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.not_written("disk full"))
    world.writes = True
    world.carry_out(world.access.set_exclusive_region(""))
    assert world.enter(Producer("owner", topic_epoch=0, was_opened_before=True)) == FENCED


# Upstream's rules.


def test_upstream_promotes_in_order_of_arrival() -> None:
    world = World(Access(rules=AccessRules(first_come_first_served=True)))
    owner = world.entered("owner")
    world.enter(Producer("old", WAITING))
    world.enter(Producer("high", WAITING, queue_priority=7))
    world.left(owner)
    assert world.promoted == ["owner", "old"]


@pytest.mark.parametrize(
    ("mode", "got"), [(SHARED, BUSY), (WAITING, WAITS), (EXCLUSIVE, FENCED), (FENCING, FENCED)]
)
def test_what_fenced_producers_get_under_upstream_s_rules(mode: AccessMode, got: str) -> None:
    world = World(Access(rules=AccessRules(forgets_fenced=True)))
    loser = Producer("loser", mode)
    epoch = world.enter(loser)
    world.enter(Producer("winner", FENCING))
    assert isinstance(epoch, int) or epoch is None
    assert world.enter(Producer("loser", mode, topic_epoch=epoch, was_opened_before=True)) == got


# Any order of events.


ACTIONS = ["enter", "enter", "enter", "leave", "write", "write", "write", "fail", "grace period", "region"]


class Player:
    """A client that enters, leaves, dies and comes back at random."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.one: Producer | None = None
        self.epoch: int | None = None


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_there_is_one_owner_epochs_only_grow_and_no_producer_waits_for_a_free_topic(
    data: st.DataObject,
) -> None:
    world = World(writes=False)
    players = [Player(f"p{number}") for number in range(5)]
    held: set[Claimant] = set()
    for _ in range(data.draw(st.integers(1, 60))):
        access = world.access
        action = data.draw(st.sampled_from(ACTIONS))
        player = data.draw(st.sampled_from(players))
        if action == "enter" and player.one is None:
            mode = data.draw(st.sampled_from(list(AccessMode)))
            claimed = data.draw(st.sampled_from([player.epoch, None, 0, 2**63]))
            player.one = Producer(player.name, mode, claimed, data.draw(st.integers(-2, 2)))
            world.enter(player.one)
        elif action == "leave" and player.one is not None:
            world.left(player.one)
            player.one = None
        elif action == "write" and access.change is not None:
            world.write()
        elif action == "fail" and access.change is not None:
            world.carry_out(access.not_written("no"))
        elif action == "grace period":
            world.carry_out(access.grace_period_over())
        elif action == "region":
            world.carry_out(access.set_exclusive_region("" if access.exclusive_region else "eu"))
        for other in players:
            responses = world.responses.get(other.one) if other.one is not None else None
            if isinstance(responses, int):
                other.epoch = responses
            elif responses not in (None, WAITS):
                other.one = None  # refused or evicted
        held = {
            one
            for one in (p.one for p in players)
            if one is not None and isinstance(world.responses.get(one), int)
        }
        shared = {p.one for p in players if p.one is not None and p.one in access.shared}
        assert len(held) + bool(shared) <= 1
        if access.change is None:
            assert all(p.one is None or p.one in world.responses for p in players), (
                "every producer has a response"
            )
            assert not access.queue or access.exclusive_region or access.owner is not None or access.shared
    grants = [grant for grant in world.stored if grant.end_entry is None]
    assert [grant.epoch for grant in world.stored] == sorted(grant.epoch for grant in world.stored)
    assert all(before.first_entry <= after.first_entry for before, after in pairwise(grants))


def test_an_end_names_the_grant_that_ended(world: World) -> None:
    world.came_and_left("owner")
    assert world.stored == [AccessGrant(0, "owner", 1), AccessGrant(0, "owner", 1, 2)]


# Attacks.


def failing(world: World) -> None:
    """The write under way fails, or its outcome is unknown."""
    world.carry_out(world.access.not_written("disk full"))


def test_producers_behind_a_bar_that_cannot_be_stored_are_refused_one_after_the_other(world: World) -> None:
    """A region whose disk is full must not retry for ever."""
    world.enter(Producer("owner"))
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.set_exclusive_region(""))
    world.entered("again")
    first, second = world.entered("first", WAITING), world.entered("second", WAITING)
    world.writes = False
    world.carry_out(world.access.set_exclusive_region("eu"))
    failing(world)
    world.carry_out(world.access.set_exclusive_region(""))
    failing(world)
    failing(world)
    assert (world.responses[first], world.responses[second]) == ("PersistenceError", "PersistenceError")
    assert world.access.change is None


def test_a_producer_that_waits_for_a_write_of_its_own_keeps_its_place() -> None:
    world = World(writes=False)
    owner, shared = world.entered("owner"), world.entered("shared", SHARED)
    late = world.entered("late", EXCLUSIVE)
    world.left(owner)
    world.write()
    world.write()
    assert world.responses == {shared: None, late: FENCED}


def test_a_fenced_producer_does_not_cost_its_namesake_the_topic(world: World) -> None:
    """Two instances of one program use one name; the older was frozen, and resumes while the region restarts."""
    world.enter(Producer("leader", WAITING))
    world.enter(Producer("leader", FENCING))
    world.enter(Producer("waiter", WAITING))
    world = world.restarted()
    waiter = world.entered("waiter", WAITING)
    assert world.enter(Producer("leader", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED
    assert world.responses[waiter] == WAITS
    assert world.enter(Producer("leader", FENCING, topic_epoch=1, was_opened_before=True)) == 1


def test_a_queued_producer_is_found_by_its_name_until_it_leaves(world: World) -> None:
    owner, waiter = world.entered("owner"), world.entered("waiter", WAITING)
    assert world.access.named("waiter") is waiter
    world.left(waiter)
    assert world.access.named("waiter") is None
    assert world.access.named("owner") is owner


def test_an_exclusive_region_that_changes_twice_while_the_first_grant_fails_leaves_no_producer_waiting() -> (
    None
):
    world = World(writes=False)
    world.enter(Producer("owner"))
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.set_exclusive_region(""))
    failing(world)
    world.writes = True
    assert isinstance(world.enter(Producer("next")), int)


def test_an_exclusive_region_that_changes_twice_during_a_write_bars_before_any_producer_is_admitted() -> None:
    """Shared producers too. No producer is decided repeatedly: that would stop the region."""
    world = World(writes=False)
    owner, shared, late = world.entered("owner"), Producer("shared", SHARED), Producer("late", EXCLUSIVE)
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.set_exclusive_region(""))
    world.enter(shared)
    world.enter(late)
    for _ in range(3):
        if world.access.change is not None:
            world.write()
    assert world.responses == {owner: "NotAllowedError", shared: None, late: FENCED}
    assert world.stored[-1].owner == ""
