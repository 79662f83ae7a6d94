"""A topology: regions, links between them, tenants, namespaces and settings, as frozen and validated values.

Users write `topology.yaml` and `clusters/*.yaml`, which `loading.load_topology` reads. A run has its own copy,
`topology.json`, so later edits do not change the run; programs that only read it load no YAML parser.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import (
    ConfigurationConfig,
    LogConfig,
    NamespaceConfig,
    PeerConfig,
    PulsarPeerConfig,
    RegionConfig,
)
from emulator.config.security import NO_SECURITY, SecurityConfig
from emulator.config.shapes import Link, ShapeName
from emulator.errors import ConfigurationError, Problem
from emulator.model.suggestions import nearest
from emulator.model.values import TopicName
from emulator.net.addresses import LOOPBACK, is_wildcard, nearby

TOPOLOGY_VERSION = 3
CONFIGURATION_FILE = "configuration.sqlite"
RUNTIMES = ("process", "compose")
"""Names of the runtimes."""


class RegionPorts(NamedTuple):
    """The ports of a region. 0: it has no such port."""

    service: int
    admin: int
    service_tls: int = 0
    admin_tls: int = 0


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """One broker with one log. Pulsar clients see it as a cluster of that name."""

    name: str
    cluster: str
    host: str = ""
    """Host that lookups return to clients. Empty: the address that the region listens on."""
    listen: str = ""
    """Address of this machine that the region listens on, or to which its container publishes ports. Empty: `host`."""
    service_port: int = 0
    """Port for Pulsar clients. 0: pick a free one."""
    admin_port: int = 0
    """Port for HTTP. 0: pick a free one."""
    service_port_tls: int = 0
    """Port for Pulsar clients with TLS. 0: pick a free one."""
    admin_port_tls: int = 0
    """Port for HTTPS. 0: pick a free one."""
    log: LogConfig = LogConfig()
    settings: BrokerSettings = BrokerSettings()

    @property
    def address(self) -> str:
        """Address that the region listens on."""
        return self.listen or self.host or LOOPBACK

    @property
    def advertised(self) -> str:
        """Host that lookups return to clients; empty: the address to which the client connected, one of several."""
        return self.host or ("" if is_wildcard(self.address) else self.address)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Regions that share one configuration metadata store."""

    name: str
    regions: tuple[RegionSpec, ...]


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """The link from one region to another, in that direction."""

    source: str
    target: str
    shape: LinkShape
    via: tuple[str, ...] = ()
    """Regions whose networks the route passes, in order; none: a direct link. See `shapes`."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The content of all files of a topology, with defaults."""

    name: str
    path: Path
    """Absolute path of the `topology.yaml` that was read."""
    clusters: tuple[ClusterSpec, ...]
    links: tuple[LinkSpec, ...]
    """One link for each ordered pair of different regions."""
    tenants: tuple[str, ...] = ("public",)
    namespaces: tuple[NamespaceConfig, ...] = ()
    pulsar_peers: tuple[PulsarPeerConfig, ...] = ()
    """Real Pulsar clusters that may replicate into these regions."""
    runtime: str = "process"
    """One of RUNTIMES."""
    compatibility: dict[str, str] = field(default_factory=dict)
    admin_hosts: tuple[str, ...] = ()
    """Additional host names under which the regions' HTTP ports accept changes."""
    shape: ShapeName = "mesh"
    security: SecurityConfig = NO_SECURITY

    @property
    def regions(self) -> tuple[RegionSpec, ...]:
        """All regions, in the order in which the files name them."""
        return tuple(region for cluster in self.clusters for region in cluster.regions)

    @property
    def region_names(self) -> tuple[str, ...]:
        return tuple(region.name for region in self.regions)

    def wanted_ports(self, region: RegionSpec) -> dict[str, int]:
        """Return the ports that a region opens, in the order of RegionPorts, by name; 0: any free one."""
        plain = {"service_port": region.service_port, "admin_port": region.admin_port}
        if self.security.tls is None:
            return plain
        secured = {"service_port_tls": region.service_port_tls, "admin_port_tls": region.admin_port_tls}
        return plain | secured if self.security.tls.plain_ports else secured

    def reached_at(self, region: RegionSpec) -> str:
        """Return the host at which the other regions reach a region. With TLS it is the one that clients use, which
        certificates name."""
        secured = self.security.tls is not None and region.advertised
        return region.advertised if secured else nearby(region.address)

    def region_ports(self, chosen: Sequence[int]) -> RegionPorts:
        """Return the ports of a region, given one for each of `wanted_ports`."""
        closed = () if self.security.tls is None or self.security.tls.plain_ports else (0, 0)
        return RegionPorts(*closed, *chosen)

    @property
    def routes(self) -> dict[Link, tuple[str, ...]]:
        """The regions whose networks each link passes, by (source, target)."""
        return {(link.source, link.target): link.via for link in self.links}

    def region(self, name: str) -> RegionSpec:
        """Return the region `name`. Raises ConfigurationError, with the nearest name, if there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise ConfigurationError(
            [
                Problem(
                    file=str(self.path),
                    line=None,
                    key_path="region",
                    value=name,
                    rule=f"no such region; there are {', '.join(self.region_names)}",
                    suggestion=nearest(name, self.region_names),
                )
            ]
        )

    def with_regions(self, change: Callable[[RegionSpec], RegionSpec]) -> Topology:
        clusters = (
            dataclasses.replace(cluster, regions=tuple(map(change, cluster.regions)))
            for cluster in self.clusters
        )
        return dataclasses.replace(self, clusters=tuple(clusters))

    def link(self, source: str, target: str) -> LinkShape:
        """Return the shape of the link from `source` to `target`. Raises ConfigurationError if there is no such
        link."""
        for link in self.links:
            if (link.source, link.target) == (source, target):
                return link.shape
        self.region(source)
        self.region(target)
        raise ConfigurationError(
            [Problem(str(self.path), None, "link", source, "has no link to itself; name two regions")]
        )

    def to_json(self) -> str:
        """Return the text of `topology.json`."""
        raw = {"version": TOPOLOGY_VERSION, **dataclasses.asdict(self), "path": str(self.path)}
        return json.dumps(raw, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Topology:
        """Inverse of `to_json`. Raises ValueError if the text has another version or is damaged."""
        raw = json.loads(text)
        found = raw.pop("version", None) if isinstance(raw, dict) else None
        if found != TOPOLOGY_VERSION:
            raise ValueError(f"topology has version {found}, this geoemu reads version {TOPOLOGY_VERSION}")
        try:
            return cls(
                **{
                    **raw,
                    "path": Path(raw["path"]),
                    "clusters": tuple(_cluster_from_json(cluster) for cluster in raw["clusters"]),
                    "links": tuple(_link_from_json(link) for link in raw["links"]),
                    "tenants": tuple(raw["tenants"]),
                    "pulsar_peers": tuple(map(PulsarPeerConfig.from_json, raw["pulsar_peers"])),
                    "admin_hosts": tuple(raw["admin_hosts"]),
                    "namespaces": tuple(map(NamespaceConfig.from_json, raw["namespaces"])),
                    "security": SecurityConfig.from_json(raw.get("security", {})),
                }
            )
        except (TypeError, KeyError) as problem:
            raise ValueError(f"topology: {problem}") from problem


def region_config(
    topology: Topology,
    region_name: str,
    ports: Mapping[str, RegionPorts],
    *,
    region_dir: Path,
    owner_pid: int = 0,
    bind_host: str | None = None,
    advertised_host: str | None = None,
    advertised_ports: RegionPorts = RegionPorts(0, 0),
    peer_hosts: Mapping[str, str] | None = None,
    bootstrap_servers: str | None = None,
    run_secret: str = "",
    configuration_dir: Path | None = None,
) -> RegionConfig:
    """Return the configuration of one region of `topology`, without side effects.

    `ports`: those of each region. Containers listen on `bind_host`; clients reach them at
    `advertised_…`, regions each other at `peer_hosts` and Kafka at `bootstrap_servers`. `run_secret`: the same for all
    regions of a run, which authenticate each other with it. `configuration_dir`: folder of the cluster's configuration
    store; None: the region has its own store, in memory.
    """
    region = topology.region(region_name)
    hosts = {peer.name: topology.reached_at(peer) for peer in topology.regions} | dict(peer_hosts or {})
    own = ports[region_name]
    return RegionConfig(
        region=region.name,
        cluster=region.cluster,
        bind_host=bind_host or region.address,
        advertised_host=advertised_host or region.advertised,
        service_port=own.service,
        admin_port=own.admin,
        advertised_service_port=advertised_ports.service,
        advertised_admin_port=advertised_ports.admin,
        service_port_tls=own.service_tls,
        admin_port_tls=own.admin_tls,
        advertised_service_port_tls=advertised_ports.service_tls,
        advertised_admin_port_tls=advertised_ports.admin_tls,
        log=_log_config(region.log, region_dir, bootstrap_servers),
        configuration=_configuration_config(configuration_dir, region_dir),
        settings=region.settings,
        tenants=_with_event_tenant(topology, region),
        namespaces=_with_event_namespace(topology, region),
        peers=tuple(
            PeerConfig(
                region=peer.name,
                cluster=peer.cluster,
                host=hosts[peer.name],
                port=ports[peer.name].service,
                port_tls=ports[peer.name].service_tls,
                outbound=topology.link(region.name, peer.name),
                inbound=topology.link(peer.name, region.name),
            )
            for peer in topology.regions
            if peer.name != region.name
        ),
        pulsar_peers=topology.pulsar_peers,
        run_secret=run_secret,
        security=dataclasses.replace(topology.security, client=None),
        compatibility=dict(topology.compatibility),
        admin_hosts=topology.admin_hosts,
        ready_file=str(region_dir / "ready.json"),
        owner_pid=owner_pid,
    )


def _event_topic(region: RegionSpec) -> TopicName | None:
    topic = region.settings.configuration_metadata_sync_event_topic
    return TopicName.parse(topic) if topic else None


def _with_event_tenant(topology: Topology, region: RegionSpec) -> tuple[str, ...]:
    topic = _event_topic(region)
    if topic is None or topic.tenant in topology.tenants:
        return topology.tenants
    return (*topology.tenants, topic.tenant)


def _with_event_namespace(topology: Topology, region: RegionSpec) -> tuple[NamespaceConfig, ...]:
    """Return the namespaces, with that of the event topic, replicated between all regions, if it is not declared."""
    topic = _event_topic(region)
    if topic is None or any(one.name == topic.full_namespace for one in topology.namespaces):
        return topology.namespaces
    events = NamespaceConfig(topic.full_namespace, topology.region_names, deduplication=True)
    return (*topology.namespaces, events)


def _configuration_config(configuration_dir: Path | None, region_dir: Path) -> ConfigurationConfig:
    deliveries = str(region_dir / "metadata.jsonl")
    if configuration_dir is None:
        return ConfigurationConfig(deliveries=deliveries)
    return ConfigurationConfig(str(configuration_dir / CONFIGURATION_FILE), deliveries)


def _log_config(log: LogConfig, region_dir: Path, bootstrap_servers: str | None) -> LogConfig:
    if log.backend == "sqlite":
        return dataclasses.replace(log, path=str(region_dir / "log.sqlite"))
    if log.backend == "kafka" and bootstrap_servers is not None:
        return dataclasses.replace(log, bootstrap_servers=bootstrap_servers)
    return log


def _link_from_json(raw: dict[str, Any]) -> LinkSpec:
    return LinkSpec(
        raw["source"], raw["target"], LinkShape.from_json(raw["shape"]), tuple(raw.get("via", ()))
    )


def _cluster_from_json(raw: dict[str, Any]) -> ClusterSpec:
    return ClusterSpec(
        name=raw["name"],
        regions=tuple(
            RegionSpec(
                **{
                    **region,
                    "log": LogConfig(**region["log"]),
                    "settings": BrokerSettings(**region["settings"]),
                }
            )
            for region in raw["regions"]
        ),
    )
