"""Snapshots, rule by rule: their life cycle, their consistency, and the cases of upstream's own tests."""

from __future__ import annotations

import pytest

from emulator.core.replication.schedule import PENDING_MAX, SnapshotSettings
from emulator.core.replication.snapshot_types import (
    NEXT_STAGES,
    Effect,
    Observed,
    OfferSnapshot,
    Skip,
    SnapshotStage,
    WriteMarker,
)
from emulator.core.replication.snapshots import SnapshotController
from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse
from emulator.model.values import Position

FIRST_MESSAGE = Position(1, 0)
SOMEWHERE = Position(9, 9)


def controller_of_a(*remotes: str, timeout_ms: int = 30_000) -> SnapshotController:
    return SnapshotController("a", frozenset(remotes), SnapshotSettings(timeout_ms=timeout_ms))


def request(snapshot_id: str, source_region: str = "a") -> WriteMarker:
    return WriteMarker(SnapshotRequest(snapshot_id, source_region), ())


def begin(
    controller: SnapshotController,
    snapshot_id: str,
    now_ms: int = 0,
    last_data: Position | None = FIRST_MESSAGE,
) -> list[Effect]:
    return controller.tick(now_ms, snapshot_id, last_data_position=last_data)


def respond(
    controller: SnapshotController,
    snapshot_id: str,
    region: str,
    position: Position,
    at: Position = SOMEWHERE,
    now_ms: int = 10,
) -> list[Effect]:
    return controller.response_stored(SnapshotResponse(snapshot_id, region, position), at, now_ms)


def snapshot_in(effects: list[Effect]) -> Snapshot:
    """Return the snapshot of the only marker to be written."""
    [effect] = effects
    assert isinstance(effect, WriteMarker)
    assert isinstance(effect.marker, Snapshot)
    return effect.marker


def complete(controller: SnapshotController, snapshot_id: str, now_ms: int = 20) -> Snapshot:
    """Let the other region, b, respond, and make the marker durable."""
    snapshot = snapshot_in(respond(controller, snapshot_id, "b", Position(11, 11), now_ms=now_ms))
    controller.snapshot_stored(snapshot, now_ms)
    return snapshot


# Upstream's acceptance cases.


@pytest.fixture
def controller() -> SnapshotController:
    return controller_of_a("b")


def test_two_regions_need_one_round(controller):
    """testBuildSnapshotWith2Clusters."""
    assert begin(controller, "s") == [request("s")]
    snapshot = Snapshot("s", Position(1, 1), (("b", Position(11, 11)),))
    assert respond(controller, "s", "b", Position(11, 11), at=Position(1, 1)) == [
        WriteMarker(snapshot, ("a",))
    ]
    assert controller.snapshot_stored(snapshot, 20) == [OfferSnapshot(snapshot)]
    assert controller.counters.completed == 1
    assert not controller.pending


def test_three_regions_need_two_rounds_and_keep_the_positions_of_the_first():
    """testBuildSnapshotWith3Clusters."""
    controller = controller_of_a("b", "c")
    assert begin(controller, "s") == [request("s")]
    assert respond(controller, "s", "b", Position(11, 11), at=Position(1, 1)) == []
    assert respond(controller, "s", "c", Position(22, 22), at=Position(2, 2)) == [request("s/2")]
    assert respond(controller, "s/2", "b", Position(33, 33), at=Position(3, 3)) == []
    snapshot = Snapshot("s", Position(4, 4), (("b", Position(11, 11)), ("c", Position(22, 22))))
    assert respond(controller, "s/2", "c", Position(44, 44), at=Position(4, 4)) == [
        WriteMarker(snapshot, ("a",))
    ]


def test_a_snapshot_times_out_only_after_the_configured_time():
    """testBuildTimeout."""
    controller = controller_of_a("b", timeout_ms=500)
    begin(controller, "s")
    begin(controller, "unused", now_ms=499)
    assert list(controller.pending) == ["s"]
    begin(controller, "unused", now_ms=500)
    assert not controller.pending
    assert controller.counters.timed_out == 1


def test_a_peer_that_never_responds_gets_one_request_per_growing_timeout(controller):
    """testReplicatedSubscriptionOneWay; apache/pulsar #23839."""
    requests = [begin(controller, f"s{second}", now_ms=1_000 * second) for second in range(1000)]
    assert [second for second, effects in enumerate(requests) if effects] == [0, 30, 90, 210, 450, 690, 930]
    assert controller.counters.skipped[Skip.UNANSWERED] == 993
    assert controller.counters.timed_out == 6


def test_a_snapshot_that_takes_longer_than_others_were_given_completes_in_the_end():
    """Markers queue on a slow link: five regions asked each other again and again, and the requests themselves delayed
    every response beyond its timeout."""
    controller = controller_of_a("b", timeout_ms=6_000)
    begin(controller, "s1")
    assert begin(controller, "s2", now_ms=6_000) == [request("s2")]
    begin(controller, "s3", now_ms=17_000)
    complete(controller, "s2", now_ms=17_000)
    assert (controller.counters.timed_out, controller.counters.completed) == (1, 1)


def test_a_snapshot_that_completes_in_time_shortens_the_timeout_again():
    controller = controller_of_a("b", timeout_ms=6_000)
    begin(controller, "s1")
    begin(controller, "s2", now_ms=6_000)
    complete(controller, "s2", now_ms=7_000)
    begin(controller, "s3", now_ms=10_000, last_data=Position(1, 5))
    assert begin(controller, "s4", now_ms=16_000, last_data=Position(1, 6)) == [request("s4")]
    assert controller.counters.timed_out == 2


def test_no_traffic_no_snapshots(controller):
    """testReplicationSnapshotStopWhenNoTraffic."""
    assert begin(controller, "s1", now_ms=0, last_data=None) == []
    assert begin(controller, "s2", now_ms=1_000, last_data=Position(1, 0)) == [request("s2")]
    complete(controller, "s2", now_ms=1_020)
    for second in range(2, 10):
        assert begin(controller, "unused", now_ms=1_000 * second, last_data=Position(1, 0)) == []
    assert controller.skip is Skip.IDLE
    assert begin(controller, "s3", now_ms=10_000, last_data=Position(1, 4)) == [request("s3")]


def test_a_request_from_a_region_we_do_not_replicate_to_is_ignored():
    """testSnapshotRequestWhenReplicatorRemovedConcurrentlyDoesNotThrow; apache/pulsar #25266."""
    assert controller_of_a("b").request_stored(SnapshotRequest("s", "z"), Position(1, 1)) == []


def test_a_snapshot_whose_marker_is_not_durable_is_not_completed(controller):
    """apache/pulsar #26119."""
    begin(controller, "s")
    respond(controller, "s", "b", Position(11, 11))
    assert controller.counters.completed == 0
    assert controller.last_completed is None
    assert controller.pending["s"].stage is SnapshotStage.STORING
    assert controller.why_not() == "snapshot s is complete; its marker is not stored yet, after 0.0 s"
    controller.tick(30_000, "next", last_data_position=FIRST_MESSAGE)
    assert controller.counters.timed_out == 1, "it was never stored"
    assert list(controller.pending) == ["next"]


# Beginning step 2.


def test_a_message_stored_after_the_start_calls_for_another_snapshot(controller):
    """The snapshot under way may not cover it."""
    begin(controller, "s1", last_data=Position(1, 3))
    complete(controller, "s1")
    assert begin(controller, "s2", now_ms=1_000, last_data=Position(1, 4)) == [request("s2")]


def test_no_snapshot_before_the_interval_is_over(controller):
    begin(controller, "s1")
    complete(controller, "s1")
    assert controller.due_ms == 1_000
    assert begin(controller, "s2", now_ms=999, last_data=Position(1, 1)) == []
    assert controller.skip is Skip.EARLY
    assert begin(controller, "s2", now_ms=1_000, last_data=Position(1, 1)) == [request("s2")]
    assert controller.due_ms == 2_000


def test_the_first_message_after_a_pause_gets_a_snapshot_at_once(controller):
    begin(controller, "s1")
    complete(controller, "s1")
    begin(controller, "unused", now_ms=5_000)
    assert begin(controller, "s2", now_ms=5_300, last_data=Position(1, 1)) == [request("s2")]


def test_no_snapshot_while_a_link_is_down():
    """PIP-33, "The snapshots can only be taken if all involved clusters are available"."""
    controller = controller_of_a("b", "c")
    for now_ms in (2_000, 3_000, 5_000):
        assert controller.tick(now_ms, "s", last_data_position=FIRST_MESSAGE, disconnected={"c"}) == []
    assert controller.why_not() == "no snapshot: link to c is down for 3.0 s"
    assert controller.counters.skipped[Skip.DISCONNECTED] == 3
    assert begin(controller, "s", now_ms=6_000) == [request("s")]
    assert controller.why_not() == "waiting for the response of b and c (round 1) for 0.0 s"


def test_links_of_others_do_not_matter(controller):
    assert controller.tick(0, "s", last_data_position=FIRST_MESSAGE, disconnected={"z"}) == [request("s")]


def test_slow_links_may_have_several_snapshots_under_way_but_not_any_number(controller):
    begin(controller, "s0")
    complete(controller, "s0")
    begun = [begin(controller, f"s{n}", now_ms=1_000 * n, last_data=Position(1, n)) for n in range(1, 20)]
    assert sum(map(bool, begun)) == PENDING_MAX
    assert controller.skip is Skip.TOO_MANY


def begun_at(controller: SnapshotController, times_ms: range, last_data: Position) -> list[int]:
    """When ticks at these times began snapshots."""
    return [ms for ms in times_ms if begin(controller, f"s{ms}", now_ms=ms, last_data=last_data)]


def test_a_snapshot_that_no_message_has_overtaken_is_tried_again_ever_more_seldom(controller):
    """Markers that wait in full links would only be joined by more of them."""
    begin(controller, "s")
    complete(controller, "s")
    assert begun_at(controller, range(1_000, 17_000, 1_000), Position(1, 5)) == [
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
    ]
    assert controller.skip is None
    begin(controller, "late", now_ms=17_000, last_data=Position(1, 5))
    assert controller.skip is Skip.UNDER_WAY
    assert begin(controller, "news", now_ms=18_000, last_data=Position(1, 6)), "it has a new message"


def test_a_snapshot_is_waited_for_twice_as_long_as_the_last_one_took(controller):
    begin(controller, "s")
    complete(controller, "s", now_ms=3_000)
    assert begun_at(controller, range(4_000, 11_000, 1_000), Position(1, 5)) == [4_000, 10_000]


def test_when_responses_come_too_late_fewer_snapshots_are_pending_at_once():
    """And again more when responses arrive in time."""
    controller = controller_of_a("b", timeout_ms=10_000)
    begin(controller, "s")
    complete(controller, "s")
    for second in range(1, 200):
        begin(controller, f"s{second}", now_ms=second * 1_000, last_data=Position(1, second))
    assert len(controller.pending) == 1
    at_ms = 200_000
    for number in range(PENDING_MAX):
        [pending, *_] = controller.pending
        complete(controller, pending, now_ms=at_ms)
        at_ms += 1_000
        begin(controller, f"t{number}", now_ms=at_ms, last_data=Position(1, 300 + number))
    for number in range(PENDING_MAX):
        at_ms += 1_000
        begin(controller, f"u{number}", now_ms=at_ms, last_data=Position(1, 400 + number))
    assert len(controller.pending) == PENDING_MAX


def test_after_a_broken_link_no_snapshot_waits_for_responses_that_may_be_lost(controller):
    """A region is killed and back between two ticks: that must not cost 30 s without snapshots."""
    begin(controller, "s1")
    controller.link_lost("b")
    assert begin(controller, "s2", now_ms=1_000) == [request("s2")]
    complete(controller, "s2", now_ms=1_020)
    assert not controller.pending
    assert controller.counters.superseded == 1


def test_a_response_over_a_link_that_broke_and_healed_still_counts(controller):
    begin(controller, "s1")
    controller.tick(1_000, "unused", last_data_position=FIRST_MESSAGE, disconnected={"b"})
    complete(controller, "s1", now_ms=1_500)
    assert controller.counters.completed == 1


def test_a_newer_snapshot_drops_older_ones_but_not_those_being_stored(controller):
    begin(controller, "s0")
    complete(controller, "s0")
    for second in (1, 2, 3):
        begin(controller, f"s{second}", now_ms=1_000 * second, last_data=Position(1, second))
    first = snapshot_in(respond(controller, "s1", "b", Position(11, 11)))
    complete(controller, "s3", now_ms=3_500)
    assert list(controller.pending) == ["s1"]
    assert controller.counters.superseded == 1
    assert controller.snapshot_stored(first, 3_600) == [OfferSnapshot(first)]
    assert controller.counters.completed == 3


def test_a_snapshot_dropped_while_its_marker_was_being_stored_may_be_used(controller):
    begin(controller, "s")
    snapshot = snapshot_in(respond(controller, "s", "b", Position(11, 11)))
    controller.remotes_changed(frozenset({"b", "c"}))
    assert controller.snapshot_stored(snapshot, 100) == [OfferSnapshot(snapshot)]
    assert controller.counters.completed == 0


def test_without_other_regions_no_snapshot_is_requested():
    """apache/pulsar #21495, #23198."""
    controller = controller_of_a()
    assert begin(controller, "s") == []
    assert controller.why_not() == "no snapshot: the topic is not replicated to another region"


# Follow-ups.


def idle_controller(*remotes: str) -> SnapshotController:
    controller = controller_of_a(*remotes)
    begin(controller, "s1")
    for round_ in ["s1", "s1/2"] if len(remotes) > 1 else ["s1"]:
        for remote in remotes:
            effects = respond(controller, round_, remote, Position(11, 11))
    controller.snapshot_stored(snapshot_in(effects), 20)
    assert begin(controller, "unused", now_ms=1_000) == []
    assert controller.skip is Skip.IDLE
    return controller


def test_with_three_regions_a_request_triggers_a_follow_up_that_triggers_none():
    controller = idle_controller("b", "c")
    controller.request_stored(SnapshotRequest("r", "b"), Position(1, 5))
    assert begin(controller, "s2", now_ms=2_000) == [request("s2+")]
    for round_ in ("s2+", "s2+/2"):
        for remote in ("b", "c"):
            effects = respond(controller, round_, remote, Position(11, 12))
    controller.snapshot_stored(snapshot_in(effects), 2_500)
    assert begin(controller, "unused", now_ms=3_000) == []


@pytest.mark.parametrize("snapshot_id", ["r+", "r/2", "r+/2"])
def test_follow_ups_and_second_rounds_of_others_trigger_nothing(snapshot_id):
    controller = idle_controller("b", "c")
    assert controller.request_stored(SnapshotRequest(snapshot_id, "b"), Position(1, 5)) != [], (
        "but are answered"
    )
    assert begin(controller, "unused", now_ms=2_000) == []


def test_with_two_regions_a_request_triggers_nothing():
    controller = idle_controller("b")
    controller.request_stored(SnapshotRequest("r", "b"), Position(1, 5))
    assert begin(controller, "unused", now_ms=2_000) == []


def test_a_broken_link_triggers_a_follow_up():
    controller = idle_controller("b")
    controller.link_lost("b")
    assert begin(controller, "s2", now_ms=2_000) == [request("s2+")]


def test_what_happens_during_a_follow_up_triggers_another():
    controller = idle_controller("b")
    controller.link_lost("b")
    begin(controller, "s2", now_ms=2_000)
    controller.link_lost("b")
    respond(controller, "s2+", "b", Position(11, 12))
    controller.snapshot_stored(Snapshot("s2+", SOMEWHERE, (("b", Position(11, 12)),)), 2_100)
    assert begin(controller, "s3", now_ms=3_000) == [request("s3+")]


def test_a_follow_up_that_is_lost_is_tried_again():
    controller = idle_controller("b")
    controller.link_lost("b")
    begin(controller, "s2", now_ms=2_000)
    assert begin(controller, "s3", now_ms=40_000) == [request("s3+")]


# Responding.


def test_a_response_with_our_last_position_goes_to_the_requester_alone():
    assert controller_of_a("b", "c").request_stored(SnapshotRequest("s/2", "c"), Position(1, 7)) == [
        WriteMarker(SnapshotResponse("s/2", "a", Position(1, 7)), ("c",))
    ], "the id comes back as it is"


def test_our_own_markers_in_our_log_are_not_for_us(controller):
    begin(controller, "s")
    assert controller.request_stored(SnapshotRequest("s", "a"), Position(1, 7)) == []
    assert respond(controller, "s", "a", Position(1, 7)) == []
    assert controller.counters.ignored_answers == 0


# Rounds.


def test_a_repeated_response_of_the_first_round_never_completes_the_second():
    controller = controller_of_a("b", "c")
    begin(controller, "s")
    respond(controller, "s", "b", Position(11, 11))
    respond(controller, "s", "c", Position(22, 22))
    for region in ("b", "c", "b"):
        assert respond(controller, "s", region, Position(33, 33)) == []
    assert controller.pending["s"].unanswered == {"b", "c"}
    assert controller.counters.ignored_answers == 3


def test_a_repeated_response_counts_once_and_the_first_position_stays():
    controller = controller_of_a("b", "c")
    begin(controller, "s")
    respond(controller, "s", "b", Position(11, 11))
    assert respond(controller, "s", "b", Position(12, 12)) == []
    assert controller.pending["s"].first_responses == {"b": Position(11, 11)}


@pytest.mark.parametrize(
    ("snapshot_id", "region"), [("unknown", "b"), ("s", "z"), ("s/2", "b"), ("s/2/2", "b"), ("", "b")]
)
def test_unexpected_responses_are_ignored(snapshot_id, region):
    controller = controller_of_a("b", "c")
    begin(controller, "s")
    assert respond(controller, snapshot_id, region, Position(11, 11)) == []
    assert controller.pending["s"].unanswered == {"b", "c"}
    assert controller.counters.ignored_answers == 1


def test_a_response_after_the_timeout_is_ignored():
    controller = controller_of_a("b", timeout_ms=500)
    begin(controller, "s")
    begin(controller, "s2", now_ms=1_000)
    assert respond(controller, "s", "b", Position(11, 11)) == []


def test_a_change_of_regions_aborts_what_is_under_way():
    """The new region got no request."""
    controller = controller_of_a("b", "c")
    begin(controller, "s")
    respond(controller, "s", "b", Position(11, 11))
    controller.remotes_changed(frozenset({"b"}))
    assert controller.counters.aborted == 1
    assert respond(controller, "s", "c", Position(22, 22)) == []
    assert begin(controller, "s2", now_ms=1_000) == [request("s2")]
    complete(controller, "s2")


def test_a_new_region_gets_a_snapshot_of_a_quiet_topic():
    controller = idle_controller("b")
    controller.remotes_changed(frozenset({"b", "c"}))
    assert begin(controller, "s2", now_ms=2_000) == [request("s2")]


def test_the_same_regions_again_change_nothing(controller):
    begin(controller, "s")
    controller.remotes_changed(frozenset({"b"}))
    assert list(controller.pending) == ["s"]


# Explaining.


def test_why_not_names_the_round_and_the_missing_regions():
    controller = controller_of_a("eu", "ap")
    begin(controller, "s")
    respond(controller, "s", "eu", Position(1, 1))
    respond(controller, "s", "ap", Position(1, 1))
    respond(controller, "s/2", "eu", Position(1, 1), now_ms=1_500)
    assert controller.why_not() == "waiting for the response of ap (round 2) for 1.5 s"


def test_a_quiet_topic_needs_no_newer_snapshot_and_a_new_message_needs_one(controller):
    assert controller.why_not() == "no snapshot yet"
    begin(controller, "s", last_data=None)
    assert controller.why_not() == "no snapshot yet: no message was stored"
    begin(controller, "s", now_ms=100)
    complete(controller, "s", now_ms=150)
    assert controller.why_not() == "no newer snapshot needed: no message since the last snapshot"
    begin(controller, "unused", now_ms=600, last_data=Position(1, 1))
    assert controller.why_not() == "the next snapshot is due in 500 ms (snapshot_interval_ms)"
    assert controller.why_not(Observed(1_100, Position(1, 1), {})) == ""
    begin(controller, "unused", now_ms=2_000, last_data=FIRST_MESSAGE)
    assert controller.why_not() == "no newer snapshot needed: no message since the last snapshot"


def test_the_last_completed_snapshot_is_reported_with_its_duration(controller):
    begin(controller, "s", now_ms=100)
    snapshot = complete(controller, "s", now_ms=150)
    assert controller.last_completed is not None
    assert controller.last_completed.snapshot == snapshot
    assert controller.last_completed.duration_ms == 50


def test_stages_only_move_on():
    assert set(NEXT_STAGES) == set(SnapshotStage)
    controller = controller_of_a("b")
    begin(controller, "s")
    pending = controller.pending["s"]
    pending.become(SnapshotStage.STORING)
    with pytest.raises(AssertionError, match="STORING -> SECOND_ROUND"):
        pending.become(SnapshotStage.SECOND_ROUND)


def test_a_skipped_snapshot_is_counted_once_per_interval():
    """`tick` is called for every message."""
    controller = SnapshotController("a", frozenset({"b"}))
    for now_ms in range(0, 2_000, 10):
        controller.tick(now_ms, "s", last_data_position=Position(1, now_ms), disconnected={"b"})
    assert controller.counters.skipped == {Skip.DISCONNECTED: 2}


def test_snapshots_under_way_are_aborted_when_no_subscription_is_replicated_any_more():
    controller = SnapshotController("a", frozenset({"b"}))
    controller.tick(0, "s", last_data_position=Position(1, 0))
    controller.abort_pending()
    assert (controller.counters.aborted, len(controller.pending)) == (1, 0)
    assert controller.tick(1_000, "t", last_data_position=Position(1, 0)), "it is still due"
