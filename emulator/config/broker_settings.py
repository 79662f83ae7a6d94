"""The settings of a region's broker, a plain frozen dataclass: their names in topologies, their defaults and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of a region. Defaults are Pulsar's where Pulsar has the setting."""

    max_message_bytes: int = 5_242_880
    keep_alive_interval_ms: int = 30_000
    """Interval of PING; a connection without a response for another interval is closed."""
    peer_keep_alive_interval_ms: int = 1_000
    """The same for connections between regions."""
    peer_reconnect_backoff_ms: int = 50
    peer_reconnect_backoff_ms_max: int = 250
    replication_window_entries: int = 4_000
    replication_window_bytes: int = 8_388_608
    snapshot_interval_ms: int = 1_000
    """PIP-33: interval at which subscription snapshots are attempted while there is traffic."""
    snapshot_timeout_ms: int = 30_000
    """Time after which a snapshot that lacks a response is dropped."""
    snapshot_timeout_growth_max: int = 8
    """Maximum factor by which the timeout grows while snapshots time out although links are up. 1: it never grows."""
    snapshot_cache_size: int = 30
    """Size of the snapshot cache of a replicated subscription."""
    snapshot_schedule: Literal["periodic", "adaptive"] = "periodic"
    """periodic: at the interval while there is traffic. adaptive: earlier when traffic pauses or consumers have
    caught up, for at most a tenth more entries, and later when no subscription would gain from a snapshot."""
    replicated_subscriptions: bool = True
    """Whether the region replicates subscriptions at all. Off, as with upstream's `enableReplicatedSubscriptions`:
    requests of clients are ignored, those of administrators refused, and snapshots of other regions get no response."""
    replicate_subscription_state: bool = False
    """Whether every durable subscription is replicated, also if its consumers do not request it."""
    partial_snapshots_after: str = ""
    """Absence of a region after which snapshots continue without it: 10m. Its messages then stay unacknowledged
    in other regions. Empty: never."""
    replicate_individual_acks: bool = False
    """Whether entries that a replicated subscription acknowledged beyond its position are sent to other regions, so
    that they are not delivered again there."""
    individual_ack_interval_ms: int = 200
    """Minimum time between two such updates of a subscription."""
    individual_acks_max: int = 1_000
    """Maximum number of ranges of entries and of partly acknowledged batches in such an update."""
    failover_delay_ms: int = 1_000
    """Delay before a newly active Failover consumer receives messages."""
    max_unacked_messages_per_consumer: int = 50_000
    region_tail_bytes: int = 67_108_864
    """Memory for the newest entries of all topics of the region, so that consumers that keep up need no
    disk reads."""
    state_checkpoint_entries: int = 10_000
    """Maximum number of entries that a restart reads again to rebuild deduplication and replication state."""
    exclusive_grace_period_ms: int = 5_000
    """Time after a restart or an unload for which a topic is reserved for its exclusive producer, and waiting
    producers keep their order. 0: the first producer that connects becomes the owner."""
    allow_auto_topic_creation: bool = True
    proxy_through_service_url: bool = False
    """Whether clients keep using their service URL after a lookup, instead of connecting to the advertised address, as
    with Pulsar's standalone broker. Needed if clients reach the region through mapped ports that it does not know."""
    transaction_coordinators: int = 4
    """0: transactions are not enabled. Cannot change while there are transaction keys."""
    transaction_timeout_ms_max: int = 86_400_000
    """Maximum time that a transaction may be open."""
    transactions_open_max: int = 10_000
    """Maximum of open transactions per coordinator."""
    transaction_participants_max: int = 1_000
    """Maximum of topics and subscriptions of one transaction."""
    transaction_outcomes_max: int = 10_000
    """Outcomes of ended transactions that each coordinator remembers, so that a client can repeat a request
    whose response it lost."""
    transaction_outcome_ms: int = 900_000
    """Time for which each outcome is remembered."""
    transaction_keys_max: int = 10_000
    """Maximum of transaction keys per coordinator."""
    transaction_key_labels_max: int = 100
    """Number of newest transaction keys with metrics of their own."""
    schema_bytes_max: int = 262_144
    """Maximum size of a schema: data and properties."""
    schema_versions_max: int = 256
    """Maximum of schema versions per topic, deletions included."""
    housekeeping_interval_ms: int = 1_000
    """Interval of trimming, expiry and quota checks."""
    connections_max: int = 0
    """Maximum of clients' connections; other regions do not count. 0: unlimited."""
    connections_per_host_max: int = 0
    """Maximum of clients' connections from one address. 0: unlimited."""
    clients_bytes_max: int = 536_870_912
    """Memory of all clients' connections together: publishes that are not durable, incomplete frames, unsent bytes.
    Above it, connections that hold more than 64 KiB are not read until half is free. 0: unlimited."""
    http_connections_max: int = 2_048
    """Maximum of connections to the HTTP ports. Above it, the one that has waited longest for a request is closed.
    0: unlimited."""
    http_connections_per_host_max: int = 1_024
    """The same for the connections from one address. 0: unlimited."""
    failed_authentications_per_host_max: int = 0
    """Maximum of wrong credentials from one address per minute. Above it, the region refuses further credentials of the
    address without reading them. 0: unlimited."""
    producers_per_connection_max: int = 100_000
    """Maximum of producers of one connection, waiting ones included. 0: unlimited."""
    consumers_per_connection_max: int = 100_000
    """Maximum of consumers of one connection. 0: unlimited."""
    tenants_max: int = 0
    """Maximum of tenants; one more is refused. 0: unlimited."""
    namespaces_per_tenant_max: int = 0
    """Maximum of namespaces of a tenant. 0: unlimited."""
    topics_per_tenant_max: int = 0
    """Maximum of topics of a tenant in the region, each partition counted. 0: unlimited."""
    topic_idle_ms: int = 60_000
    """Time without use after which a topic is unloaded. 0: never."""
    configuration_metadata_sync_event_topic: str = ""
    """PIP-136: the event topic through which clusters synchronise tenants, namespaces and policies. The
    same in all clusters. Empty: no synchronisation."""
    metadata_sync_event_topic: str = ""
    """PIP-136's event topic of a local store. Refused: local state of a region, such as cursors, means
    nothing in another one."""
    metadata_sync_excluded_paths: str = ""
    """Prefixes of paths that are not synchronised, separated by commas: namespace/acme/."""
    metadata_sync_hybrid_clocks: bool = False
    """Order changes by hybrid logical clocks: a change that follows another one counts as later, regardless
    of wall clocks."""
    metadata_sync_lost_clusters: str = ""
    """Clusters that will not return, separated by commas: tombstones are not kept for them. `geoemu lose
    --cluster` does the same."""
    metadata_sync_requires_event_topic: bool = False
    """Refuse changes while the event topic is unavailable. Otherwise they are made at once and published
    later."""
    metadata_sync_clock_ahead_ms_max: int = 300_000
    """Maximum time by which a change may be ahead of a cluster's clock. A change from further ahead is applied,
    but any later change of the same path overrides it, and no clock advances to it."""
