"""Metrics of a topic, its subscriptions and its replicators: with the names that Pulsar's dashboards query, and with
`geoemu_…` if only geoemu has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from emulator.broker.admin.exposition import Metrics
from emulator.broker.admin.replication_metrics import ReplicationLag, add_replication
from emulator.broker.topic.topic import Topic
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, QuotaKind

SERIES_MAX: Final = 5_000
"""Number of subscriptions and replicators with series of their own after which no further topic gets series; also the
maximum number of subscriptions of one topic."""
TOPIC_FIELDS: Final = {
    "pulsar_rate_in": ("msgRateIn", "Messages published per second."),
    "pulsar_rate_out": ("msgRateOut", "Messages sent to consumers per second."),
    "pulsar_throughput_in": ("msgThroughputIn", "Bytes published per second."),
    "pulsar_throughput_out": ("msgThroughputOut", "Bytes sent to consumers per second."),
    "pulsar_in_messages_total": ("msgInCounter", "Messages published."),
    "pulsar_in_bytes_total": ("bytesInCounter", "Bytes published."),
    "pulsar_out_messages_total": ("msgOutCounter", "Messages sent to consumers."),
    "pulsar_out_bytes_total": ("bytesOutCounter", "Bytes sent to consumers."),
    "pulsar_average_msg_size": ("averageMsgSize", "Average bytes of a published message."),
    "pulsar_storage_size": ("storageSize", "Bytes of the topic's log."),
    "pulsar_storage_logical_size": ("storageSize", "Bytes of the topic's log: entries are stored once."),
    "pulsar_storage_backlog_size": ("backlogSize", "Bytes of the largest backlog."),
}
LATENCY_METRICS: Final = tuple(
    f"pulsar_storage_write_latency_{one}"
    for one in (
        "le_0_5",
        "le_1",
        "le_5",
        "le_10",
        "le_20",
        "le_50",
        "le_100",
        "le_200",
        "le_1000",
        "overflow",
    )
)
"""Metric names of the classes of `LATENCY_LIMITS_US`."""
SIZE_METRICS: Final = tuple(
    f"pulsar_entry_size_le_{one}"
    for one in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
)
SUBSCRIPTION_FIELDS: Final = {
    "pulsar_subscription_back_log": ("msgBacklog", "Entries that are not acknowledged."),
    "pulsar_subscription_delayed": ("msgDelayed", "Entries that are not due yet."),
    "pulsar_subscription_unacked_messages": (
        "unackedMessages",
        "Messages sent to consumers and not acknowledged.",
    ),
    "pulsar_subscription_msg_rate_out": ("msgRateOut", "Messages sent per second."),
    "pulsar_subscription_msg_throughput_out": ("msgThroughputOut", "Bytes sent per second."),
    "pulsar_subscription_last_acked_timestamp": (
        "lastAckedTimestamp",
        "Time of the last acknowledgement (ms).",
    ),
    "pulsar_subscription_last_consumed_timestamp": (
        "lastConsumedTimestamp",
        "Time of the last dispatch (ms).",
    ),
    "pulsar_subscription_last_consumed_flow_timestamp": (
        "lastConsumedFlowTimestamp",
        "Time of the last FLOW of a consumer (ms).",
    ),
    "pulsar_subscription_msg_drop_rate": (
        "msgDropRate",
        "Messages of a non-persistent topic that no consumer received, per second.",
    ),
    "geoemu_subscription_dropped_messages_total": (
        "msgDropCount",
        "Messages of a non-persistent topic that no consumer received.",
    ),
    "pulsar_subscription_last_mark_delete_advanced_timestamp": (
        "lastMarkDeleteAdvancedTimestamp",
        "Time of the last mark-delete movement (ms).",
    ),
}
REPLICATOR_FIELDS: Final = {
    "pulsar_replication_rate_in": ("msgRateIn", "Messages received from that region per second."),
    "pulsar_replication_rate_out": ("msgRateOut", "Messages sent to that region per second."),
    "pulsar_replication_throughput_in": ("msgThroughputIn", "Bytes received from that region per second."),
    "pulsar_replication_throughput_out": ("msgThroughputOut", "Bytes sent to that region per second."),
    "pulsar_replication_backlog": ("replicationBacklog", "Entries that the region has not confirmed."),
    "pulsar_replication_connected_count": ("connected", "Replicators that are connected."),
    "geoemu_replication_dropped_messages_total": (
        "msgDropCount",
        "Messages of a non-persistent topic that were never sent to that region.",
    ),
}


def add_to_sums(sums: Counter[str], topic: Topic, stats: Mapping[str, Any]) -> None:
    """Add a topic with these statistics to the sums of the broker."""
    sums["topics_count"] += 1
    sums["subscriptions_count"] += len(topic.subscriptions)
    sums["producers_count"] += len(stats["publishers"])
    sums["consumers_count"] += sum(len(one.consumers) for one in topic.subscriptions.values())
    sums["msg_backlog"] += _backlog(stats)
    for name, field in (
        ("rate_in", "msgRateIn"),
        ("rate_out", "msgRateOut"),
        ("throughput_in", "msgThroughputIn"),
        ("throughput_out", "msgThroughputOut"),
        ("storage_size", "storageSize"),
    ):
        sums[name] += stats[field]


def _backlog(stats: Mapping[str, Any]) -> int:
    return sum(one["msgBacklog"] for one in stats["subscriptions"].values())


def add_topic(
    metrics: Metrics,
    topic: Topic,
    stats: Mapping[str, Any],
    lags: Mapping[str, ReplicationLag],
    cluster: str,
) -> int:
    """Add the metrics of a topic with these statistics and replication lags. Return its number of subscriptions and
    replicators."""
    base_labels = {"cluster": cluster, "namespace": topic.name.full_namespace, "topic": topic.full_name}
    subscriptions = topic.subscriptions
    consumers = sum(len(one.consumers) for one in subscriptions.values())
    metrics.add("pulsar_producers_count", "Producers.", len(stats["publishers"]), **base_labels)
    metrics.add("pulsar_consumers_count", "Consumers.", consumers, **base_labels)
    metrics.add("pulsar_subscriptions_count", "Subscriptions.", len(subscriptions), **base_labels)
    metrics.add(
        "pulsar_msg_backlog", "Sum of the backlogs of all subscriptions.", _backlog(stats), **base_labels
    )
    metrics.add_fields(TOPIC_FIELDS, stats, **base_labels)
    _add_storage(metrics, topic, base_labels)
    metrics.add("pulsar_storage_offloaded_size", "Offloaded bytes: always 0.", 0, **base_labels)
    for name, one in list(stats["subscriptions"].items())[:SERIES_MAX]:
        labels = {**base_labels, "subscription": name}
        metrics.add_fields(SUBSCRIPTION_FIELDS, one, **labels)
        without_delayed = one["msgBacklog"] - one.get("msgDelayed", 0)
        metrics.add(
            "pulsar_subscription_back_log_no_delayed",
            "Entries that are not acknowledged, without delayed ones.",
            without_delayed,
            **labels,
        )
        count = len(subscriptions[name].consumers)
        metrics.add("pulsar_subscription_consumers_count", "Consumers of the subscription.", count, **labels)
    for remote, one in stats["replication"].items():
        labels = {**base_labels, "remote_cluster": remote}
        metrics.add_fields(REPLICATOR_FIELDS, one, **labels)
        disconnected = int(not one["connected"])
        help_ = "Replicators that are not connected."
        metrics.add("pulsar_replication_disconnected_count", help_, disconnected, **labels)
    _add_snapshots(metrics, topic, base_labels)
    add_replication(metrics, topic, lags, base_labels)
    _add_quotas(metrics, topic, base_labels)
    return len(stats["subscriptions"]) + len(stats["replication"])


def _add_storage(metrics: Metrics, topic: Topic, base_labels: Mapping[str, str]) -> None:
    """Add how entries are stored and read; nothing for a non-persistent topic."""
    if not topic.keeps_messages:
        return
    now, storing = asyncio.get_running_loop().time(), topic.metrics.storing
    latency, size = storing.latency_us.per_second(now), storing.size_bytes.per_second(now)
    metrics.add("pulsar_storage_write_rate", "Entries stored per second.", size.times, **base_labels)
    read = storing.read_rate(now)
    metrics.add("pulsar_storage_read_rate", "Entries read from the store per second.", read, **base_labels)
    rows = [
        *zip(LATENCY_METRICS, latency.classes, strict=True),
        *zip(SIZE_METRICS, size.classes, strict=True),
        ("pulsar_storage_write_latency_count", latency.times),
        ("pulsar_storage_write_latency_sum", latency.total / 1_000),
        ("pulsar_entry_size_count", size.times),
        ("pulsar_entry_size_sum", size.total),
    ]
    for name, value in rows:
        if name.endswith("_count"):
            help_ = "Entries stored per second."
        elif name.endswith("_sum"):
            of = "sizes (bytes)" if "size" in name else "write latencies (ms)"
            help_ = f"Sum of the {of} of the entries stored per second."
        else:
            help_ = "Entries stored per second in this class of size or latency."
        metrics.add(name, help_, value, **base_labels)


def _add_quotas(metrics: Metrics, topic: Topic, base_labels: Mapping[str, str]) -> None:
    quotas = topic.policies[BACKLOG_QUOTAS]
    size_quota, age_quota = quotas.get(QuotaKind.SIZE), quotas.get(QuotaKind.AGE)
    limit = -1 if size_quota is None else size_quota.limit_bytes
    seconds = -1 if age_quota is None else age_quota.limit_seconds
    metrics.add(
        "pulsar_storage_backlog_quota_limit", "Maximum backlog in bytes; -1: no limit.", limit, **base_labels
    )
    metrics.add(
        "pulsar_storage_backlog_quota_limit_time",
        "Maximum age of the backlog in seconds; -1: no limit.",
        seconds,
        **base_labels,
    )


def _add_snapshots(metrics: Metrics, topic: Topic, base_labels: Mapping[str, str]) -> None:
    if topic.subscriptions.replicated is None:
        return
    summary = topic.subscriptions.replicated.summary()
    prefix = "pulsar_replicated_subscriptions"
    metrics.add(
        f"{prefix}_pending_snapshots",
        "Snapshots of replicated subscriptions in progress.",
        summary["pending"],
        **base_labels,
    )
    metrics.add(
        f"{prefix}_timedout_snapshots_total",
        "Snapshots of replicated subscriptions that timed out.",
        summary["timed_out"],
        **base_labels,
    )
    for name in ("started", "completed", "aborted", "superseded"):
        help_ = f"Snapshots of replicated subscriptions: {name}."
        metrics.add(f"geoemu_snapshots_{name}_total", help_, summary[name], **base_labels)
    for reason, count in sorted(summary["skipped"].items()):
        help_ = "Snapshots that were due and not begun, by reason."
        metrics.add("geoemu_snapshots_skipped_total", help_, count, reason=reason, **base_labels)
    help_ = (
        "Positions from other regions that were not applied, because the subscription is not replicated here."
    )
    not_applied = summary["updates_not_applied"]
    metrics.add("geoemu_subscription_updates_not_applied_total", help_, not_applied, **base_labels)
    _add_individual_acks(metrics, summary, base_labels)


def _add_individual_acks(
    metrics: Metrics, summary: Mapping[str, Any], base_labels: Mapping[str, str]
) -> None:
    for name, help_ in (
        ("updates", "Updates sent with individual acknowledgements."),
        ("received", "Updates received with individual acknowledgements."),
        ("evicted", "Ranges of acknowledged entries and batches that were left out of updates."),
    ):
        count = summary.get(f"individual_{name}", 0)
        metrics.add(f"geoemu_individual_acks_{name}_total", help_, count, **base_labels)
