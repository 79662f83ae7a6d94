"""The configuration of one region at its start: `region.json`, written by a runtime, read by `broker.main`.

This module contains plain frozen dataclasses and imports little, because each start of a region loads it.
`topology.region_config` creates them from a topology; users do not write them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from emulator.config.compatibility import Compatibility
from emulator.config.security import NO_SECURITY, SecurityConfig
from emulator.model.frame_faults import FrameFault
from emulator.model.values import HEALTHY, DiskCondition

REGION_CONFIG_VERSION = 3
LINK_PERIOD_MS_MIN = 10
"""Least period of stalls and of flapping."""
CLOCK_AHEAD_MS_MAX = 86_400_000
"""Maximum clock offset, a day: a larger one is probably meant in another unit."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """One direction of a link."""

    latency_ms: float = 0.0
    """One-way latency of every byte."""
    jitter_ms: float = 0.0
    """Maximum of the additional random delay, uniformly distributed; bytes never overtake each other."""
    bandwidth_bytes_per_second: int | None = None
    """None: unlimited."""
    state: str = "up"
    """up: traffic passes. held: traffic and connection attempts wait. cut: traffic is dropped, attempts fail."""
    stall_every_ms: float = 0.0
    """Interval between the beginnings of two stalls; more than `stall_ms`. 0: no stalls."""
    stall_ms: float = 0.0
    """Length of each stall, during which bytes and connection attempts wait."""
    flap_period_ms: float = 0.0
    """Period of a flapping link. 0: the link does not flap."""
    flap_up: float = 1.0
    """Part of each period, above 0, at whose beginning the link is up; it is cut for the rest."""
    frame_faults: tuple[FrameFault, ...] = ()
    """Armed faults of single frames, oldest first."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> LinkShape:
        """Parse the fields of a shape. Raises TypeError or ValueError for anything else."""
        faults = tuple(map(FrameFault.from_json, raw.get("frame_faults", ())))
        return cls(**{**raw, "frame_faults": faults})

    def changed(self, changes: Mapping[str, Any]) -> LinkShape:
        """Return the shape with other values of these fields. `arm`, which is no field, adds a fault of frames."""
        fields = dict(changes)
        fault = fields.pop("arm", None)
        if fault is not None:
            newest = max((one.number for one in self.frame_faults), default=0)
            fault = dataclasses.replace(fault, number=fault.number or newest + 1)
            fields["frame_faults"] = (*self.frame_faults, fault)
        return dataclasses.replace(self, **fields)

    def check(self) -> None:
        """Raise ValueError if stalls leave no time between them, or a period is too short for the timers of regions."""
        for what, period_ms in (("stalls", self.stall_every_ms), ("flaps", self.flap_period_ms)):
            if 0 < period_ms < LINK_PERIOD_MS_MIN:
                raise ValueError(
                    f"a link that {what} every {period_ms:g} ms: the least period is {LINK_PERIOD_MS_MIN} ms"
                )
        if self.stall_ms and self.stall_ms >= self.stall_every_ms:
            raise ValueError(
                f"a stall of {self.stall_ms:g} ms every {self.stall_every_ms:g} ms leaves no time between stalls"
            )


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """Another region: its address and its links with this region."""

    region: str
    cluster: str
    host: str
    port: int
    """0: the peer has no port without TLS."""
    outbound: LinkShape = LinkShape()
    """Link from this region to the peer."""
    inbound: LinkShape = LinkShape()
    """Link from the peer to this region. The region that opened a connection emulates both directions."""
    port_tls: int = 0
    """0: the peer has no port with TLS, and the link uses `port`."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to which the link connects."""
        return self.host, self.port_tls or self.port

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PeerConfig:
        return cls(**{**raw, **{way: LinkShape.from_json(raw[way]) for way in ("outbound", "inbound")}})


@dataclass(frozen=True, slots=True)
class PulsarPeerConfig:
    """A real Pulsar cluster that may replicate into this region, with its declared permissions only."""

    name: str
    """Name of the cluster, which its messages contain as `replicated_from`."""
    token: str
    """Token that its brokers send (`brokerClientAuthenticationParameters`, token authentication)."""
    may: tuple[str, ...] = ()
    """Permissions besides sending messages: values of `core.admission.PeerPermission`."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PulsarPeerConfig:
        return cls(**{**raw, "may": tuple(raw["may"])})


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """A namespace and its policies at start."""

    name: str
    """`tenant/namespace`."""
    regions: tuple[str, ...]
    """Regions between which it is replicated; one region: no replication."""
    deduplication: bool | None = False
    """None: not set, so that the region's default applies."""
    keep_alive_interval_ms: int = 0
    exclusive_home: str = ""
    retention_minutes: int = -1
    retention_megabytes: int = -1
    """Size per topic of retained messages that all subscriptions have acknowledged; -1: no limit."""
    message_ttl_seconds: int = 0
    """0: messages do not expire."""
    policies: dict[str, Any] = field(default_factory=dict)
    """Further policies at start, as JSON by name."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> NamespaceConfig:
        return cls(**{**raw, "regions": tuple(raw["regions"])})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The storage backend of a region's logs and keys."""

    backend: str = "sqlite"
    """memory, sqlite or kafka."""
    path: str = ""
    """sqlite: path of the database file."""
    bootstrap_servers: str = ""
    """kafka: host:port[,host:port...]."""
    options: dict[str, Any] = field(default_factory=dict)
    """kafka: fields of `storage.kafka.settings.Options`, such as TLS, SASL and the topic prefix."""


@dataclass(frozen=True, slots=True)
class ConfigurationConfig:
    """The configuration store of the region's cluster."""

    path: str = ""
    """SQLite file that all regions of the cluster open. Empty: the region has its own store, in memory."""
    deliveries: str = ""
    """File to which the region writes the changes that it receives from the store, one JSON object per line. Empty:
    none."""


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
    replication_window_entries: int = 1_000
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
    exclusive_patience_ms: int = 5_000
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


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """The content of `region.json`."""

    region: str
    cluster: str
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    """Host that lookups return to clients. Empty: the address to which the client connected."""
    service_port: int = 0
    admin_port: int = 0
    advertised_service_port: int = 0
    """0: the same as service_port (they differ when a container publishes another port)."""
    advertised_admin_port: int = 0
    service_port_tls: int = 0
    """Ports with TLS, if `security.tls` is set."""
    admin_port_tls: int = 0
    advertised_service_port_tls: int = 0
    advertised_admin_port_tls: int = 0
    internal_host: str = ""
    """Host that lookups return to connections to `internal_port`, of clients and peers in a network of containers.
    Empty: the region has no such port."""
    internal_port: int = 0
    internal_port_tls: int = 0
    admin_hosts: tuple[str, ...] = ()
    """Additional host names under which the HTTP port accepts changes."""
    log: LogConfig = LogConfig()
    configuration: ConfigurationConfig = ConfigurationConfig()
    settings: BrokerSettings = BrokerSettings()
    tenants: tuple[str, ...] = ("public",)
    """Initial tenants of a new configuration store, which the first region of the cluster writes with `namespaces`."""
    namespaces: tuple[NamespaceConfig, ...] = ()
    broker_policies: dict[str, Any] = field(default_factory=dict)
    """Policies, as JSON by name, that apply where neither the configuration store nor a namespace or topic sets
    them, like the settings in the configuration file of Pulsar's brokers."""
    peers: tuple[PeerConfig, ...] = ()
    to_clients: LinkShape = LinkShape()
    """Link from this region to its clients."""
    from_clients: LinkShape = LinkShape()
    """Link from its clients to this region."""
    pulsar_peers: tuple[PulsarPeerConfig, ...] = ()
    run_secret: str = ""
    """Secret with which the regions of a run authenticate each other. Empty: they cannot."""
    security: SecurityConfig = NO_SECURITY
    """`tls`: the region also listens on ports with TLS, and its links to peers use them."""
    compatibility: dict[str, str] = field(default_factory=dict)
    """Named switches to upstream's behaviour where the proposals differ; see docs/PROTOCOL.md."""
    clock_ahead_ms: int = 0
    """Offset of the wall clock from the machine's at `clock_set_at_ms`; negative: behind."""
    clock_drift_ppm: float = 0.0
    """Microseconds per second by which the offset grows."""
    clock_set_at_ms: int = 0
    """Time of the machine's clock at which the offset was set, in ms since 1970."""
    disk: DiskCondition = HEALTHY
    """State of the region's disk, once the region has recorded its start."""
    log_format: str = "text"
    """Format of the log: text or json."""
    ready_file: str = ""
    """File that the region writes atomically once it listens: JSON with pid and ports. Empty: none."""
    owner_pid: int = 0
    """Process after whose end the region stops. 0: none."""
    version: int = REGION_CONFIG_VERSION

    @property
    def has_plain_ports(self) -> bool:
        """Whether the ports without TLS are open."""
        return self.security.tls is None or self.security.tls.plain_ports

    def to_json(self) -> str:
        """Return the text of `region.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RegionConfig:
        """Inverse of `to_json`. Raises ValueError if the text has another version or is damaged."""
        raw = json.loads(text)
        found = raw.get("version") if isinstance(raw, dict) else None
        if found != REGION_CONFIG_VERSION:
            raise ValueError(
                f"region config has version {found}, this geoemu reads version {REGION_CONFIG_VERSION}: "
                "start a new run, or use the geoemu that wrote it"
            )
        try:
            Compatibility(raw["compatibility"])
            return cls(
                **{
                    **raw,
                    "log": LogConfig(**raw["log"]),
                    "configuration": ConfigurationConfig(**raw["configuration"]),
                    "settings": BrokerSettings(**raw["settings"]),
                    "admin_hosts": tuple(raw["admin_hosts"]),
                    "tenants": tuple(raw["tenants"]),
                    "namespaces": tuple(map(NamespaceConfig.from_json, raw["namespaces"])),
                    "pulsar_peers": tuple(map(PulsarPeerConfig.from_json, raw["pulsar_peers"])),
                    "peers": tuple(map(PeerConfig.from_json, raw["peers"])),
                    "to_clients": LinkShape.from_json(raw.get("to_clients", {})),
                    "from_clients": LinkShape.from_json(raw.get("from_clients", {})),
                    "security": SecurityConfig.from_json(raw.get("security", {})),
                    "disk": DiskCondition(**raw.get("disk", {})),
                }
            )
        except (TypeError, KeyError) as problem:
            raise ValueError(f"region config: {problem}") from problem

    @classmethod
    def load(cls, path: Path) -> RegionConfig:
        """Read `region.json`. Raises ValueError, which names the file, if it has another version or is damaged."""
        try:
            return cls.from_json(path.read_text())
        except ValueError as problem:
            raise ValueError(f"{path}: {problem}") from None
