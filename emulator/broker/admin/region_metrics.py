"""All metrics of a region.

Their number is bounded: at most TOPICS_MAX topics, with about SERIES_MAX subscriptions and replicators, have series of
their own. The sums of the broker (`pulsar_broker_…`) include all loaded topics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from emulator import __version__
from emulator.broker.admin import stats
from emulator.broker.admin.exposition import MetricFamily, Metrics
from emulator.broker.admin.replication_metrics import lags_of
from emulator.broker.admin.topic_metrics import SERIES_MAX, add_to_sums, add_topic
from emulator.broker.metadata_sync.settings import differences
from emulator.broker.region import Region
from emulator.broker.transactions.coordinator import RunningCoordinator
from emulator.model.transaction_names import full_text
from emulator.model.values import TopicName
from emulator.net.http_connections import HttpConnections

TOPICS_MAX: Final = 1_000
"""Maximum number of topics, and of namespaces, with series of their own."""


async def families_of(region: Region) -> list[MetricFamily]:
    """Return all metrics of a region, as they are now."""
    metrics, cluster = Metrics(), region.config.region
    topics = [topic for _, topic in sorted(region.directory.serving.items())]
    with_series = series = 0
    sums: Counter[str] = Counter()
    for index, topic in enumerate(topics):
        topic_stats = stats.topic_stats(topic, consumers=False)
        add_to_sums(sums, topic, topic_stats)
        if index < TOPICS_MAX and series < SERIES_MAX:
            with_series += 1
            series += add_topic(metrics, topic, topic_stats, await lags_of(topic), cluster)
        if index % 50 == 49:
            await asyncio.sleep(0)  # let other tasks run
    _add_namespaces(metrics, region)
    for name, value in sums.items():
        metrics.add(f"pulsar_broker_{name}", "Sum over all loaded topics.", value, cluster=cluster)
    omitted = len(topics) - with_series
    metrics.add("geoemu_topics_without_series", "Loaded topics without series of their own.", omitted)
    _add_region(metrics, region)
    return list(metrics.families.values())


def _add_namespaces(metrics: Metrics, region: Region) -> None:
    """Add the number of topics of each namespace."""
    names = Counter(TopicName.parse(name).full_namespace for name in region.directory.all_names())
    for namespace, count in sorted(names.items())[:TOPICS_MAX]:
        labels = {"cluster": region.config.region, "namespace": namespace}
        metrics.add("pulsar_topics_count", "Topics, loaded or not.", count, **labels)


def _add_region(metrics: Metrics, region: Region) -> None:
    cluster = {"cluster": region.config.region}
    metrics.add(
        "pulsar_version_info", "1; the label is the version of geoemu.", 1, **cluster, version=__version__
    )
    metrics.add(
        "pulsar_active_connections",
        "Connections of clients and of other regions.",
        len(region.clients.connections),
        **cluster,
    )
    for name, peer in sorted(region.peers.items()):
        connected = int(peer.connected)
        metrics.add(
            "geoemu_link_connected",
            "1 if the link to the other region is connected, else 0.",
            connected,
            **cluster,
            remote_cluster=name,
        )
    serving, access, prefix = region.directory.serving, region.resources.access_figures, "geoemu_exclusive"
    waiting = sum(len(topic.access.machine.queue) for topic in serving.values())
    metrics.add(f"{prefix}_waiting_sum", "Producers that wait for exclusive access, all topics.", waiting)
    help_promoted = "Producers that were promoted from the wait queue."
    metrics.add(f"{prefix}_promotions_total", help_promoted, access.promotions)
    help_fenced = "Producers that lost a topic, or their place in the wait queue, by fencing."
    metrics.add(f"{prefix}_fences_total", help_fenced, access.fences)
    help_ownerless = "Seconds that producers waited for topics without an owner."
    metrics.add(f"{prefix}_ownerless_seconds_total", help_ownerless, access.ownerless_seconds)
    for name, topic in sorted(serving.items())[:TOPICS_MAX]:
        if len(topic.access.machine.queue):
            help_ = "Producers that wait for exclusive access, by topic."
            metrics.add("geoemu_exclusive_waiting", help_, len(topic.access.machine.queue), topic=name)
    _add_transactions(metrics, region)
    for (method, reason), count in sorted(region.resources.refused_authentications.counts.items()):
        metrics.add(
            "geoemu_refused_authentications_total",
            "Connections and requests whose credentials were refused, and links that TLS ended.",
            count,
            method=method,
            reason=reason,
        )
    _add_http(metrics, region.resources.http_connections)
    if region.authorizer is not None:
        for permission, count in region.authorizer.refusals.items():
            metrics.add(
                "geoemu_refused_authorizations_total",
                "Commands and requests that were refused, by the permission that the role lacks.",
                count,
                permission=permission.name.lower(),
            )
    for name, help_, value in metadata_metrics(region):
        metrics.add(name, help_, value)
    clients = region.resources.clients
    help_ = (
        "Bytes that clients hold: publishes that are not durable, incomplete frames, unsent bytes, requests."
    )
    metrics.add("geoemu_clients_memory_bytes", help_, clients.held_bytes)
    help_ = "Connections that are not read, because clients hold more memory than clients_bytes_max."
    metrics.add("geoemu_clients_memory_paused", help_, len(clients.paused))
    help_ = "Clients that were disconnected, because they did not release the memory that the region lacked."
    metrics.add("geoemu_clients_memory_disconnected_total", help_, clients.disconnected)
    metrics.add(
        "geoemu_memory_bytes",
        "Bytes that the region's memory budgets count.",
        region.resources.memory.held_bytes,
    )


def _add_http(metrics: Metrics, connections: HttpConnections) -> None:
    metrics.add("geoemu_http_connections", "Connections to the HTTP ports.", len(connections))
    help_ = "HTTP connections at a limit: without a request and closed to make room (displaced), or refused."
    for outcome, count in (("displaced", connections.displaced), ("refused", connections.refused)):
        metrics.add("geoemu_http_connections_ended_total", help_, count, outcome=outcome)


# Transactions and transaction keys, with the names of Pulsar and of the proposal.

_COORDINATOR_METRICS: tuple[tuple[str, str, Callable[[RunningCoordinator], int]], ...] = (
    ("pulsar_txn_active_count", "Open transactions.", lambda coordinator: len(coordinator.core.live)),
    ("pulsar_txn_created_total", "Transactions created.", lambda coordinator: coordinator.figures.created),
    (
        "pulsar_txn_committed_total",
        "Transactions committed.",
        lambda coordinator: coordinator.figures.committed,
    ),
    ("pulsar_txn_aborted_total", "Transactions aborted.", lambda coordinator: coordinator.figures.aborted),
    (
        "pulsar_txn_timeout_total",
        "Transactions aborted by time-out.",
        lambda coordinator: coordinator.figures.timed_out,
    ),
)


def _add_transactions(metrics: Metrics, region: Region) -> None:
    """Add the metrics of transactions; nothing if transactions are not enabled."""
    loaded, here = region.coordinators.loaded, {"cluster": region.config.region}
    if not loaded:
        return
    for name, help_, value_of in _COORDINATOR_METRICS:
        for coordinator in loaded:
            metrics.family(name, help_).add(
                value_of(coordinator), {**here, "coordinator_id": str(coordinator.number)}
            )
    _add_participants(metrics, region, here)
    _add_keys(metrics, region, loaded, here)


def _add_participants(metrics: Metrics, region: Region, here: dict[str, str]) -> None:
    """Add the metrics of transactions in loaded topics and subscriptions."""
    topics = region.directory.serving.values()
    pending = [one.pending_acks for topic in topics for one in topic.subscriptions.values()]
    help_ = "Open transactions of all topics."
    open_count = sum(len(topic.state.buffer.open) for topic in topics)
    metrics.family("pulsar_txn_tb_active_total", help_, "gauge").add(open_count, here)
    help_entries = "Entries with pending individual acknowledgements."
    entries = sum(len(one.acks) for one in pending if one is not None)
    metrics.family("geoemu_txn_pending_ack_entries", help_entries).add(entries, here)


def _add_keys(
    metrics: Metrics, region: Region, loaded: list[RunningCoordinator], here: dict[str, str]
) -> None:
    states = [state for coordinator in loaded for state in coordinator.keys.book.keys.values()]
    metrics.family("pulsar_txn_transaction_key_count", "Transaction keys in use.").add(len(states), here)
    newest = sorted(states, key=lambda state: (-state.since_ms, state.owner, state.key))
    epoch = metrics.family("pulsar_txn_transaction_key_epoch", "The newest epoch of a transaction key.")
    help_age = "Seconds for which epochs of a transaction key were the newest."
    age = metrics.family("pulsar_txn_transaction_key_age", help_age, "summary")
    now_ms = region.environment.wall_clock_ms()
    for state in newest[: region.config.settings.transaction_key_labels_max]:
        labels = {**here, "transaction_key": full_text(state.owner, state.key)}
        epoch.add(state.epoch, labels)
        age.add(round(max(0, now_ms - state.created_ms) / 1_000, 3), labels, "_sum")
        age.add(state.epoch - state.first_epoch + 1, labels, "_count")


# Metadata events between clusters.


def metadata_metrics(region: Region) -> Iterator[tuple[str, str, float]]:
    """Yield name, help and value of each metric of metadata synchronisation (PIP-136); nothing if it is not enabled."""
    synchronizer = region.synchronizer
    if synchronizer is None:
        return
    metrics, leader = synchronizer.metrics, synchronizer.leader
    for name, help_, value in (
        ("sent", "Metadata events that this region published to other clusters.", metrics.sent),
        ("applied", "Metadata events of other clusters that were applied here.", metrics.won),
        ("lost", "Metadata events of other clusters that lost to a later one.", metrics.lost),
        (
            "undone",
            "Changes of this cluster that lost to one of a cluster that had not received them.",
            metrics.undone,
        ),
        (
            "refused",
            "Messages of the event topic that are not valid events of their sender.",
            metrics.refused,
        ),
        (
            "ahead",
            "Metadata events further in the future than metadata_sync_clock_ahead_ms_max.",
            metrics.from_the_future,
        ),
    ):
        yield f"geoemu_metadata_events_{name}_total", help_, value
    help_ = "Rows of metadata sync in the configuration store that could not be decoded."
    yield "geoemu_metadata_rows_damaged_total", help_, synchronizer.damage.count
    help_ = "Unexpected errors after which metadata sync was restarted."
    yield "geoemu_metadata_sync_failures_total", help_, metrics.failures
    help_ = "1 if this region is the sync leader of its cluster."
    yield "geoemu_metadata_sync_leader", help_, 0 if leader is None else 1
    help_ = "Messages of the event topic that this region has not applied yet."
    backlog = 0 if leader is None else leader.channel.backlog
    yield "geoemu_metadata_events_backlog", help_, backlog
    help_ = "Clusters whose metadata_sync_excluded_paths differ from this one's."
    others = sum(1 for _ in differences(region.metadata, synchronizer.settings))
    yield "geoemu_metadata_clusters_with_other_exclusions", help_, others
    help_ = "Delay between the newest applied change of another cluster and its application, by the clocks."
    yield "geoemu_metadata_lag_seconds", help_, round(metrics.lag_ms / 1000, 3)
