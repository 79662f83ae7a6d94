"""Snapshots that continue without absent regions: when they do, which regions they ask, and when they stop."""

from __future__ import annotations

import pytest

from emulator.core.replication.absence import RegionAbsence
from emulator.core.replication.schedule import SnapshotSettings
from emulator.core.replication.snapshot_types import Effect, Observed, Skip, WriteMarker
from emulator.core.replication.snapshots import SnapshotController
from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse
from emulator.model.reasons import Cause
from emulator.model.values import Position

AFTER_MS = 10_000
MESSAGE = Position(1, 0)
B_DOWN = frozenset({"b"})


def controller_of_a(*remotes: str, after_ms: int = AFTER_MS) -> SnapshotController:
    return SnapshotController("a", frozenset(remotes), SnapshotSettings(partial_after_ms=after_ms))


def tick(
    controller: SnapshotController, now_ms: int, down: frozenset[str] = B_DOWN, last: Position = MESSAGE
) -> list[Effect]:
    return controller.tick(now_ms, f"s{now_ms}", last_data_position=last, disconnected=down)


def respond(controller: SnapshotController, snapshot_id: str, region: str, now_ms: int) -> list[Effect]:
    response = SnapshotResponse(snapshot_id, region, Position(7, 7))
    return controller.response_stored(response, Position(1, 9), now_ms)


def complete(controller: SnapshotController, now_ms: int, *asked: str, suffix: str = "") -> Snapshot:
    """Let the asked regions respond in all rounds, and make the marker durable."""
    snapshot_id = f"s{now_ms}{suffix}"
    for wire_id in (snapshot_id, f"{snapshot_id}/2") if len(asked) > 1 else (snapshot_id,):
        for region in asked:
            effects = respond(controller, wire_id, region, now_ms + 10)
    [effect] = effects
    assert isinstance(effect, WriteMarker)
    assert isinstance(effect.marker, Snapshot)
    controller.snapshot_stored(effect.marker, now_ms + 20)
    return effect.marker


def request_to(effects: list[Effect], *regions: str) -> bool:
    [effect] = effects
    assert isinstance(effect, WriteMarker)
    assert isinstance(effect.marker, SnapshotRequest)
    return effect.replicate_to == regions


def test_a_region_is_waited_for_until_it_was_absent_long_enough() -> None:
    controller = controller_of_a("b", "c")
    assert tick(controller, 0) == []
    assert controller.skip is Skip.DISCONNECTED
    assert controller.absence.next_left_out_ms(0) == AFTER_MS
    assert tick(controller, AFTER_MS - 1) == []
    assert request_to(tick(controller, AFTER_MS), "c"), "nothing is queued for b"
    snapshot = complete(controller, AFTER_MS, "c")
    assert [region for region, _ in snapshot.positions] == ["c"], "one round, and b is not named"


def test_without_the_setting_snapshots_never_continue() -> None:
    controller = controller_of_a("b", "c", after_ms=0)
    tick(controller, 0)
    assert tick(controller, 1_000 * AFTER_MS) == []
    assert controller.absence.next_left_out_ms(0) is None


def test_a_partial_snapshot_of_several_regions_has_two_rounds_among_them() -> None:
    controller = controller_of_a("b", "c", "d")
    tick(controller, 0)
    assert request_to(tick(controller, AFTER_MS), "c", "d")
    snapshot_id = f"s{AFTER_MS}"
    respond(controller, snapshot_id, "c", AFTER_MS)
    second = respond(controller, snapshot_id, "d", AFTER_MS)
    assert request_to(second, "c", "d")
    assert respond(controller, f"{snapshot_id}/2", "b", AFTER_MS) == [], "b was not asked"
    assert respond(controller, f"{snapshot_id}/2", "d", AFTER_MS) == []
    assert controller.pending[snapshot_id].unanswered == {"c"}


def test_no_snapshot_is_taken_without_any_other_region() -> None:
    controller = controller_of_a("b")
    tick(controller, 0)
    assert tick(controller, 2 * AFTER_MS) == []
    assert controller.skip is Skip.DISCONNECTED
    observed = Observed(2 * AFTER_MS, MESSAGE, {"b": Cause.SNAPSHOT_LINK_TO_DOWN})
    assert controller.why_not(observed) == "no snapshot: link to b is down for 20.0 s"


def test_a_quiet_topic_stays_quiet_while_a_region_is_absent() -> None:
    controller = controller_of_a("b", "c")
    tick(controller, 0)
    tick(controller, AFTER_MS)
    complete(controller, AFTER_MS, "c")
    for now_ms in range(AFTER_MS + 1_000, AFTER_MS + 9_000, 1_000):
        assert tick(controller, now_ms) == []
    assert controller.skip is Skip.IDLE


def test_the_return_of_a_region_requires_a_snapshot_also_in_a_quiet_topic() -> None:
    controller = controller_of_a("b", "c")
    tick(controller, 0)
    tick(controller, AFTER_MS)
    complete(controller, AFTER_MS, "c")
    back_ms = AFTER_MS + 2_000
    assert request_to(tick(controller, back_ms, down=frozenset()))
    snapshot = complete(controller, back_ms, "b", "c", suffix="+")
    assert [region for region, _ in snapshot.positions] == ["b", "c"]
    assert tick(controller, back_ms + 2_000, down=frozenset()) == []


def test_a_pending_partial_snapshot_does_not_delay_the_next_one_after_the_return() -> None:
    controller = controller_of_a("b", "c")
    tick(controller, 0)
    tick(controller, AFTER_MS)
    assert request_to(tick(controller, AFTER_MS + 1_000, down=frozenset()))


def test_a_region_that_never_responds_over_an_established_link_is_absent_too() -> None:
    """It still receives the requests, so that its first response is noticed."""
    settings = SnapshotSettings(timeout_ms=1_000, partial_after_ms=AFTER_MS)
    controller = SnapshotController("a", frozenset({"b", "c"}), settings)
    up = frozenset[str]()
    partial = None
    for now_ms in range(0, 3 * AFTER_MS, 500):
        for effect in tick(controller, now_ms, down=up, last=Position(1, now_ms)):
            if controller.pending[f"s{now_ms}"].asked == {"c"}:
                partial = partial or (now_ms, effect)
            respond(controller, f"s{now_ms}", "c", now_ms)
    assert partial is not None
    now_ms, effect = partial
    assert AFTER_MS <= now_ms < 2 * AFTER_MS
    assert request_to([effect], "b", "c")
    later_ms = 3 * AFTER_MS
    respond(controller, f"s{now_ms}", "b", later_ms)
    assert request_to(tick(controller, later_ms + 1_000, down=up, last=Position(1, later_ms)))


def test_a_removed_region_is_not_absent_any_more() -> None:
    controller = controller_of_a("b", "c", "d")
    tick(controller, 0)
    controller.remotes_changed(frozenset({"c", "d"}))
    assert request_to(tick(controller, 1, down=frozenset()))
    assert controller.absence.since_ms == {}


def test_the_reason_names_the_absent_regions_and_how_long_they_are_absent() -> None:
    controller = controller_of_a("b", "c")
    tick(controller, 0)
    tick(controller, AFTER_MS)
    observed = Observed(AFTER_MS + 500, MESSAGE, {"b": Cause.SNAPSHOT_LINK_TO_DOWN})
    assert controller.why_unreachable(observed) == "", "b prevents no snapshot"
    assert controller.why_not(observed) == "snapshots are partial: without b, absent for 10.5 s"


@pytest.mark.parametrize("stranger", ["a", "z"])
def test_a_response_of_a_region_that_is_no_remote_region_is_not_remembered(stranger: str) -> None:
    controller = controller_of_a("b", "c")
    respond(controller, "s", stranger, 5)
    assert stranger not in controller.absence._responded_ms


# RegionAbsence.


def test_a_link_that_breaks_after_silence_continues_that_absence() -> None:
    absence = RegionAbsence(100)
    absence.timed_out({"b"}, 5)
    absence.links_observed({"b"}, 50)
    assert absence.since_ms == {"b": 5}
    absence.links_observed((), 60)
    assert absence.since_ms == {}, "the link is up: the region is asked again"


def test_a_timeout_counts_only_since_the_last_response() -> None:
    absence = RegionAbsence(100)
    absence.responded("b", 50)
    absence.timed_out({"b"}, 40)
    assert absence.since_ms == {}, "it responded to a later request"
    absence.timed_out({"b"}, 60)
    absence.timed_out({"b"}, 90)
    assert absence.since_ms == {"b": 60}
