"""Metrics of replicated subscriptions and of the lag of replicators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from emulator.broker.admin.exposition import Metrics
from emulator.broker.replication.replicator import Replicator
from emulator.broker.subscription.replicated import ReplicatedSubscriptions
from emulator.broker.topic.topic import Topic
from emulator.core.replication.progress import Forwarding
from emulator.core.replication.update_records import IGNORED
from emulator.errors import StorageError

SAMPLE_ENTRIES: Final = 500
"""Maximum number of unconfirmed entries whose messages are counted; of more, the number of messages is estimated."""
SAMPLE_BYTES: Final = 262_144
"""Maximum number of bytes of these that are read from the store."""


class ReplicationLag(NamedTuple):
    """What a remote region lacks of one topic."""

    messages: int
    age_ms: int
    """Time since the oldest message that it lacks was published, by the clock of the producer; 0: it lacks none."""


async def lags_of(topic: Topic) -> dict[str, ReplicationLag]:
    """Return the lag of each replicator of a topic, by remote region; without those whose entries cannot be read."""
    found = {}
    for remote, replicator in topic.replicators.items() if topic.keeps_messages else ():
        with suppress(StorageError):
            found[remote] = await _lag(topic, replicator)
    return found


async def _lag(topic: Topic, replicator: Replicator) -> ReplicationLag:
    first, backlog = replicator.progress.confirmed + 1, replicator.backlog
    if not backlog:
        return ReplicationLag(0, 0)
    entries = await topic.reading.read(first, min(SAMPLE_ENTRIES, backlog), SAMPLE_BYTES)
    forwarding = topic.region.environment.components.replication.forwarding
    own = [
        entry
        for entry in entries
        if not entry.hidden
        and forwarding(
            replicator.remote, entry.info.replicated_from, entry.info.replicate_to, entry.info.marker_type
        )
        is Forwarding.SEND
    ]
    if not own:
        return ReplicationLag(0, 0)
    counted, ids = sum(entry.messages for entry in own), entries[-1].entry_id - first + 1
    age_ms = topic.region.environment.wall_clock_ms() - own[0].info.publish_time_ms
    return ReplicationLag(-(-counted * max(backlog, ids) // ids), max(0, age_ms))


def add_replication(
    metrics: Metrics, topic: Topic, lags: Mapping[str, ReplicationLag], base_labels: Mapping[str, str]
) -> None:
    """Add the lag of the topic's replicators, and its replicated subscriptions."""
    for remote, lag in lags.items():
        labels = {**base_labels, "remote_cluster": remote}
        help_ = (
            f"Messages that the region has not confirmed; beyond {SAMPLE_ENTRIES} entries an estimate from the first "
            "ones."
        )
        metrics.add("geoemu_replication_lag_messages", help_, lag.messages, **labels)
        help_ = "Milliseconds since the oldest of them was published, by its producer's clock; 0 without one."
        metrics.add("geoemu_replication_lag_milliseconds", help_, lag.age_ms, **labels)
    sync = topic.subscriptions.replicated
    if sync is not None:
        _add_snapshots(metrics, topic, sync, base_labels)
        for name, help_, value, labels in _samples(topic, sync):
            metrics.add(name, help_, value, **base_labels, **labels)


def _add_snapshots(
    metrics: Metrics, topic: Topic, sync: ReplicatedSubscriptions, base_labels: Mapping[str, str]
) -> None:
    completed = sync.snapshots.completed
    if completed and completed[-1].taken_ms:
        age_ms = max(0, topic.region.environment.wall_clock_ms() - completed[-1].taken_ms)
        help_ = "Seconds since the newest snapshot of replicated subscriptions was stored."
        metrics.add("geoemu_snapshot_age_seconds", help_, round(age_ms / 1000, 3), **base_labels)
    blocked = sync.snapshots.blocked_ms()
    for remote in sorted(sync.snapshots.controller.remotes):
        help_ = "Seconds for which the region has prevented snapshots of the topic: its link is down or it is silent."
        seconds = round(blocked.get(remote, 0) / 1000, 3)
        metrics.add("geoemu_snapshots_blocked_seconds", help_, seconds, **base_labels, remote_cluster=remote)


def _samples(topic: Topic, sync: ReplicatedSubscriptions) -> Iterator[tuple[str, str, float, dict[str, str]]]:
    """Yield name, help, value and labels of the metrics of each subscription with updates."""
    for name, records in sync.records.items():
        subscription, labels = topic.subscriptions.get(name), {"subscription": name}
        if subscription is None:
            continue
        prefix, what = "geoemu_subscription_updates", "Updates of a subscription's position"
        yield (
            f"{prefix}_sent_total",
            f"{what} that were stored for other regions.",
            records.sent_count,
            labels,
        )
        yield (
            f"{prefix}_applied_total",
            f"{what} by other regions that were applied.",
            records.applied,
            labels,
        )
        for outcome in IGNORED:
            help_ = f"{what} by other regions that changed nothing, by reason."
            reason = {"reason": outcome.name.lower()}
            yield f"{prefix}_ignored_total", help_, records.outcomes[outcome], {**labels, **reason}
        for remote, replicator in topic.replicators.items():
            bound = sync.records.redelivered_at_most(subscription, remote, replicator.progress.confirmed)
            if bound is not None:
                help_ = (
                    "Messages that a fail-over to the region would deliver again at most: published since the request "
                    "of the snapshot whose position it stored last, without unacknowledged entries; 0 if none of them "
                    "is acknowledged. Excludes messages of a third region that were late there."
                )
                yield (
                    "geoemu_failover_redelivered_messages",
                    help_,
                    bound,
                    {**labels, "remote_cluster": remote},
                )
