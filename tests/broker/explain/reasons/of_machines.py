"""Situations of pure state machines: snapshots, positions and dispatch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from emulator.core.dispatch import ConsumerState, Dispatcher, SubscriptionType
from emulator.core.dispatch.consistent_hash import SLOTS
from emulator.core.replication.progress import ReplicatorLife
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import ReplicatedSubscription
from emulator.model.markers import Snapshot, SnapshotResponse
from emulator.model.reasons import Cause
from emulator.model.values import Position
from tests.broker.explain.reasons.situations import Codes, of_reason, situation
from tests.core.dispatch.playbook import dispatcher, handed_out, joined, log
from tests.core.dispatch.test_key_shared import KEYS, owner_of, sticky
from tests.core.dispatch.test_key_shared import log as keyed

FIRST, SECOND = Position(1, 0), Position(1, 1)


def controller() -> SnapshotController:
    return SnapshotController("a", frozenset({"b"}), interval_ms=1_000, timeout_ms=30_000)


def begun() -> SnapshotController:
    made = controller()
    made.tick(0, "s", last_data_position=FIRST)
    return made


def completed() -> SnapshotController:
    made = begun()
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)
    made.snapshot_stored(Snapshot("s", SECOND, (("b", Position(7, 7)),)), 20)
    return made


@situation(Cause.REPLICATOR_CLOSED)
async def replicator_closed() -> AsyncIterator[Codes]:
    lives = [ReplicatorLife()]
    lives[0].close()
    yield of_reason(lambda: lives[-1].why_not)
    lives.append(ReplicatorLife())  # replicated again: a replicator has one life
    yield tuple


@situation(Cause.SNAPSHOT_NO_REMOTES)
async def snapshot_no_remotes() -> AsyncIterator[Codes]:
    made = SnapshotController("a", frozenset())
    made.tick(0, "s", last_data_position=FIRST)
    yield of_reason(made.why_not)
    made.remotes_changed(frozenset({"b"}))
    yield tuple


@situation(Cause.SNAPSHOT_NO_MESSAGE)
async def snapshot_no_message() -> AsyncIterator[Codes]:
    made = controller()
    made.tick(0, "s", last_data_position=None)
    yield of_reason(made.why_not)
    made.tick(1, "s", last_data_position=FIRST)
    yield tuple


@situation(Cause.SNAPSHOT_NONE_YET)
async def snapshot_none_yet() -> AsyncIterator[Codes]:
    made = controller()
    yield of_reason(made.why_not)
    made.tick(0, "s", last_data_position=FIRST)
    yield tuple


@situation(Cause.SNAPSHOT_UNANSWERED)
async def snapshot_unanswered() -> AsyncIterator[Codes]:
    made = begun()
    yield of_reason(made.why_not)
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)
    yield tuple


@situation(Cause.SNAPSHOT_STORING)
async def snapshot_storing() -> AsyncIterator[Codes]:
    made = begun()
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)
    yield of_reason(made.why_not)
    made.snapshot_stored(Snapshot("s", SECOND, (("b", Position(7, 7)),)), 20)
    yield tuple


@situation(Cause.SNAPSHOT_NOT_DUE)
async def snapshot_not_due() -> AsyncIterator[Codes]:
    made = completed()
    made.tick(500, "t", last_data_position=SECOND)
    yield of_reason(made.why_not)
    made.tick(1_000, "t", last_data_position=SECOND)
    yield tuple


@situation(Cause.SNAPSHOT_NOT_NEEDED)
async def snapshot_not_needed() -> AsyncIterator[Codes]:
    made = completed()
    yield of_reason(made.why_not)
    made.tick(500, "t", last_data_position=SECOND)
    yield tuple


def knows_snapshot(at: int, mark_delete: int, *, ahead: bool) -> ReplicatedSubscription:
    made = ReplicatedSubscription("s")
    snapshot = Snapshot("x", Position(1, at), (("b", Position(7, at)),))
    made.snapshot_offered(snapshot, mark_delete, ahead_of_peers=ahead)
    return made


@situation(Cause.SNAPSHOT_NOT_REACHED)
async def snapshot_not_reached() -> AsyncIterator[Codes]:
    made, mark_delete = knows_snapshot(12, 5, ahead=True), [5]
    yield of_reason(lambda: made.why_not(mark_delete[0], ahead_of_peers=True))
    mark_delete[0] = 12
    assert made.mark_delete_moved(12) is not None
    yield tuple


@situation(Cause.UPDATE_WITH_NEXT_MOVE)
async def update_with_next_move() -> AsyncIterator[Codes]:
    made, mark_delete = knows_snapshot(12, 12, ahead=False), [12]
    yield of_reason(lambda: made.why_not(mark_delete[0], ahead_of_peers=True))
    mark_delete[0] = 14
    assert made.mark_delete_moved(14) is not None
    yield tuple


def asked(
    machine: Dispatcher, *, unread: int = 0, given: int = 0, now_ms: int = 0, wall_ms: int = 0
) -> Codes:
    return of_reason(partial(machine.why_not, unread, given, now_ms, wall_ms))


@situation(Cause.FAILOVER_PAUSE)
async def failover_pause() -> AsyncIterator[Codes]:
    machine, now_ms = dispatcher(), [0]
    joined(machine, "b", SubscriptionType.FAILOVER)
    machine.joined(ConsumerState("a", priority=-1, permits=9), SubscriptionType.FAILOVER, 0)
    yield lambda: asked(machine, unread=3, now_ms=now_ms[0])()
    now_ms[0] = 1_000_000
    yield tuple


@situation(Cause.SUBSCRIPTION_UNACKED_MAX)
async def subscription_unacked_max() -> AsyncIterator[Codes]:
    machine = dispatcher()
    machine._limits.unacked_messages_max = 2
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    handed_out(machine, log(0, 1))
    yield asked(machine, unread=3)
    machine.acknowledge(consumer, [(0, None)], 10)
    yield tuple


@situation(Cause.CONSUMER_UNACKED_MAX)
async def consumer_unacked_max() -> AsyncIterator[Codes]:
    machine = dispatcher()
    machine._limits.unacked_messages_per_consumer_max = 2
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    handed_out(machine, log(0, 1))
    yield asked(machine, unread=3)
    machine.acknowledge(consumer, [(0, None)], 10)
    yield tuple


@situation(Cause.WAITS_FOR_PERMITS)
async def waits_for_permits() -> AsyncIterator[Codes]:
    machine = dispatcher()
    joined(machine, "a", SubscriptionType.SHARED, permits=0)
    other = joined(machine, "b", SubscriptionType.SHARED, permits=0)
    yield asked(machine, unread=3)
    machine.flow(other, 1)
    yield tuple


@situation(Cause.CONNECTION_FULL)
async def connection_full() -> AsyncIterator[Codes]:
    machine = dispatcher()
    consumer = joined(machine, "a", SubscriptionType.EXCLUSIVE, permits=5)
    machine.blocked(consumer, blocked=True)
    yield asked(machine, unread=3)
    machine.blocked(consumer, blocked=False)
    yield tuple


@situation(Cause.KEY_MOVED)
async def key_moved() -> AsyncIterator[Codes]:
    machine = dispatcher()
    old = joined(machine, "a", SubscriptionType.KEY_SHARED, permits=1000)
    handed_out(machine, keyed(*KEYS))
    joined(machine, "b", SubscriptionType.KEY_SHARED, permits=1000)
    assert any(owner_of(machine, key).name == "b" for key in KEYS)
    handed_out(machine, keyed(*KEYS, *KEYS))
    yield asked(machine)
    machine.acknowledge(old, [(number, None) for number in range(2 * len(KEYS))], 10_000)
    yield tuple


@situation(Cause.NO_OWNER_OF_KEYS)
async def no_owner_of_keys() -> AsyncIterator[Codes]:
    machine = dispatcher()
    sticky(machine, "low", (0, 0))
    handed_out(machine, keyed(*KEYS))
    yield asked(machine)
    sticky(machine, "all", (1, SLOTS - 1))
    yield tuple


@situation(Cause.NOT_ACKNOWLEDGED)
async def not_acknowledged() -> AsyncIterator[Codes]:
    machine = dispatcher()
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    handed_out(machine, log(0, 1))
    yield asked(machine)
    machine.acknowledge(consumer, [(0, None), (1, None)], 10)
    yield tuple
