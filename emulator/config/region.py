"""The configuration of one region at its start: `region.json`, written by a runtime, read by `broker.main`.

This module contains plain frozen dataclasses and imports little, because each start of a region loads it.
`topology.region_config` creates them from a topology; users do not write them.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.config.broker_settings import BrokerSettings
from emulator.config.compatibility import Compatibility
from emulator.config.link_shape import LinkShape
from emulator.config.security import NO_SECURITY, SecurityConfig
from emulator.model.machine import HEALTHY, DiskCondition

REGION_CONFIG_VERSION = 3
CLOCK_AHEAD_MS_MAX = 86_400_000
"""Maximum clock offset, a day: a larger one is probably meant in another unit."""


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
