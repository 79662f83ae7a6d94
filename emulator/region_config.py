"""What one region is told when it starts: `region.json`, written by a runtime, read by `broker.main`.

Plain frozen dataclasses and the standard library only: this module is part of every region's start-up time.
A topology is turned into these by `topology.region_config`; a person never writes them by hand.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REGION_CONFIG_VERSION = 1


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


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """A namespace and its policies at start."""

    name: str
    """`tenant/namespace`."""
    regions: tuple[str, ...]
    """Regions it is replicated between; the region itself alone means no replication."""
    deduplication: bool = False


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
class BrokerSettings:
    """Knobs of a region. Defaults are Pulsar's where Pulsar has them; the one place they are written."""

    max_message_bytes: int = 5_242_880
    keep_alive_interval_ms: int = 30_000
    """A connection that answers no PING for one further interval is closed."""
    peer_keep_alive_interval_ms: int = 1_000
    """The same between regions."""
    peer_reconnect_backoff_ms: int = 50
    peer_reconnect_backoff_ms_max: int = 250
    replication_window_entries: int = 1_000
    replication_window_bytes: int = 8_388_608
    snapshot_interval_ms: int = 1_000
    """PIP-33: how often a subscription snapshot is attempted while there is traffic."""
    snapshot_timeout_ms: int = 30_000
    snapshot_cache_size: int = 30
    """Snapshots remembered per replicated subscription."""
    failover_delay_ms: int = 1_000
    """Pause before a newly active Failover consumer is sent anything."""
    max_unacked_messages_per_consumer: int = 50_000
    tail_cache_bytes: int = 16_777_216
    """Recent entries kept in memory per topic, so that live readers do not go to disk."""
    state_checkpoint_entries: int = 10_000
    """How many entries a restart may have to re-read to rebuild deduplication and replication state."""
    allow_auto_topic_creation: bool = True


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """All a region needs to know."""

    region: str
    cluster: str
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    """What lookups tell clients."""
    service_port: int = 0
    admin_port: int = 0
    advertised_service_port: int = 0
    """0: the same as service_port (they differ when a container publishes another port)."""
    advertised_admin_port: int = 0
    internal_host: str = ""
    """A second way in, for clients and peers inside of a network of containers: what lookups tell those who came by
    `internal_port`. Empty: there is none."""
    internal_port: int = 0
    log: LogConfig = LogConfig()
    settings: BrokerSettings = BrokerSettings()
    tenants: tuple[str, ...] = ("public",)
    namespaces: tuple[NamespaceConfig, ...] = ()
    peers: tuple[PeerConfig, ...] = ()
    compatibility: dict[str, str] = field(default_factory=dict)
    """Named switches to upstream's behaviour where the proposals differ; see docs/PROTOCOL.md."""
    ready_file: str = ""
    """Written (atomically) once the region listens: JSON {pid, service_port, admin_port}. Empty: none."""
    owner_pid: int = 0
    """The region stops by itself once this process is gone. 0: nobody's."""
    version: int = REGION_CONFIG_VERSION

    def to_json(self) -> str:
        """The text of `region.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RegionConfig:
        """Inverse of `to_json`. ValueError when the text was written by another version or by hand."""
        raw = json.loads(text)
        if not isinstance(raw, dict) or raw.get("version") != REGION_CONFIG_VERSION:
            raise ValueError(f"region config must have version {REGION_CONFIG_VERSION}")
        try:
            return cls(
                **{
                    **raw,
                    "log": LogConfig(**raw["log"]),
                    "settings": BrokerSettings(**raw["settings"]),
                    "tenants": tuple(raw["tenants"]),
                    "namespaces": tuple(
                        NamespaceConfig(**{**n, "regions": tuple(n["regions"])}) for n in raw["namespaces"]
                    ),
                    "peers": tuple(
                        PeerConfig(
                            **{
                                **p,
                                "outbound": LinkShape(**p["outbound"]),
                                "inbound": LinkShape(**p["inbound"]),
                            }
                        )
                        for p in raw["peers"]
                    ),
                }
            )
        except (TypeError, KeyError) as problem:
            raise ValueError(f"region config: {problem}") from problem

    @classmethod
    def load(cls, path: Path) -> RegionConfig:
        """Read a file written by `to_json`."""
        return cls.from_json(path.read_text())
