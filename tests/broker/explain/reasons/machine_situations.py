"""Situations of pure state machines: replicators, snapshots, replicated positions and dispatch."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.core.dispatch.consistent_hash import SLOTS
from emulator.core.dispatch.dispatcher import Dispatcher
from emulator.core.dispatch.types import ConsumerState, SubscriptionType
from emulator.core.replication.progress import ReplicatorLifecycle
from emulator.core.replication.snapshots import SnapshotController
from emulator.core.replication.subscription_updates import ReplicatedSubscription
from emulator.model.markers import Snapshot, SnapshotResponse
from emulator.model.reasons import Cause
from emulator.model.values import Position
from tests.broker.explain.reasons.situations import Ask, of_machine
from tests.core.dispatch.playbook import dispatched, dispatcher, joined, log
from tests.core.dispatch.test_key_shared import KEYS, owner_of, sticky
from tests.core.dispatch.test_key_shared import log as keyed

FIRST, SECOND = Position(1, 0), Position(1, 1)


def controller() -> SnapshotController:
    return SnapshotController("a", frozenset({"b"}))


def begun() -> SnapshotController:
    made = controller()
    made.tick(0, "s", last_data_position=FIRST)
    return made


def completed() -> SnapshotController:
    made = begun()
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)
    made.snapshot_stored(Snapshot("s", SECOND, (("b", Position(7, 7)),)), 20)
    return made


@of_machine(Cause.REPLICATOR_CLOSED)
def replicator_closed() -> Iterator[Ask]:
    lives = [ReplicatorLifecycle()]
    lives[0].close()
    yield lambda: lives[-1].why_not
    lives.append(ReplicatorLifecycle())  # replicated again: a closed replicator is replaced by a new one


@of_machine(Cause.SNAPSHOT_NO_REMOTES)
def snapshot_no_remotes() -> Iterator[Ask]:
    made = SnapshotController("a", frozenset())
    made.tick(0, "s", last_data_position=FIRST)
    yield made.why_not
    made.remotes_changed(frozenset({"b"}))


@of_machine(Cause.SNAPSHOT_NO_MESSAGE)
def snapshot_no_message() -> Iterator[Ask]:
    made = controller()
    made.tick(0, "s", last_data_position=None)
    yield made.why_not
    made.tick(1, "s", last_data_position=FIRST)


@of_machine(Cause.SNAPSHOT_NONE_YET)
def snapshot_none_yet() -> Iterator[Ask]:
    made = controller()
    yield made.why_not
    made.tick(0, "s", last_data_position=FIRST)


@of_machine(Cause.SNAPSHOT_UNANSWERED)
def snapshot_unanswered() -> Iterator[Ask]:
    made = begun()
    yield made.why_not
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)


@of_machine(Cause.SNAPSHOT_STORING)
def snapshot_storing() -> Iterator[Ask]:
    made = begun()
    made.response_stored(SnapshotResponse("s", "b", Position(7, 7)), SECOND, 10)
    yield made.why_not
    made.snapshot_stored(Snapshot("s", SECOND, (("b", Position(7, 7)),)), 20)


@of_machine(Cause.SNAPSHOT_NOT_DUE)
def snapshot_not_due() -> Iterator[Ask]:
    made = completed()
    made.tick(500, "t", last_data_position=SECOND)
    yield made.why_not
    made.tick(1_000, "t", last_data_position=SECOND)


@of_machine(Cause.SNAPSHOT_NOT_NEEDED)
def snapshot_not_needed() -> Iterator[Ask]:
    made = completed()
    yield made.why_not
    made.tick(500, "t", last_data_position=SECOND)


def knows_snapshot(at: int, mark_delete: int, *, ahead: bool) -> ReplicatedSubscription:
    made = ReplicatedSubscription("s")
    snapshot = Snapshot("x", Position(1, at), (("b", Position(7, at)),))
    made.snapshot_offered(snapshot, mark_delete, ahead_of_peers=ahead)
    return made


@of_machine(Cause.SNAPSHOT_NOT_REACHED)
def snapshot_not_reached() -> Iterator[Ask]:
    made, mark_delete = knows_snapshot(12, 5, ahead=True), [5]
    yield lambda: made.why_not(mark_delete[0], ahead_of_peers=True)
    mark_delete[0] = 12
    assert made.mark_delete_moved(12) is not None


@of_machine(Cause.UPDATE_WITH_NEXT_MOVE)
def update_with_next_move() -> Iterator[Ask]:
    made, mark_delete = knows_snapshot(12, 12, ahead=False), [12]
    yield lambda: made.why_not(mark_delete[0], ahead_of_peers=True)
    mark_delete[0] = 14
    assert made.mark_delete_moved(14) is not None


def why_not(machine: Dispatcher, *, unread: int = 0, now_ms: int = 0) -> Ask:
    return lambda: machine.why_not(unread, 0, now_ms, 0)


@of_machine(Cause.FAILOVER_PAUSE)
def failover_pause() -> Iterator[Ask]:
    machine, now_ms = dispatcher(), [0]
    joined(machine, "b", SubscriptionType.FAILOVER)
    machine.joined(ConsumerState("a", priority=-1, permits=9), SubscriptionType.FAILOVER, 0)
    yield lambda: why_not(machine, unread=3, now_ms=now_ms[0])()
    now_ms[0] = 1_000_000


@of_machine(Cause.SUBSCRIPTION_UNACKED_MAX)
def subscription_unacked_max() -> Iterator[Ask]:
    machine = dispatcher()
    machine._limits.unacked_messages_max = 2
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    dispatched(machine, log(0, 1))
    yield why_not(machine, unread=3)
    machine.acknowledge(consumer, [(0, None)], 10)


@of_machine(Cause.CONSUMER_UNACKED_MAX)
def consumer_unacked_max() -> Iterator[Ask]:
    machine = dispatcher()
    machine._limits.unacked_messages_per_consumer_max = 2
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    dispatched(machine, log(0, 1))
    yield why_not(machine, unread=3)
    machine.acknowledge(consumer, [(0, None)], 10)


@of_machine(Cause.WAITS_FOR_PERMITS)
def waits_for_permits() -> Iterator[Ask]:
    machine = dispatcher()
    joined(machine, "a", SubscriptionType.SHARED, permits=0)
    other = joined(machine, "b", SubscriptionType.SHARED, permits=0)
    yield why_not(machine, unread=3)
    machine.strategy.flow(other, 1)


@of_machine(Cause.CONNECTION_FULL)
def connection_full() -> Iterator[Ask]:
    machine = dispatcher()
    consumer = joined(machine, "a", SubscriptionType.EXCLUSIVE, permits=5)
    machine.strategy.blocked(consumer, blocked=True)
    yield why_not(machine, unread=3)
    machine.strategy.blocked(consumer, blocked=False)


@of_machine(Cause.KEY_MOVED)
def key_moved() -> Iterator[Ask]:
    machine = dispatcher()
    old = joined(machine, "a", SubscriptionType.KEY_SHARED, permits=1000)
    dispatched(machine, keyed(*KEYS))
    joined(machine, "b", SubscriptionType.KEY_SHARED, permits=1000)
    assert any(owner_of(machine, key).name == "b" for key in KEYS)
    dispatched(machine, keyed(*KEYS, *KEYS))
    yield why_not(machine)
    machine.acknowledge(old, [(number, None) for number in range(2 * len(KEYS))], 10_000)


@of_machine(Cause.NO_OWNER_OF_KEYS)
def no_owner_of_keys() -> Iterator[Ask]:
    machine = dispatcher()
    sticky(machine, "low", (0, 0))
    dispatched(machine, keyed(*KEYS))
    yield why_not(machine)
    sticky(machine, "all", (1, SLOTS - 1))


@of_machine(Cause.NOT_ACKNOWLEDGED)
def not_acknowledged() -> Iterator[Ask]:
    machine = dispatcher()
    consumer = joined(machine, "a", SubscriptionType.SHARED, permits=10)
    dispatched(machine, log(0, 1))
    yield why_not(machine)
    machine.acknowledge(consumer, [(0, None), (1, None)], 10)
