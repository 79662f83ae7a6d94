"""Replication of a position, rule by rule: the cache, updates, and the cases of upstream's own tests."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.core.cursor.cursor import Cursor
from emulator.core.replication.subscription_updates import (
    Applied,
    ReplicatedSubscription,
    SnapshotCache,
    apply_update,
    never_reaches,
    own_entry_id,
    update_for,
)
from emulator.model.markers import Snapshot, SubscriptionUpdate
from emulator.model.reasons import Cause
from emulator.model.values import Position


def snapshot_at(entry_id: int, **positions: int) -> Snapshot:
    """A snapshot at an entry of our log; by default b is as far as we are."""
    places = positions or {"b": entry_id}
    return Snapshot(
        f"s{entry_id}",
        Position(1, entry_id),
        tuple((region, Position(7, entry)) for region, entry in sorted(places.items())),
    )


def cache_of(*entry_ids: int, max_size: int = 30) -> SnapshotCache:
    cache = SnapshotCache(max_size)
    for entry_id in entry_ids:
        cache.add(snapshot_at(entry_id))
    return cache


def entry_ids(cache: SnapshotCache) -> list[int]:
    return [snapshot.local_position.entry for snapshot in cache.snapshots]


# The cache.


def test_the_newest_snapshot_that_was_reached_is_taken_with_all_older_ones():
    """testSnapshotCache."""
    cache = cache_of(1, 5, 7)
    assert cache.pop_newest_reached(0) is None
    assert cache.pop_newest_reached(1) == snapshot_at(1)
    assert cache.pop_newest_reached(1) is None
    assert cache.pop_newest_reached(6) == snapshot_at(5)
    assert entry_ids(cache) == [7]


def test_a_full_cache_drops_the_one_whose_neighbours_are_closest_together():
    """testSnapshotCachePruning; apache/pulsar #25044."""
    cache = cache_of(0, 10, 12, 30, max_size=4)
    assert cache.add(snapshot_at(50))
    assert entry_ids(cache) == [0, 12, 30, 50], "its neighbours were 12 entries apart"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=60), st.integers(1, 8))
def test_first_and_last_are_never_dropped(ids, max_size):
    """testSnapshotCacheStressTest."""
    cache, smallest = SnapshotCache(max_size), min(ids)
    for entry_id in ids:
        cache.add(snapshot_at(entry_id))
        assert len(cache) <= max_size
        assert entry_ids(cache) == sorted(set(entry_ids(cache)))
    if max_size > 1:
        assert entry_ids(cache)[0] == smallest
    assert entry_ids(cache)[-1] == max(ids)


def test_snapshots_stay_spread_over_a_long_backlog():
    """testSnapshotCacheKeepingEqualDistance: within twice the average distance."""
    cache = cache_of(*range(0, 10_000, 10), max_size=10)
    ids = entry_ids(cache)
    assert max(b - a for a, b in pairwise(ids)) <= 2 * (ids[-1] - ids[0]) / (len(ids) - 1)


def test_a_consumer_far_behind_still_reaches_a_snapshot():
    """apache/pulsar #24300: with the oldest dropped, a slow consumer never reached one."""
    cache = cache_of(*range(100, 100_000, 100), max_size=10)
    assert cache.pop_newest_reached(150) == snapshot_at(100)


def test_room_for_one_keeps_the_newest():
    """When the topic becomes idle no other one follows, and the position would never be replicated."""
    cache = cache_of(3, max_size=1)
    assert cache.add(snapshot_at(8))
    assert not cache.add(snapshot_at(1))
    assert entry_ids(cache) == [8]


def test_a_snapshot_offered_twice_is_one():
    cache = cache_of(5)
    assert not cache.add(snapshot_at(5))
    assert len(cache) == 1


def test_an_older_snapshot_takes_its_place_and_empties_nothing():
    """The dispatcher reads old ones from the backlog while new ones are stored. Upstream empties the cache."""
    cache = cache_of(100, 110)
    assert cache.add(snapshot_at(20))
    assert entry_ids(cache) == [20, 100, 110]


def test_what_was_overtaken_is_not_taken_in_again():
    """The dispatcher rewinds after a consumer left, and reads markers that were already used."""
    cache = cache_of(5, 9)
    cache.pop_newest_reached(9)
    assert not cache.add(snapshot_at(5))
    assert not cache.add(snapshot_at(9))


def test_after_a_seek_old_snapshots_count_again():
    cache = cache_of(5, 9)
    cache.pop_newest_reached(9)
    cache.clear()
    assert cache.add(snapshot_at(5))


def test_a_subscription_gives_the_reason_why_it_sends_no_update():
    subscription = ReplicatedSubscription("s")
    assert subscription.why_not(5, ahead_of_peers=True) == "", "without a snapshot; the topic shows why"
    subscription.snapshot_offered(snapshot_at(12), 5)
    assert subscription.why_not(5, ahead_of_peers=True) == (
        "mark-delete 5 has not reached the oldest of 1 known snapshots (entry 12, 7 entries later)"
    )
    assert subscription.why_not(12, ahead_of_peers=True).cause is Cause.UPDATE_WITH_NEXT_MOVE


def test_a_subscription_that_only_follows_never_reports_that_an_update_is_due():
    subscription = ReplicatedSubscription("s")
    subscription.snapshot_offered(snapshot_at(12), 12, ahead_of_peers=False)
    reason = subscription.why_not(12, ahead_of_peers=False)
    assert (
        reason == "consumers here have acknowledged nothing beyond the position that other regions reported"
    )


# Both triggers, apache/pulsar #16651.


def test_acknowledging_past_a_snapshot_sends_an_update():
    subscription = ReplicatedSubscription("orders")
    assert subscription.snapshot_offered(snapshot_at(10), mark_delete=9) is None
    update = SubscriptionUpdate("orders", (("b", Position(7, 10)),))
    assert subscription.mark_delete_moved(10) == update
    assert subscription.mark_delete_moved(11) is None, "told once"
    assert subscription.updates == 1


def test_a_snapshot_that_arrives_after_everything_was_acknowledged_sends_an_update():
    subscription = ReplicatedSubscription("orders")
    assert subscription.mark_delete_moved(50) is None
    assert subscription.snapshot_offered(snapshot_at(10), mark_delete=50) == update_for(
        "orders", snapshot_at(10)
    )
    assert subscription.snapshot_offered(snapshot_at(10), mark_delete=50) is None


def test_after_a_seek_no_update_is_sent_until_a_snapshot_is_passed_again():
    subscription = ReplicatedSubscription("orders")
    subscription.snapshot_offered(snapshot_at(10), mark_delete=5)
    subscription.cursor_reset()
    assert subscription.mark_delete_moved(20) is None
    assert subscription.snapshot_offered(snapshot_at(10), mark_delete=20) is not None


def test_a_subscription_that_only_followed_sends_no_update_until_it_is_ahead():
    """It would advance another region whose consumer has just sought back."""
    subscription = ReplicatedSubscription("orders")
    assert subscription.snapshot_offered(snapshot_at(10), mark_delete=20, ahead_of_peers=False) is None
    assert subscription.snapshot_offered(snapshot_at(15), mark_delete=20, ahead_of_peers=False) is None
    subscription.snapshot_offered(snapshot_at(30), mark_delete=20, ahead_of_peers=False)
    assert entry_ids(subscription.cache) == [15, 30], "the newest one reached waits"
    assert subscription.mark_delete_moved(21, ahead_of_peers=True) == update_for("orders", snapshot_at(15))


# Updates that move us, and our own updates after them.


@pytest.mark.parametrize(
    ("ours", "sent", "mark_delete", "is_news"),
    [
        pytest.param(snapshot_at(10, b=99), {"a": 12}, 12, False, id="what it just contained"),
        pytest.param(snapshot_at(10, b=99, c=5), {"a": 12, "c": 5}, 12, False, id="what c received already"),
        pytest.param(snapshot_at(10, b=99, c=6), {"a": 12, "c": 5}, 12, True, id="new to c"),
        pytest.param(snapshot_at(30, b=99), {"a": 12}, 40, True, id="closes a gap to our acknowledgements"),
        pytest.param(snapshot_at(30), {"a": 12}, 12, False, id="reaches no snapshot of ours"),
    ],
)
def test_a_received_update_causes_an_own_update_only_if_the_own_one_contains_later_positions(
    ours: Snapshot, sent: dict[str, int], mark_delete: int, is_news: bool
) -> None:
    """Region b sent every region's position to a; a had a snapshot of its own."""
    subscription = ReplicatedSubscription("orders")
    subscription.snapshot_offered(ours, mark_delete=-1)
    positions = tuple((region, Position(7, entry)) for region, entry in sent.items())
    moved = subscription.moved_by_update(SubscriptionUpdate("orders", positions), "b", 12, mark_delete)
    assert moved == (update_for("orders", ours) if is_news else None)


# Receiving, DESIGN section 6: "never makes a consumer skip a message that it has not seen".


def test_an_update_acknowledges_everything_up_to_its_position():
    cursor = Cursor(-1)
    assert apply_update(cursor, 5, 9, []) is Applied.MOVED
    assert cursor.mark_delete == 5


def test_an_update_only_moves_forward():
    cursor = Cursor(8)
    assert apply_update(cursor, 5, 9, []) is Applied.BEHIND
    assert cursor.mark_delete == 8


def test_a_position_beyond_our_log_is_refused():
    cursor = Cursor(-1)
    assert apply_update(cursor, 10, 9, []) is Applied.REFUSED
    assert cursor.mark_delete == -1
    assert apply_update(cursor, 9, 9, []) is Applied.MOVED


def test_what_the_other_region_never_saw_is_still_delivered():
    """Entries 2 and 4 were for this region only."""
    cursor = Cursor(-1)
    assert apply_update(cursor, 5, 9, [4, 2, 7]) is Applied.MOVED
    assert [entry_id for entry_id in range(7) if not cursor.is_acked(entry_id)] == [2, 4, 6]


def test_an_update_finds_our_place_only_in_our_incarnation_of_the_topic():
    update = SubscriptionUpdate("orders", (("a", Position(3, 14)), ("b", Position(1, 1))))
    assert own_entry_id(update, "a", ledger_id=3) == 14
    assert own_entry_id(update, "a", ledger_id=4) is None, "the topic was deleted and created again"
    assert own_entry_id(update, "z", ledger_id=3) is None


@pytest.mark.parametrize(
    ("region", "origin", "replicate_to", "unseen"),
    [
        ("b", "a", (), False),
        ("b", "a", ("b", "c"), False),
        ("b", "a", ("c",), True),
        ("b", "a", ("__local__",), True),
        ("b", "c", ("a",), True),
        ("b", "b", ("a",), False),
    ],
    ids=["for all", "named", "not named", "local", "of a third region", "its own"],
)
def test_what_never_reaches_a_region(region, origin, replicate_to, unseen):
    assert never_reaches(region, origin=origin, replicate_to=replicate_to) is unseen
