"""One region's part of the conditions that programs wait for: what is missing, and why.

A region judges its own state only (docs/components/explain.md): its replicators prove that other regions store what it
forwarded, and its log positions are the goals of a wait. The caller combines all regions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from emulator.broker.explain.delivery import compare
from emulator.broker.explain.transactions import why_not_readable
from emulator.broker.region import Region
from emulator.broker.subscription.subscription import Subscription
from emulator.broker.topic.topic import Topic
from emulator.broker.topic_directory.loaded_topic import OpenMode
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import IdSet
from emulator.core.partitions import partition_names
from emulator.core.replication.delivery_state import DeliveryState
from emulator.core.replication.failover_plan import Acknowledged, reasons_of
from emulator.core.replication.progress import ReplicatorState
from emulator.errors import ProtocolError, StorageError
from emulator.model.conditions import ConditionState
from emulator.model.reasons import Cause, Reason, first_of
from emulator.model.values import TopicName

AT_REST = frozenset(
    {
        Cause.NO_SUBSCRIPTION,
        Cause.SNAPSHOT_NO_REMOTES,
        Cause.SNAPSHOT_NO_MESSAGE,
        Cause.SNAPSHOT_NOT_NEEDED,
    }
)
"""Reasons for which no snapshot is taken, and none will be without a new message."""

_ENDS_BY_ITSELF = frozenset(
    {
        Cause.SEEKING,
        Cause.SETTLING,
        Cause.FAILOVER_PAUSE,
        Cause.DISPATCH_RATE,
        Cause.READING_MESSAGES,
        Cause.NOT_DUE,
        Cause.CONNECTION_FULL,
        Cause.HELD_BY_TRANSACTION,
    }
)
"""Reasons for which a message is not delivered or acknowledged that end without an action of a client."""


@dataclass(frozen=True, slots=True)
class WaitScope:
    """A wait for a condition, as one region sees it."""

    topic: TopicName | None
    """None: all topics."""
    subscription: str | None
    lost: Collection[str]
    """Regions that will not return: nothing is expected of them."""
    goal: Mapping[str, Any]
    """The goal of the response before; empty in the first request."""
    target: DeliveryState | None = None
    """State of another region, to which no acknowledged message of the goal may remain to be delivered."""


async def state_of(region: Region, condition: str, wait: WaitScope) -> ConditionState:
    """Return the region's part of a condition of `CONDITIONS`."""
    here = region.config.region
    goal: dict[str, Any] = _settled(region, wait) if condition == "quiet" else {}
    topics = await _topics(region, wait.topic, goal)
    missing: list[str] = []
    for topic in topics:
        before = wait.goal.get(topic.full_name)
        current = _GOALS[condition](topic, wait, before if isinstance(before, Mapping) else {})
        found = [f"{here}: {one}" for one in _MISSING[condition](region, topic, wait, current)]
        goal[topic.full_name] = current if condition != "quiet" or found else {_SETTLED: _activity(topic)}
        missing += found
        if condition == "replicated" and wait.target is not None:
            missing += [f"{here}: {one}" async for one in _redelivered(topic, wait, wait.target, current)]
    if condition == "quiet" and wait.topic is None:
        missing += (f"{here}: {one}" for one in _unquiet_region(region, wait.lost))
    loaded = {topic.full_name for topic in topics}
    activity = sum(map(_activity, topics)) + sum(goal[name][_SETTLED] for name in goal.keys() - loaded)
    has_subscription = wait.subscription is None or any(_subscriptions(topic, wait) for topic in topics)
    names = tuple(goal)
    return ConditionState(here, names, has_subscription, tuple(missing), goal, activity)


async def _topics(region: Region, name: TopicName | None, settled: Collection[str]) -> list[Topic]:
    """Load and return the topic, or its partitions; None: all topics except `settled`. Topics that the region does not
    have, or cannot load now, are omitted."""
    if name is None:
        names = [one for one in region.directory.all_names() if one not in settled]
    else:
        found = region.partitioned.get(name)
        names = [str(name)] if found is None else partition_names(name, found.count)
    topics = []
    for one in names:
        if name is None and (loaded := region.directory.serving.get(one)) is not None:
            topics.append(loaded)  # to request it would keep it loaded for as long as the wait lasts
            continue
        with suppress(ProtocolError, StorageError):
            topics.append(await region.directory.acquire(one, OpenMode.EXISTING))
    return topics


_SETTLED = "settled"
"""Key of the activity of a quiet topic in a goal."""


def _settled(region: Region, wait: WaitScope) -> dict[str, Any]:
    """Return the part of the goal before for topics that were quiet, and are not loaded: they cannot change. To load
    them with each request would keep all topics of the region in memory for as long as the wait lasts."""
    if wait.topic is not None:
        return {}
    names = set(region.directory.all_names()) - region.directory.serving.keys()
    before = {name: wait.goal[name] for name in names & wait.goal.keys()}
    return {
        name: state
        for name, state in before.items()
        if isinstance(state, Mapping) and type(state.get(_SETTLED)) is int
    }


def _activity(topic: Topic) -> int:
    """Return a number that grows with each entry of a topic and each change of its cursors."""
    return topic.state.stored_end + sum(one.cursor.version for one in topic.subscriptions.values())


def _subscriptions(topic: Topic, wait: WaitScope) -> list[Subscription]:
    return [one for name, one in topic.subscriptions.items() if wait.subscription in (None, name)]


# Replicated.


ACKNOWLEDGED_RANGES_MAX = 1_000
"""Maximum number of acknowledged ranges, and of batches acknowledged in part, in a goal. If there are more, the goal
contains all that is acknowledged at the time of each request."""


def _stored_goal(topic: Topic, wait: WaitScope, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of the log and the acknowledgements at the first request; of another log, if the topic was created
    again."""
    if before.get("ledger") != topic.ledger_id or not isinstance(before.get("end"), int):
        before = {"end": topic.state.stored_end, **_acknowledged_goal(topic, wait)}
    return {**before, "ledger": topic.ledger_id, "end": min(before["end"], topic.state.stored_end)}


def _acknowledged_goal(topic: Topic, wait: WaitScope) -> dict[str, Any]:
    subscription = None if wait.subscription is None else topic.subscriptions.get(wait.subscription)
    if subscription is None:
        return {}
    acked = Acknowledged.of(subscription.cursor)
    ranges = acked.ids.runs()
    if max(len(ranges), len(acked.open_bits)) > ACKNOWLEDGED_RANGES_MAX:
        return {}
    partial = [[entry_id, f"{bits:x}"] for entry_id, bits in acked.open_bits.items()]
    return {"mark_delete": acked.mark_delete, "ranges": ranges, "partial": partial}


def _acknowledged_in(goal: Mapping[str, Any], cursor: Cursor) -> Acknowledged:
    """Return the acknowledgements of a goal, within those of the cursor; all of the cursor if it names none."""
    try:
        ids = IdSet()
        for first, last in goal["ranges"]:
            ids.add_range(max(0, int(first)), min(int(last), cursor.highest_acked))
        partial = {int(entry_id): int(bits, 16) for entry_id, bits in goal["partial"]}
        return Acknowledged(min(int(goal["mark_delete"]), cursor.mark_delete), ids, partial)
    except (KeyError, TypeError, ValueError):
        return Acknowledged.of(cursor)


async def _redelivered(
    topic: Topic, wait: WaitScope, target: DeliveryState, goal: Mapping[str, Any]
) -> AsyncIterator[str]:
    """Yield why messages that are acknowledged here would be delivered again in another region."""
    subscription = topic.subscriptions.get(wait.subscription or "")
    if subscription is None or subscription.closed:
        return
    figures = await compare(topic, _acknowledged_in(goal, subscription.cursor), target)
    if not figures.redelivered:
        return
    here: Reason = topic.subscriptions.why_not_replicated(subscription)
    if subscription.cursor.replicated and target.exists and not target.replicated:
        here = Cause.POSITION_NOT_APPLIED_THERE(region=target.region)
    reason = first_of([*reasons_of(target, figures), here])
    count, of = figures.redelivered, f"{subscription.name} of {topic.full_name}"
    messages = "1 acknowledged message" if count == 1 else f"{count} acknowledged messages"
    yield f"{messages} of {of} would be delivered again in {target.region}{_because(reason)}"


def _unreplicated(region: Region, topic: Topic, wait: WaitScope, goal: Mapping[str, Any]) -> Iterator[str]:
    """Yield which regions lack entries below the goal."""
    for remote, replicator in sorted(topic.replicators.items()):
        lacks = goal["end"] - 1 - replicator.progress.confirmed
        if lacks > 0 and remote not in wait.lost:
            reason = why_not_readable(region, topic) or replicator.why_not()
            yield f"{_entries(lacks)} of {topic.full_name} not replicated to {remote}{_because(reason)}"


# Snapshots.


def _snapshot_goal(topic: Topic, wait: WaitScope, before: Mapping[str, Any]) -> dict[str, int]:
    """Require a snapshot that starts after the first request, or after the topic was loaded again."""
    sync = topic.subscriptions.replicated
    if sync is None or not any(one.cursor.replicated for one in _subscriptions(topic, wait)):
        return {}
    if before.get("loaded_ms") == topic.metrics.loaded_ms and isinstance(before.get("snapshot"), int):
        return {"loaded_ms": topic.metrics.loaded_ms, "snapshot": before["snapshot"]}
    number = sync.snapshots.controller.follow_ups.require()
    sync.snapshots.schedule()
    return {"loaded_ms": topic.metrics.loaded_ms, "snapshot": number}


def _without_snapshot(
    region: Region, topic: Topic, wait: WaitScope, goal: Mapping[str, Any]
) -> Iterator[str]:
    sync = topic.subscriptions.replicated
    if goal and sync is not None and not sync.snapshots.controller.follow_ups.has_completed(goal["snapshot"]):
        yield f"no new snapshot of {topic.full_name}{_because(sync.snapshots.why_not())}"


# Quiet.


def _no_goal(topic: Topic, wait: WaitScope, before: Mapping[str, Any]) -> dict[str, int]:
    return {}


def _unquiet(region: Region, topic: Topic, wait: WaitScope, goal: Mapping[str, Any]) -> Iterator[str]:
    """Yield what will change in a topic without an action of a client."""
    name = topic.full_name
    if topic.publishing.issued or topic.publishing.batch:
        yield f"entries of {name} are being stored"
    if topic.state.buffer.open_from is not None:
        yield f"messages of {name} are not visible{_because(why_not_readable(region, topic))}"
    for remote, replicator in sorted(topic.replicators.items()):
        if remote in wait.lost:
            continue
        if replicator.backlog:
            lacks = _entries(replicator.backlog)
            yield f"{lacks} of {name} not replicated to {remote}{_because(replicator.why_not())}"
        elif not (replicator.lifecycle.is_connected or replicator.lifecycle.state is ReplicatorState.RESTING):
            yield f"the replicator of {name} to {remote} is not connected{_because(replicator.why_not())}"
    yield from _unquiet_replication(topic, wait)
    for subscription in _subscriptions(topic, wait):
        yield from _unquiet_subscription(topic, subscription)


def _unquiet_replication(topic: Topic, wait: WaitScope) -> Iterator[str]:
    """Yield the pending snapshot and updates of a topic."""
    sync = topic.subscriptions.replicated
    if sync is None:
        return
    if sync.sending:
        yield f"{_number(sync.sending, 'update')} of {topic.full_name} not stored yet"
    if sync.received.origin_reads.is_reading:
        yield f"an update of {topic.full_name} is being applied"
    if sync.individual is not None and sync.individual.is_due:
        yield f"acknowledgements of {topic.full_name} are about to be sent"
    unreachable = sync.snapshots.observed().unreachable
    if not set(unreachable) & set(wait.lost):
        reason = sync.snapshots.why_not()
        if reason.cause not in AT_REST:
            yield f"the next snapshot of {topic.full_name} is pending{_because(reason)}"


def _unquiet_subscription(topic: Topic, subscription: Subscription) -> Iterator[str]:
    name = f"{subscription.name} of {topic.full_name}"
    if subscription.cursor.unapplied:
        reason = Cause.POSITION_NOT_APPLIED_HERE(
            regions=" and ".join(sorted(subscription.cursor.unapplied)), here=topic.region.config.region
        )
        yield f"a position of subscription {name} is not applied{_because(reason)}"
    if subscription.stored_cursor.is_writing:
        yield f"the cursor of subscription {name} is being written"
    reason = subscription.why_not()
    if reason.cause in _ENDS_BY_ITSELF or (not reason and subscription.backlog()):
        yield f"messages of subscription {name} are being delivered{_because(reason)}"
    elif subscription.consumers and subscription.dispatcher.delayed_entries:
        yield f"messages of subscription {name} are delayed"


def _unquiet_region(region: Region, lost: Collection[str]) -> Iterator[str]:
    """Yield what will change in the whole region without an action of a client."""
    for name, peer in sorted(region.peers.items()):
        if name not in lost and not peer.connected:
            yield f"the link to {name} is not established{_because(peer.why_not)}"
    open_transactions = sum(len(coordinator.core.live) for coordinator in region.coordinators.loaded)
    if open_transactions:
        yield f"{_number(open_transactions, 'transaction')} open"
    leader = None if region.synchronizer is None else region.synchronizer.leader
    if leader is not None and leader.channel.backlog:
        yield f"{_number(leader.channel.backlog, 'metadata event')} of other clusters not applied yet"


Goal = Callable[[Topic, WaitScope, Mapping[str, Any]], dict[str, Any]]
Missing = Callable[[Region, Topic, WaitScope, Mapping[str, Any]], Iterator[str]]
_GOALS: Mapping[str, Goal] = {
    "quiet": _no_goal,
    "replicated": _stored_goal,
    "snapshot": _snapshot_goal,
}
_MISSING: Mapping[str, Missing] = {
    "quiet": _unquiet,
    "replicated": _unreplicated,
    "snapshot": _without_snapshot,
}


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"
