"""Metrics of a region: under the names that Pulsar's dashboards query, and under `geoemu_…` for what only geoemu has.

Their number is bounded: a limited number of topics have lines of their own, and a metric counts the others. The
sums of the broker (`pulsar_broker_…`) are of all topics in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from emulator import __version__
from emulator.broker.admin import metadata_metrics, stats
from emulator.broker.admin.exposition import MetricFamily
from emulator.broker.admin.transaction_metrics import add_transactions
from emulator.broker.region import Region
from emulator.broker.topic.topic import Topic
from emulator.core.policies.lifetime import BACKLOG_QUOTAS, QuotaKind
from emulator.model.values import TopicName

TOPICS_MAX: Final = 1_000
LINES_MAX: Final = 5_000
"""Subscriptions and replicators with lines of their own, all topics together."""
OF_TOPIC: Final = {
    "pulsar_rate_in": ("msgRateIn", "gauge", "Messages published per second."),
    "pulsar_rate_out": ("msgRateOut", "gauge", "Messages sent to consumers per second."),
    "pulsar_throughput_in": ("msgThroughputIn", "gauge", "Bytes published per second."),
    "pulsar_throughput_out": ("msgThroughputOut", "gauge", "Bytes sent to consumers per second."),
    "pulsar_in_messages_total": ("msgInCounter", "counter", "Messages published."),
    "pulsar_in_bytes_total": ("bytesInCounter", "counter", "Bytes published."),
    "pulsar_out_messages_total": ("msgOutCounter", "counter", "Messages sent to consumers."),
    "pulsar_out_bytes_total": ("bytesOutCounter", "counter", "Bytes sent to consumers."),
    "pulsar_average_msg_size": ("averageMsgSize", "gauge", "Bytes of a published message."),
    "pulsar_storage_size": ("storageSize", "gauge", "Bytes of the topic's log."),
    "pulsar_storage_logical_size": (
        "storageSize",
        "gauge",
        "The same as the logical size: entries are stored once.",
    ),
    "pulsar_storage_backlog_size": ("backlogSize", "gauge", "Bytes of the largest backlog."),
}
LATENCY_CLASSES: Final = tuple(
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
"""Names of the classes of `LATENCY_LIMITS_US`."""
SIZE_CLASSES: Final = tuple(
    f"pulsar_entry_size_le_{one}"
    for one in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
)
OF_SUBSCRIPTION: Final = {
    "pulsar_subscription_back_log": ("msgBacklog", "gauge", "Entries that are not acknowledged."),
    "pulsar_subscription_delayed": ("msgDelayed", "gauge", "Entries that are not due yet."),
    "pulsar_subscription_unacked_messages": (
        "unackedMessages",
        "gauge",
        "Messages sent to consumers and not acknowledged.",
    ),
    "pulsar_subscription_msg_rate_out": ("msgRateOut", "gauge", "Messages sent per second."),
    "pulsar_subscription_msg_throughput_out": ("msgThroughputOut", "gauge", "Bytes sent per second."),
    "pulsar_subscription_last_acked_timestamp": (
        "lastAckedTimestamp",
        "gauge",
        "Time of the last acknowledgement (ms).",
    ),
    "pulsar_subscription_last_consumed_timestamp": (
        "lastConsumedTimestamp",
        "gauge",
        "Time of the last dispatch (ms).",
    ),
    "pulsar_subscription_last_consumed_flow_timestamp": (
        "lastConsumedFlowTimestamp",
        "gauge",
        "Time of the last FLOW of a consumer (ms).",
    ),
    "pulsar_subscription_msg_drop_rate": (
        "msgDropRate",
        "gauge",
        "Messages of a non-persistent topic that no consumer received, per second.",
    ),
    "geoemu_subscription_dropped_messages_total": (
        "msgDropCount",
        "counter",
        "Messages of a non-persistent topic that no consumer received.",
    ),
    "pulsar_subscription_last_mark_delete_advanced_timestamp": (
        "lastMarkDeleteAdvancedTimestamp",
        "gauge",
        "Time of the last mark-delete movement (ms).",
    ),
}
OF_REPLICATOR: Final = {
    "pulsar_replication_rate_in": ("msgRateIn", "gauge", "Messages received from that region per second."),
    "pulsar_replication_rate_out": ("msgRateOut", "gauge", "Messages sent to that region per second."),
    "pulsar_replication_throughput_in": (
        "msgThroughputIn",
        "gauge",
        "Bytes received from that region per second.",
    ),
    "pulsar_replication_throughput_out": (
        "msgThroughputOut",
        "gauge",
        "Bytes sent to that region per second.",
    ),
    "pulsar_replication_backlog": (
        "replicationBacklog",
        "gauge",
        "Entries that the region has not confirmed.",
    ),
    "pulsar_replication_connected_count": ("connected", "gauge", "Replicators that are connected."),
    "geoemu_replication_dropped_messages_total": (
        "msgDropCount",
        "counter",
        "Messages of a non-persistent topic that were never sent to that region.",
    ),
}


class RegionMetrics:
    """Families by name, in the order in which they were first needed."""

    def __init__(self) -> None:
        self.families: dict[str, MetricFamily] = {}

    def add(self, name: str, kind: str, help_: str, value: float, **labels: str) -> None:
        self.family(name, kind, help_).add(value, labels)

    def family(self, name: str, kind: str, help_: str) -> MetricFamily:
        return self.families.setdefault(name, MetricFamily(name, kind, help_))

    def add_all(
        self, rows: Mapping[str, tuple[str, str, str]], shown: Mapping[str, Any], **labels: str
    ) -> None:
        for name, (field, kind, help_) in rows.items():
            if field in shown:
                self.add(name, kind, help_, _number(shown[field]), **labels)


def _number(value: Any) -> float:
    return int(value) if isinstance(value, bool) else value


async def families_of(region: Region) -> list[MetricFamily]:
    """All figures of a region, as they are now."""
    figures, cluster = RegionMetrics(), region.config.region
    topics = [topic for _, topic in sorted(region.directory.serving.items())]
    lines = 0
    sums: Counter[str] = Counter()
    for at, topic in enumerate(topics):
        shown = stats.topic_stats(topic, consumers=False)
        _sum(sums, topic, shown)
        if at < TOPICS_MAX and lines < LINES_MAX:
            lines += _topic(figures, topic, shown, cluster)
            _quotas(figures, region, topic)
        if at % 50 == 49:
            await asyncio.sleep(0)  # others get their turn
    _of_namespaces(figures, region)
    for name, value in sums.items():
        figures.add(f"pulsar_broker_{name}", "gauge", "All loaded topics.", value, cluster=cluster)
    figures.add(
        "geoemu_topics_without_series",
        "gauge",
        "Loaded topics without series of their own.",
        max(0, len(topics) - TOPICS_MAX),
    )
    _of_region(figures, region)
    return list(figures.families.values())


def _sum(sums: Counter[str], topic: Topic, shown: Mapping[str, Any]) -> None:
    sums["topics_count"] += 1
    sums["subscriptions_count"] += len(topic.subscriptions)
    sums["producers_count"] += len(shown["publishers"])
    sums["consumers_count"] += sum(len(one.consumers) for one in topic.subscriptions.values())
    sums["msg_backlog"] += _backlog(shown)
    for name, field in (
        ("rate_in", "msgRateIn"),
        ("rate_out", "msgRateOut"),
        ("throughput_in", "msgThroughputIn"),
        ("throughput_out", "msgThroughputOut"),
        ("storage_size", "storageSize"),
    ):
        sums[name] += shown[field]


def _backlog(shown: Mapping[str, Any]) -> int:
    return sum(one["msgBacklog"] for one in shown["subscriptions"].values())


def _topic(figures: RegionMetrics, topic: Topic, shown: Mapping[str, Any], cluster: str) -> int:
    """How many subscriptions and replicators it has."""
    of = {"cluster": cluster, "namespace": topic.name.full_namespace, "topic": topic.full_name}
    subscriptions = topic.subscriptions
    consumers = sum(len(one.consumers) for one in subscriptions.values())
    gauge = "gauge"
    figures.add("pulsar_producers_count", gauge, "Producers.", len(shown["publishers"]), **of)
    figures.add("pulsar_consumers_count", gauge, "Consumers.", consumers, **of)
    figures.add("pulsar_subscriptions_count", gauge, "Subscriptions.", len(subscriptions), **of)
    figures.add(
        "pulsar_msg_backlog", gauge, "Sum of the backlogs of all subscriptions.", _backlog(shown), **of
    )
    figures.add_all(OF_TOPIC, shown, **of)
    _storing(figures, topic, of)
    figures.add("pulsar_storage_offloaded_size", gauge, "Offloaded bytes: always 0.", 0, **of)
    for name, one in list(shown["subscriptions"].items())[:LINES_MAX]:
        labels = {**of, "subscription": name}
        figures.add_all(OF_SUBSCRIPTION, one, **labels)
        without_delayed = one["msgBacklog"] - one.get("msgDelayed", 0)
        figures.add(
            "pulsar_subscription_back_log_no_delayed",
            gauge,
            "Entries that are due.",
            without_delayed,
            **labels,
        )
        count = len(subscriptions[name].consumers)
        figures.add("pulsar_subscription_consumers_count", gauge, "Its consumers.", count, **labels)
    for remote, one in shown["replication"].items():
        labels = {**of, "remote_cluster": remote}
        figures.add_all(OF_REPLICATOR, one, **labels)
        away = int(not one["connected"])
        help_ = "Replicators that are not connected."
        figures.add("pulsar_replication_disconnected_count", gauge, help_, away, **labels)
    _snapshots(figures, topic, of)
    return len(shown["subscriptions"]) + len(shown["replication"])


def _storing(figures: RegionMetrics, topic: Topic, of: Mapping[str, str]) -> None:
    """How entries are written and read; nothing of a topic that keeps none."""
    if not topic.keeps_messages:
        return
    now, storing = asyncio.get_running_loop().time(), topic.metrics.storing
    latency, size = storing.latency_us.per_second(now), storing.size_bytes.per_second(now)
    figures.add("pulsar_storage_write_rate", "gauge", "Entries stored per second.", size.times, **of)
    read = storing.read_rate(now)
    figures.add("pulsar_storage_read_rate", "gauge", "Entries read from the store per second.", read, **of)
    rows = [
        *zip(LATENCY_CLASSES, latency.classes, strict=True),
        *zip(SIZE_CLASSES, size.classes, strict=True),
        ("pulsar_storage_write_latency_count", latency.times),
        ("pulsar_storage_write_latency_sum", latency.total / 1_000),
        ("pulsar_entry_size_count", size.times),
        ("pulsar_entry_size_sum", size.total),
    ]
    for name, value in rows:
        unit = (
            "their bytes"
            if "size_sum" in name
            else "their milliseconds"
            if "_sum" in name
            else "their number"
        )
        figures.add(
            name, "gauge", f"Of the entries stored per second: {unit}, by the unit in its name.", value, **of
        )


def _quotas(figures: RegionMetrics, region: Region, topic: Topic) -> None:
    of = {"cluster": region.config.region, "namespace": topic.name.full_namespace, "topic": topic.full_name}
    quotas = topic.policies[BACKLOG_QUOTAS]
    size_quota, age_quota = quotas.get(QuotaKind.SIZE), quotas.get(QuotaKind.AGE)
    limit = -1 if size_quota is None else size_quota.limit_bytes
    seconds = -1 if age_quota is None else age_quota.limit_seconds
    figures.add("pulsar_storage_backlog_quota_limit", "gauge", "Bytes; -1: any.", limit, **of)
    figures.add("pulsar_storage_backlog_quota_limit_time", "gauge", "Seconds; -1: any.", seconds, **of)


def _snapshots(figures: RegionMetrics, topic: Topic, of: Mapping[str, str]) -> None:
    if topic.subscriptions.replicated is None:
        return
    counted = topic.subscriptions.replicated.summary()
    prefix = "pulsar_replicated_subscriptions"
    figures.add(f"{prefix}_pending_snapshots", "gauge", "Under way.", counted["pending"], **of)
    figures.add(
        f"{prefix}_timedout_snapshots_total", "counter", "That timed out.", counted["timed_out"], **of
    )
    for name in ("started", "completed", "aborted", "superseded"):
        help_ = f"Snapshots of replicated subscriptions: {name}."
        figures.add(f"geoemu_snapshots_{name}_total", "counter", help_, counted[name], **of)
    for reason, count in sorted(counted["skipped"].items()):
        help_ = "Snapshots that were due and not begun, by reason."
        figures.add("geoemu_snapshots_skipped_total", "counter", help_, count, reason=reason, **of)
    help_ = "Positions of other regions for subscriptions that are not replicated here."
    not_applied = counted["updates_not_applied"]
    figures.add("geoemu_subscription_updates_not_applied_total", "counter", help_, not_applied, **of)


def _of_namespaces(figures: RegionMetrics, region: Region) -> None:
    """Topics in memory or not."""
    names = Counter(TopicName.parse(name).full_namespace for name in region.directory.all_names())
    for namespace, count in sorted(names.items())[:TOPICS_MAX]:
        labels = {"cluster": region.config.region, "namespace": namespace}
        figures.add("pulsar_topics_count", "gauge", "Topics, loaded or not.", count, **labels)


def _of_region(figures: RegionMetrics, region: Region) -> None:
    cluster = {"cluster": region.config.region}
    figures.add("pulsar_version_info", "gauge", "Of geoemu.", 1, **cluster, version=__version__)
    figures.add(
        "pulsar_active_connections", "gauge", "Of clients.", len(region.clients.connections), **cluster
    )
    for name, peer in sorted(region.peers.items()):
        connected = int(peer.connected)
        figures.add(
            "geoemu_link_connected", "gauge", "1: the link is up.", connected, **cluster, remote_cluster=name
        )
    for name, value, help_ in _exclusive(region):
        kind = "counter" if name.endswith("_total") else "gauge"
        figures.add(f"geoemu_exclusive_{name}", kind, help_, value)
    for name, topic in sorted(region.directory.serving.items())[:TOPICS_MAX]:
        if topic.access.waiting_count:
            help_ = "Producers that wait for exclusive access, by topic."
            figures.add("geoemu_exclusive_waiting", "gauge", help_, topic.access.waiting_count, topic=name)
    add_transactions(figures.family, region)
    for name, kind, help_, value in metadata_metrics.figures_of(region):
        figures.add(name, kind, help_, value)
    figures.add(
        "geoemu_memory_bytes",
        "gauge",
        "Bytes held for clients and for other purposes.",
        region.resources.memory.held_bytes,
    )


def _exclusive(region: Region) -> Iterator[tuple[str, float, str]]:
    counted = region.resources.access_figures
    waiting = sum(topic.access.waiting_count for topic in region.directory.serving.values())
    yield "waiting_sum", waiting, "Producers that wait for exclusive access, all topics."
    yield (
        "promotions_total",
        counted.promotions,
        "Producers that were promoted from the wait queue.",
    )
    yield (
        "fences_total",
        counted.fences,
        "Producers that lost a topic, or their place in the wait queue, by fencing.",
    )
    yield (
        "ownerless_seconds_total",
        counted.ownerless_seconds,
        "Seconds that producers waited for topics without an owner.",
    )
