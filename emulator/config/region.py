"""The configuration of one region at its start: `region.json`, written by a runtime, read by `broker.main`.

Plain frozen dataclasses and the standard library only: this module is part of every region's start-up time.
A topology is turned into these by `topology.region_config`; a person never writes them by hand.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.config.compatibility import Compatibility

REGION_CONFIG_VERSION = 3
CLOCK_AHEAD_MS_MAX = 86_400_000
"""A day: what is further off was meant in another unit."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """One direction of a link."""

    latency_ms: float = 0.0
    """One way, added to every byte."""
    jitter_ms: float = 0.0
    """Uniform extra delay of 0..jitter_ms; bytes never overtake each other."""
    bandwidth_bytes_per_second: int | None = None
    """None: unlimited."""
    state: str = "up"
    """up: bytes flow. held: bytes and connection attempts wait. cut: nothing passes, attempts fail."""


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """Another region, as seen from this one."""

    region: str
    cluster: str
    host: str
    port: int
    outbound: LinkShape = LinkShape()
    """This region -> peer."""
    inbound: LinkShape = LinkShape()
    """Peer -> this region. Each connection is shaped by the side that dialled it, in both directions."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PeerConfig:
        return cls(**{**raw, **{way: LinkShape(**raw[way]) for way in ("outbound", "inbound")}})


@dataclass(frozen=True, slots=True)
class PulsarPeerConfig:
    """A real Pulsar cluster that may replicate into this region. Its word counts for what was declared, no more."""

    name: str
    """The cluster's name: what its messages say that they were replicated from."""
    token: str
    """What its brokers send as `brokerClientAuthenticationParameters` (token authentication)."""
    may: tuple[str, ...] = ()
    """What it may do besides sending messages: values of `core.admission.Permission`."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PulsarPeerConfig:
        return cls(**{**raw, "may": tuple(raw["may"])})


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """A namespace and its policies at start."""

    name: str
    """`tenant/namespace`."""
    regions: tuple[str, ...]
    """Regions it is replicated between; the region itself alone means no replication."""
    deduplication: bool = False
    keep_alive_interval_ms: int = 0
    exclusive_home: str = ""
    retention_minutes: int = -1
    retention_megabytes: int = -1
    """Of what all subscriptions have acknowledged; -1: no limit."""
    message_ttl_seconds: int = 0
    """0: messages do not expire."""

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> NamespaceConfig:
        return cls(**{**raw, "regions": tuple(raw["regions"])})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Which backend keeps the region's log."""

    backend: str = "sqlite"
    """memory, sqlite or kafka."""
    path: str = ""
    """sqlite: the database file."""
    bootstrap_servers: str = ""
    """kafka: host:port[,host:port...]."""
    options: dict[str, Any] = field(default_factory=dict)
    """kafka: client settings passed through (TLS, SASL), topic prefix."""


@dataclass(frozen=True, slots=True)
class ConfigurationConfig:
    """Where the configuration store of the region's cluster is."""

    path: str = ""
    """A SQLite file that all regions of the cluster open. Empty: in memory, this region's alone."""
    deliveries: str = ""
    """A file to which the region writes what it learned of the store, one JSON object a line. Empty: none."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Knobs of a region. Defaults are Pulsar's where Pulsar has them; the one place they are written."""

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
    """PIP-33: how often a subscription snapshot is attempted while there is traffic."""
    snapshot_timeout_ms: int = 30_000
    snapshot_cache_size: int = 30
    """Size of the snapshot cache of a replicated subscription."""
    failover_delay_ms: int = 1_000
    """Delay before a newly active Failover consumer receives messages."""
    max_unacked_messages_per_consumer: int = 50_000
    region_tail_bytes: int = 67_108_864
    """Memory for the newest entries of all topics of the region, so that consumers that keep up need no
    disk reads."""
    state_checkpoint_entries: int = 10_000
    """Maximum number of entries that a restart reads again to rebuild deduplication and replication state."""
    exclusive_patience_ms: int = 5_000
    """After a restart or an unload, how long a topic is reserved for its exclusive producer, and waiting
    producers keep their order. 0: the first producer to ask gets it."""
    allow_auto_topic_creation: bool = True
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
    """How long each outcome is remembered."""
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
    """How far ahead of the clock a change may be. One from further ahead applies like any other, but any
    region that knows it may change the same path again, and no clock follows it."""


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """All a region needs to know."""

    region: str
    cluster: str
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    """What lookups return to clients. Empty: each client the address that it connected to."""
    service_port: int = 0
    admin_port: int = 0
    advertised_service_port: int = 0
    """0: the same as service_port (they differ when a container publishes another port)."""
    advertised_admin_port: int = 0
    internal_host: str = ""
    """A second host, for clients and peers inside of a network of containers: what lookups return to connections to
    `internal_port`. Empty: there is none."""
    internal_port: int = 0
    admin_hosts: tuple[str, ...] = ()
    """Further names by which the HTTP port may be called when something is to be changed."""
    log: LogConfig = LogConfig()
    configuration: ConfigurationConfig = ConfigurationConfig()
    settings: BrokerSettings = BrokerSettings()
    tenants: tuple[str, ...] = ("public",)
    """With `namespaces`: what the configuration store is seeded with, by the first region of the cluster."""
    namespaces: tuple[NamespaceConfig, ...] = ()
    peers: tuple[PeerConfig, ...] = ()
    pulsar_peers: tuple[PulsarPeerConfig, ...] = ()
    run_secret: str = ""
    """Shared by the regions of one run: how they prove to each other who they are. Empty: they cannot."""
    compatibility: dict[str, str] = field(default_factory=dict)
    """Named switches to upstream's behaviour where the proposals differ; see docs/PROTOCOL.md."""
    clock_ahead_ms: int = 0
    """How far its wall clock is set ahead of the machine's; behind if negative."""
    log_format: str = "text"
    """How it prints what it does: text or json."""
    ready_file: str = ""
    """Written (atomically) once the region listens: JSON {pid, service_port, admin_port}. Empty: none."""
    owner_pid: int = 0
    """The region stops by itself once this process is gone. 0: no owner."""
    version: int = REGION_CONFIG_VERSION

    def to_json(self) -> str:
        """The text of `region.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RegionConfig:
        """Inverse of `to_json`. ValueError when the text was written by another version or by hand."""
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
                }
            )
        except (TypeError, KeyError) as problem:
            raise ValueError(f"region config: {problem}") from problem

    @classmethod
    def load(cls, path: Path) -> RegionConfig:
        """Read a file written by `to_json`. ValueError, naming the file, for any other."""
        try:
            return cls.from_json(path.read_text())
        except ValueError as problem:
            raise ValueError(f"{path}: {problem}") from None
