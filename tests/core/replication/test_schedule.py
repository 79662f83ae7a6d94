"""When snapshots are started: the periodic and the adaptive schedule."""

from __future__ import annotations

import pytest

from emulator.core.replication.schedule import (
    MARKER_SHARE,
    PAUSE_MS_MAX,
    QUIET_INTERVALS,
    SPACING_MS,
    SnapshotDemand,
    SnapshotSchedule,
    SnapshotSettings,
)
from emulator.core.replication.snapshot_types import LogEnd, OfferSnapshot, WriteMarker
from emulator.core.replication.snapshots import SnapshotController
from emulator.model.markers import Snapshot, SnapshotRequest, SnapshotResponse
from emulator.model.values import BEFORE_EVERYTHING, Position

COST = 5


def schedule(*, adaptive: bool = True, started_ms: int = 10_000, **demand: int) -> SnapshotSchedule:
    made = SnapshotSchedule(SnapshotSettings(adaptive=adaptive))
    made.last_start_ms = started_ms
    made.demand = SnapshotDemand(**demand)  # type: ignore[arg-type]
    return made


def due(one: SnapshotSchedule, *, is_pending: bool = False) -> int:
    assert one.last_start_ms is not None
    return one.due_ms(one.last_start_ms, COST, is_pending=is_pending) - one.last_start_ms


def test_the_first_snapshot_is_due_at_once() -> None:
    assert SnapshotSchedule(SnapshotSettings(adaptive=True)).due_ms(7, COST, is_pending=False) == 7


def test_the_periodic_schedule_knows_no_demand() -> None:
    one = schedule(adaptive=False, leads=False, unreached=9)
    one.stored(10_000, messages=10_000, markers=0, cost=COST)
    assert due(one) == 1_000


def test_enough_messages_pay_for_an_early_snapshot() -> None:
    one = schedule()
    one.stored(10_100, messages=round(COST / MARKER_SHARE) - 1, markers=0, cost=COST)
    assert due(one) > SPACING_MS
    one.stored(10_100, messages=1, markers=0, cost=COST)
    assert due(one) == SPACING_MS
    assert due(one, is_pending=True) == 1_000, "the pending one would be superseded"
    one.stored(10_100, messages=0, markers=COST, cost=COST)
    assert due(one) == 200, "after a pause: nothing is left, nothing is overdrawn"


def test_a_pause_of_traffic_is_used_unless_the_budget_is_overdrawn() -> None:
    one = schedule()
    one.stored(10_300, messages=1, markers=0, cost=COST)
    assert due(one) == 300 + PAUSE_MS_MAX
    one.stored(10_400, messages=0, markers=1, cost=COST)
    assert due(one) == 1_000, "overdrawn by 0.9 markers"


@pytest.mark.parametrize("messages_per_second", [1, 10, 50, 200, 1_000, 20_000])
def test_early_snapshots_cost_a_tenth_of_the_messages_at_most(messages_per_second: int) -> None:
    """Beyond those of the periodic schedule: one snapshot per second."""
    one, now_us, snapshots, early, seconds = schedule(), 10_000_000, 0, 0, 20
    for _ in range(messages_per_second * seconds):
        now_us += 1_000_000 // messages_per_second
        now_ms = now_us // 1_000
        one.stored(now_ms, messages=1, markers=0, cost=COST)
        due_ms = one.due_ms(now_ms, COST, is_pending=False)
        if due_ms <= now_ms:
            assert one.last_start_ms is not None
            snapshots += 1
            early += now_ms - one.last_start_ms < 1_000
            one.last_start_ms = now_ms
            one.stored(now_ms, messages=0, markers=COST, cost=COST)
    messages = messages_per_second * seconds
    assert early * COST <= MARKER_SHARE * messages + 2 * COST
    assert seconds - 1 <= snapshots <= seconds * 1_000 / SPACING_MS
    if messages_per_second >= 200:
        assert snapshots >= 0.9 * min(MARKER_SHARE * messages / COST, seconds * 1_000 / SPACING_MS)


def test_snapshots_that_no_consumer_reaches_soon_become_rare() -> None:
    assert [due(schedule(unreached=count)) for count in (1, 2, 7, 20, 1_000)] == [
        1_000,
        2_000,
        7_000,
        20_000,
        20_000,
    ]
    assert due(schedule(leads=False)) == 1_000 * QUIET_INTERVALS


def test_the_budget_of_a_long_time_is_not_saved_up() -> None:
    one = schedule()
    one.stored(10_000, messages=1_000_000, markers=0, cost=COST)
    one.stored(10_000, messages=0, markers=2 * COST, cost=COST)
    one.stored(10_000, messages=0, markers=1, cost=COST)
    assert due(one) == 1_000
    one.stored(10_000, messages=0, markers=1_000, cost=COST)
    one.stored(10_000, messages=round(2 * COST / MARKER_SHARE), markers=0, cost=COST)
    assert due(one) < 1_000, "nor is a debt"


# One round, where it is enough.

RECEIVED = {"b": Position(2, 20), "c": Position(3, 30)}


def received(region: str) -> Position:
    return RECEIVED.get(region, BEFORE_EVERYTHING)


LOG_END = LogEnd(Position(1, 12), received)


def first_round(**stated: tuple[tuple[str, Position], ...]) -> tuple[SnapshotController, list[object]]:
    """Return a controller of a, and its effects when b and c responded at entries 10 and 11 with these statements."""
    controller = SnapshotController("a", frozenset("bc"), SnapshotSettings(adaptive=True))
    effects: list[object] = list(controller.tick(0, "s", last_data_position=Position(1, 0)))
    assert effects == [WriteMarker(SnapshotRequest("s", "a", wants_received=True), ())]
    for entry, region in enumerate("bc", 10):
        response = SnapshotResponse("s", region, Position(9, entry), stated.get(region, ()))
        effects = list(controller.response_stored(response, Position(1, entry), 5, LOG_END))
    return controller, effects


def test_one_round_is_enough_when_a_has_what_the_others_had_of_each_other() -> None:
    controller, effects = first_round(b=(("c", Position(3, 30)),), c=(("b", Position(2, 19)),))
    snapshot = Snapshot("s", Position(1, 12), (("b", Position(9, 10)), ("c", Position(9, 11))))
    assert effects == [WriteMarker(snapshot, ("a",))], "at the end of the log, not at the last response"
    assert controller.snapshot_stored(snapshot, 6) == [OfferSnapshot(snapshot)]


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"b": (("c", Position(3, 30)),)},
        {"b": (("c", Position(3, 31)),), "c": (("b", Position(2, 20)),)},
        {"b": (("c", Position(3, 30)),), "c": (("b", Position(3, 0)),)},
        {"b": (("d", Position(0, 0)),), "c": (("b", Position(2, 20)),)},
    ],
    ids=["nothing stated", "by one only", "one entry ahead", "a newer ledger", "of another region"],
)
def test_a_second_round_follows_when_that_is_not_proved(
    stated: dict[str, tuple[tuple[str, Position], ...]],
) -> None:
    _, effects = first_round(**stated)
    assert effects == [WriteMarker(SnapshotRequest("s/2", "a"), ())]


def test_what_was_received_is_stated_only_if_asked_for() -> None:
    controller = SnapshotController("b", frozenset("ac"))
    (plain,) = controller.request_stored(SnapshotRequest("s", "a"), Position(1, 4), received)
    assert plain == WriteMarker(SnapshotResponse("s", "b", Position(1, 4)), ("a",))
    asked = SnapshotRequest("t", "a", wants_received=True)
    (full,) = controller.request_stored(asked, Position(1, 4), received)
    assert full == WriteMarker(SnapshotResponse("t", "b", Position(1, 4), (("c", Position(3, 30)),)), ("a",))
