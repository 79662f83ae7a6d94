"""Which producers may publish: the table of PIP-68, the queue of PIP-440, and what survives a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.access import (
    NO_OWNER,
    Access,
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
class One:
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
    told: dict[Claimant, object] = field(default_factory=dict)
    """The last response to each: an epoch, None for shared access, or an error name."""
    promoted: list[str] = field(default_factory=list)
    now_us: int = 0

    def enter(self, one: One) -> object:
        self.now_us += 1
        self.carry_out(self.access.enter(one, self.now_us))
        return self.told.get(one, "nothing")

    def left(self, one: One) -> None:
        self.carry_out(self.access.left(one))

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Admit):
                self.told[decision.claimant] = decision.epoch
                self.promoted.append(decision.claimant.producer_name)
            elif isinstance(decision, Enqueue):
                self.told[decision.claimant] = WAITS
            elif isinstance(decision, Refuse):
                self.told[decision.claimant] = decision.code.name
            elif isinstance(decision, Evict):
                self.told[decision.claimant] = "evicted"
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
        self.carry_out(self.access.not_written("nobody knows"))

    def restarted(self, *, patient: bool = True) -> World:
        line = {place.claimant.producer_name: place.arrived_us for place in self.access.queue.entries}
        access = Access(self.stored[-1] if self.stored else None, reserved=patient, queued_before=line)
        return World(access, end=self.end, stored=self.stored, now_us=self.now_us)


TABLE = {
    SHARED: {SHARED: OK, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    EXCLUSIVE: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    WAITING: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
    FENCING: {SHARED: BUSY, EXCLUSIVE: FENCED, WAITING: WAITS, FENCING: OK},
}
"""First producer -> second one -> the result for the second one."""
CELLS = [(first, second) for first in AccessMode for second in AccessMode]


@pytest.mark.parametrize(("first", "second"), CELLS, ids=lambda mode: mode.label)
def test_who_gets_in_beside_whom(first: AccessMode, second: AccessMode) -> None:
    world = World()
    holder, comer = One("holder", first), One("comer", second)
    world.enter(holder)
    met = world.enter(comer)
    assert (OK if met is None or isinstance(met, int) else met) == TABLE[first][second]
    assert (world.told[holder] == "evicted") == (second is FENCING)


@pytest.mark.parametrize("first", list(AccessMode), ids=lambda mode: mode.label)
def test_whoever_was_fenced_off_meets_producer_fenced_when_its_client_connects_again(
    first: AccessMode,
) -> None:
    world = World()
    loser = One("loser", first)
    epoch = world.enter(loser)
    world.enter(One("winner", FENCING))
    assert isinstance(epoch, int) or epoch is None
    assert world.enter(One("loser", first, topic_epoch=epoch, was_opened_before=True)) == FENCED


def test_a_new_instance_with_the_name_of_a_loser_is_judged_like_any_other() -> None:
    world = World()
    world.enter(One("loser", SHARED))
    winner = One("winner", FENCING)
    world.enter(winner)
    assert world.enter(One("loser", SHARED)) == BUSY
    world.left(winner)
    assert world.enter(One("loser", SHARED)) is None


def test_shared_producers_are_told_no_epoch() -> None:
    world = World()
    owner = One("owner")
    assert world.enter(owner) == 0
    world.left(owner)
    assert world.enter(One("shared", SHARED)) is None


def test_fencing_throws_out_those_who_wait_too() -> None:
    world = World()
    world.enter(One("owner"))
    waiter = One("waiter", WAITING)
    world.enter(waiter)
    assert world.enter(One("winner", FENCING)) == 1
    assert world.told[waiter] == FENCED


def test_the_last_shared_producer_that_leaves_makes_room() -> None:
    world = World()
    first, second, waiter = One("a", SHARED), One("b", SHARED), One("waiter", WAITING)
    for one in (first, second, waiter):
        world.enter(one)
    world.left(first)
    assert world.told[waiter] == WAITS
    world.left(second)
    assert world.told[waiter] == 0


def test_the_highest_priority_is_promoted_first_then_the_oldest() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    low, old, new, high = (
        One("low", WAITING, queue_priority=-3),
        One("old", WAITING),
        One("new", WAITING),
        One("high", WAITING, queue_priority=7),
    )
    for one in (low, old, new, high):
        assert world.enter(one) == WAITS
    for leaving in (owner, high, old, new):
        world.left(leaving)
    assert world.promoted == ["owner", "high", "old", "new", "low"]


def test_chance_decides_between_two_that_came_at_once() -> None:
    access = Access()
    world = World(access)
    world.enter(One("owner"))
    access.enter(One("later drawn", WAITING), arrived_us=9, draw=2)
    access.enter(One("first drawn", WAITING), arrived_us=9, draw=1)
    assert [one.producer_name for one in access.waiting()] == ["first drawn", "later drawn"]


def test_a_priority_never_unseats_a_holder() -> None:
    world = World()
    owner = One("owner", WAITING)
    world.enter(owner)
    assert world.enter(One("high", WAITING, queue_priority=2**31 - 1)) == WAITS
    assert world.access.owner is owner


def test_priorities_count_for_nothing_outside_of_the_line() -> None:
    world = World()
    world.enter(One("owner"))
    assert world.enter(One("shared", SHARED, queue_priority=9)) == BUSY
    assert world.enter(One("exclusive", EXCLUSIVE, queue_priority=9)) == FENCED


def test_an_owner_that_comes_back_first_keeps_its_epoch() -> None:
    world = World()
    owner = One("owner")
    assert world.enter(owner) == 0
    world.left(owner)
    assert world.enter(One("owner", topic_epoch=0, was_opened_before=True)) == 0
    assert world.stored[-1] == AccessGrant(0, "owner", first_entry=1)


def test_an_owner_that_comes_back_second_is_fenced_for_good() -> None:
    world = World()
    owner, other = One("owner"), One("other")
    world.enter(owner)
    world.left(owner)
    assert world.enter(other) == 1
    again = One("owner", WAITING, topic_epoch=0, was_opened_before=True)
    assert world.enter(again) == FENCED
    world.left(other)
    assert world.enter(again) == FENCED


def test_an_owner_that_comes_back_after_shared_producers_gets_a_new_epoch() -> None:
    """The messages in between are not the owner's: its old epoch would claim them."""
    world = World()
    owner, shared = One("owner"), One("shared", SHARED)
    world.enter(owner)
    world.left(owner)
    world.enter(shared)
    world.left(shared)
    assert world.enter(One("owner", topic_epoch=0, was_opened_before=True)) == 1


@pytest.mark.parametrize("claimed", [1, 2**63, 2**64 - 1])
def test_an_epoch_that_nobody_was_granted_is_no_epoch(claimed: int) -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    assert world.enter(One("liar", topic_epoch=claimed)) == 1


def test_the_epoch_of_another_owner_is_no_epoch() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    assert world.enter(One("liar", topic_epoch=0)) == 1


def test_whoever_gives_up_leaves_the_line_at_once() -> None:
    world = World()
    owner, waiter, next_one = One("owner"), One("waiter", WAITING), One("next", WAITING)
    for one in (owner, waiter, next_one):
        world.enter(one)
    world.left(waiter)
    world.left(owner)
    assert world.promoted == ["owner", "next"]
    assert world.access.epoch == 1, "dead producers use no epoch"


def test_nobody_is_told_of_an_epoch_that_is_not_durable() -> None:
    world = World(writes=False)
    owner = One("owner")
    assert world.enter(owner) == "nothing"
    world.write()
    assert world.told[owner] == 0


def test_what_comes_while_a_grant_is_written_is_decided_afterwards_in_its_order() -> None:
    world = World(writes=False)
    owner, exclusive, shared, waiter = (
        One("owner"),
        One("exclusive"),
        One("shared", SHARED),
        One("w", WAITING),
    )
    for one in (owner, exclusive, shared, waiter):
        assert world.enter(one) == "nothing"
    world.write()
    assert [world.told[one] for one in (owner, exclusive, shared, waiter)] == [0, FENCED, BUSY, WAITS]


def test_whoever_dies_while_its_grant_is_written_makes_room_for_the_next() -> None:
    world = World(writes=False)
    owner, waiter = One("owner"), One("waiter", WAITING)
    world.enter(owner)
    world.enter(waiter)
    world.left(owner)
    world.write()
    assert world.access.owner is waiter
    world.write()
    assert world.told == {waiter: 1}


def test_a_fencing_producer_waits_for_the_grant_that_is_being_written() -> None:
    world = World(writes=False)
    owner, winner = One("owner"), One("winner", FENCING)
    world.enter(owner)
    world.enter(winner)
    world.write()
    assert world.told[owner] == "evicted"
    world.write()
    assert world.told[winner] == 1


@pytest.mark.parametrize(
    "rules", [AccessRules(), AccessRules(promotes_once=True)], ids=["ours", "upstream's"]
)
def test_a_promotion_that_cannot_be_stored_is_tried_with_the_next_one(rules: AccessRules) -> None:
    world = World(Access(rules=rules))
    owner, first, second = One("owner"), One("first", WAITING), One("second", WAITING)
    for one in (owner, first, second):
        world.enter(one)
    world.writes = False
    world.left(owner)
    world.writes = True
    world.carry_out(world.access.not_written("disk full"))
    assert world.told[first] == "PersistenceError"
    if rules.promotes_once:
        assert world.access.owner is None, "upstream: no owner, and a producer waits"
        assert world.told[second] == WAITS
    else:
        assert world.told[second] == 1


def test_whoever_waits_behind_a_failing_store_is_told_and_may_come_again() -> None:
    world = World(writes=False)
    owner = One("owner")
    world.enter(owner)
    late = One("late", SHARED)
    world.enter(late)
    world.carry_out(world.access.not_written("disk full"))
    assert world.told == {owner: "PersistenceError", late: "PersistenceError"}
    world.writes = True
    assert world.enter(One("again")) == 0


def doubtful(world: World) -> None:
    """The write under way fails, and yet the grant is stored."""
    world.write_in_doubt()
    world.writes = True


def test_a_grant_that_may_be_stored_is_barred_before_shared_producers_publish() -> None:
    """Otherwise their messages would belong to the epoch of a producer that never had it."""
    for world in (World(), World(Access(AccessGrant(0, "former", 0, 1)), end=1)):
        world.writes = False
        world.enter(One("owner"))
        doubtful(world)
        shared = One("shared", SHARED)
        world.enter(shared)
        assert world.told[shared] is None
        newest = world.stored[-1]
        assert newest.epoch == world.stored[0].epoch
        assert (newest.owner, newest.first_entry) == (NO_OWNER, newest.end_entry)


def test_a_former_owner_does_not_go_on_in_its_epoch_when_a_newer_one_may_be_stored() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    world.writes = False
    world.enter(One("other", FENCING))
    doubtful(world)
    assert world.enter(One("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True)) == 1
    assert world.stored[-1].owner == "owner"


def test_an_owner_that_comes_back_while_its_end_may_be_stored_has_it_undone() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.writes = False
    world.left(owner)
    doubtful(world)
    assert world.stored[-1].end_entry is not None
    assert world.enter(One("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True)) == 0
    assert world.stored[-1].end_entry is None


def test_a_return_that_may_be_stored_is_ended_before_shared_producers_publish() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    world.writes = False
    world.enter(One("owner", EXCLUSIVE, topic_epoch=0, was_opened_before=True))
    doubtful(world)
    assert world.stored[-1].end_entry is None
    shared = One("shared", SHARED)
    assert world.enter(shared) is None
    assert world.stored[-1].end_entry is not None


def test_the_end_of_ownership_is_durable_before_shared_producers_publish() -> None:
    world = World(writes=False)
    owner, shared = One("owner"), One("shared", SHARED)
    world.enter(owner)
    world.write()
    world.left(owner)
    assert world.enter(shared) == "nothing"
    world.write()
    assert world.stored[-1].end_entry is not None
    assert world.told[shared] is None


# After a restart.


def left_behind(*names: str) -> World:
    """A region that was killed while `owner` had the topic and these producers waited for it, in this order."""
    world = World()
    world.enter(One("owner", WAITING))
    for name in names:
        world.enter(One(name, WAITING))
    return world.restarted()


def test_the_owner_gets_its_topic_back_although_others_came_first() -> None:
    world = left_behind("waiter")
    assert world.enter(One("waiter", WAITING)) == WAITS
    assert world.enter(One("stranger", EXCLUSIVE)) == FENCED
    assert world.enter(One("shared", SHARED)) == BUSY
    assert world.enter(One("owner", WAITING, topic_epoch=0, was_opened_before=True)) == 0


def test_those_who_waited_keep_their_order_over_a_restart() -> None:
    world = left_behind("first", "second", "third")
    for name in ("third", "newcomer", "first", "second"):
        world.enter(One(name, WAITING))
    names = [one.producer_name for one in world.access.waiting()]
    assert names == ["first", "second", "third", "newcomer"]


def test_a_dead_owner_costs_no_more_than_the_patience() -> None:
    world = left_behind("waiter")
    waiter = One("waiter", WAITING)
    world.enter(waiter)
    world.carry_out(world.access.grace_period_over())
    assert world.told[waiter] == 1
    assert world.enter(One("owner", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAITING, FENCING], ids=lambda mode: mode.label)
def test_a_new_instance_of_a_former_owner_need_not_wait_for_itself(mode: AccessMode) -> None:
    assert left_behind().enter(One("owner", mode)) == 1


def test_a_new_instance_of_a_former_owner_stands_behind_those_who_wait() -> None:
    world = left_behind("waiter")
    waiter = One("waiter", WAITING)
    world.enter(waiter)
    assert world.enter(One("owner", WAITING)) == WAITS
    assert world.told[waiter] == 1


def test_fencing_does_not_wait_for_a_former_owner() -> None:
    assert left_behind().enter(One("winner", FENCING)) == 1


def test_without_patience_whoever_comes_first_has_it() -> None:
    world = World()
    world.enter(One("owner"))
    assert world.restarted(patient=False).enter(One("other")) == 1


def test_a_topic_whose_owner_left_is_not_kept_for_it() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    again = world.restarted()
    assert again.access.reserved_for is None
    assert again.enter(One("shared", SHARED)) is None


def test_after_a_restart_the_end_of_an_epoch_is_stored_before_shared_producers_publish() -> None:
    world = left_behind()
    world.carry_out(world.access.grace_period_over())
    assert world.stored[-1].end_entry is not None
    assert world.enter(One("shared", SHARED)) is None


def test_an_owner_on_a_new_connection_takes_over_from_itself() -> None:
    world = World()
    old, waiter = One("owner"), One("waiter", WAITING)
    world.enter(old)
    world.enter(waiter)
    new = One("owner", topic_epoch=0, was_opened_before=True)
    assert world.access.hand_over(old, new)
    world.left(old)
    assert world.enter(new) == 0
    assert world.told[waiter] == WAITS


def test_nobody_else_takes_over_from_an_owner() -> None:
    world = World()
    old = One("owner")
    world.enter(old)
    assert not world.access.hand_over(old, One("owner"))
    assert not world.access.hand_over(old, One("other", topic_epoch=0))


# A home elsewhere.


def test_when_the_home_moves_away_everybody_who_publishes_is_thrown_out_and_barred() -> None:
    world = World()
    owner, waiter = One("owner", WAITING), One("waiter", WAITING)
    world.enter(owner)
    world.enter(waiter)
    world.carry_out(world.access.set_exclusive_region("eu"))
    assert world.told == {owner: "evicted", waiter: WAITS}
    assert world.enter(One("owner", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED
    assert world.enter(One("other", FENCING)) == "NotAllowedError"
    world.carry_out(world.access.set_exclusive_region(""))
    assert world.told[waiter] == 2


def test_an_owner_of_before_a_move_is_barred_after_it_too() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    world.carry_out(world.access.set_exclusive_region("eu"))
    world = world.restarted()
    assert world.enter(One("owner", topic_epoch=0, was_opened_before=True)) == FENCED


def test_a_bar_that_cannot_be_stored_is_owed() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.writes = False
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.not_written("disk full"))
    world.writes = True
    world.carry_out(world.access.set_exclusive_region(""))
    assert world.enter(One("owner", topic_epoch=0, was_opened_before=True)) == FENCED


# Upstream's rules.


def test_upstream_promotes_in_order_of_arrival() -> None:
    world = World(Access(rules=AccessRules(first_come_first_served=True)))
    owner = One("owner")
    world.enter(owner)
    world.enter(One("old", WAITING))
    world.enter(One("high", WAITING, queue_priority=7))
    world.left(owner)
    assert world.promoted == ["owner", "old"]


@pytest.mark.parametrize(
    ("mode", "met"), [(SHARED, BUSY), (WAITING, WAITS), (EXCLUSIVE, FENCED), (FENCING, FENCED)]
)
def test_what_the_losers_of_upstream_meet(mode: AccessMode, met: str) -> None:
    world = World(Access(rules=AccessRules(forgets_fenced=True)))
    loser = One("loser", mode)
    epoch = world.enter(loser)
    world.enter(One("winner", FENCING))
    assert isinstance(epoch, int) or epoch is None
    assert world.enter(One("loser", mode, topic_epoch=epoch, was_opened_before=True)) == met


# Whatever happens.


ACTIONS = ["enter", "enter", "enter", "leave", "write", "write", "write", "fail", "patience", "home"]


class Player:
    """A client that enters, leaves, dies and comes back at random."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.one: One | None = None
        self.epoch: int | None = None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_there_is_one_owner_epochs_only_grow_and_nobody_waits_for_a_free_topic(data: st.DataObject) -> None:
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
            player.one = One(player.name, mode, claimed, data.draw(st.integers(-2, 2)))
            world.enter(player.one)
        elif action == "leave" and player.one is not None:
            world.left(player.one)
            player.one = None
        elif action == "write" and access.change is not None:
            world.write()
        elif action == "fail" and access.change is not None:
            world.carry_out(access.not_written("no"))
        elif action == "patience":
            world.carry_out(access.grace_period_over())
        elif action == "home":
            world.carry_out(access.set_exclusive_region("" if access.exclusive_region else "eu"))
        for other in players:
            told = world.told.get(other.one) if other.one is not None else None
            if isinstance(told, int):
                other.epoch = told
            elif told not in (None, WAITS):
                other.one = None  # refused or evicted
        held = {
            one
            for one in (p.one for p in players)
            if one is not None and isinstance(world.told.get(one), int)
        }
        shared = {p.one for p in players if p.one is not None and p.one in access.shared}
        assert len(held) + bool(shared) <= 1
        if access.change is None:
            assert all(p.one is None or p.one in world.told for p in players), "every producer has a response"
            assert not access.queue or access.exclusive_region or access.owner is not None or access.shared
    grants = [grant for grant in world.stored if grant.end_entry is None]
    assert [grant.epoch for grant in world.stored] == sorted(grant.epoch for grant in world.stored)
    assert all(before.first_entry <= after.first_entry for before, after in pairwise(grants))


def test_an_end_says_which_grant_ended() -> None:
    world = World()
    owner = One("owner")
    world.enter(owner)
    world.left(owner)
    assert world.stored == [AccessGrant(0, "owner", 1), AccessGrant(0, "owner", 1, 2)]


# Attacks.


def failing(world: World) -> None:
    """The write under way fails, or its outcome is unknown."""
    world.carry_out(world.access.not_written("disk full"))


def test_those_who_wait_behind_a_bar_that_cannot_be_stored_are_told_one_after_the_other() -> None:
    """A region whose disk is full must not retry for ever."""
    world = World()
    world.enter(One("owner"))
    world.carry_out(world.access.set_exclusive_region("eu"))
    first, second = One("first", WAITING), One("second", WAITING)
    world.carry_out(world.access.set_exclusive_region(""))
    owner = One("again")
    world.enter(owner)
    world.enter(first)
    world.enter(second)
    world.writes = False
    world.carry_out(world.access.set_exclusive_region("eu"))
    failing(world)
    world.carry_out(world.access.set_exclusive_region(""))
    failing(world)
    failing(world)
    assert (world.told[first], world.told[second]) == ("PersistenceError", "PersistenceError")
    assert world.access.change is None


def test_whoever_has_to_wait_for_a_write_of_its_own_does_not_lose_its_turn() -> None:
    world = World(writes=False)
    owner, shared, late = One("owner"), One("shared", SHARED), One("late", EXCLUSIVE)
    for one in (owner, shared, late):
        world.enter(one)
    world.left(owner)
    world.write()
    world.write()
    assert world.told == {shared: None, late: FENCED}


def test_one_that_was_fenced_off_does_not_cost_its_namesake_the_topic() -> None:
    """Two instances of one program use one name; the older was frozen, and resumes while the region restarts."""
    world = World()
    world.enter(One("leader", WAITING))
    winner = One("leader", FENCING)
    world.enter(winner)
    world.enter(One("waiter", WAITING))
    world = world.restarted()
    waiter = One("waiter", WAITING)
    world.enter(waiter)
    assert world.enter(One("leader", WAITING, topic_epoch=0, was_opened_before=True)) == FENCED
    assert world.told[waiter] == WAITS
    assert world.enter(One("leader", FENCING, topic_epoch=1, was_opened_before=True)) == 1


def test_whoever_is_in_line_is_found_by_its_name_until_it_leaves() -> None:
    world = World()
    owner, waiter = One("owner"), One("waiter", WAITING)
    world.enter(owner)
    world.enter(waiter)
    assert world.access.named("waiter") is waiter
    world.left(waiter)
    assert world.access.named("waiter") is None
    assert world.access.named("owner") is owner


def test_a_home_that_goes_away_and_comes_back_while_the_first_grant_fails_leaves_nobody_without_an_answer() -> (
    None
):
    world = World(writes=False)
    world.enter(One("owner"))
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.set_exclusive_region(""))
    failing(world)
    world.writes = True
    assert isinstance(world.enter(One("next")), int)


def test_a_home_that_goes_away_and_comes_back_during_a_write_bars_before_anybody_is_admitted() -> None:
    """Shared producers too. No producer is decided repeatedly: that would stop the region."""
    world = World(writes=False)
    owner, shared, late = One("owner"), One("shared", SHARED), One("late", EXCLUSIVE)
    world.enter(owner)
    world.carry_out(world.access.set_exclusive_region("eu"))
    world.carry_out(world.access.set_exclusive_region(""))
    world.enter(shared)
    world.enter(late)
    for _ in range(3):
        if world.access.change is not None:
            world.write()
    assert world.told == {owner: "NotAllowedError", shared: None, late: FENCED}
    assert world.stored[-1].owner == ""
