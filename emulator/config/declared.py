"""Read `topology.yaml` and `clusters/*.yaml`, and add defaults.

Each file is read and checked separately: YAML (`yaml_source`), then fields (`models`). `validation` checks relations
between files and fields. Defaults are added here, for these checks and for the `Topology`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_profiles import profile_fields
from emulator.config.link_shape import LinkShape
from emulator.config.models import (
    ALL,
    ClusterFile,
    LinkException,
    LinkFields,
    LinksPart,
    LogPart,
    NamespacePart,
    RegionPart,
    RegionSettings,
    TopologyFile,
)
from emulator.config.region import LogConfig, NamespaceConfig, PulsarPeerConfig
from emulator.config.shapes import ShapeName, hops, joined, routes
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile, read_yaml
from emulator.errors import Problem

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "public/default"


@dataclass(slots=True)
class DeclaredCluster:
    name: str
    file: YamlFile
    content: ClusterFile | None
    """The content without its invalid parts; None: not enough is valid."""

    @property
    def written_names(self) -> list[str]:
        """Names of all regions in the file, including regions with invalid parts."""
        regions = self.file.values.get("regions") if isinstance(self.file.values, dict) else None
        return list(regions) if isinstance(regions, dict) else []

    def regions(self) -> Iterator[tuple[str, RegionPart]]:
        for name, part in (self.content.regions if self.content else {}).items():
            yield name, part or RegionPart()


@dataclass(slots=True)
class DeclaredTopology:
    """The content of all files of a topology."""

    file: YamlFile
    content: TopologyFile | None
    """The content without its invalid parts; None: not enough is valid."""
    clusters: list[DeclaredCluster] = field(default_factory=list)
    """The clusters that have a file, each once."""
    clusters_missing: bool = False
    """A listed cluster has no file."""

    def files(self) -> list[YamlFile]:
        return [self.file, *(cluster.file for cluster in self.clusters)]

    def region_names(self) -> list[str]:
        return [name for cluster in self.clusters for name in cluster.written_names]

    def regions(self) -> Iterator[tuple[DeclaredCluster, str, RegionPart]]:
        for cluster in self.clusters:
            for name, part in cluster.regions():
                yield cluster, name, part

    def check_region(self, path: KeyPath, name: str) -> bool:
        """Return whether `name` may be a region. If it certainly is none, report the problem at `path`."""
        names = self.region_names()
        some_unknown = self.clusters_missing or not all(cluster.written_names for cluster in self.clusters)
        if name in names or some_unknown:
            return True
        self.file.report(path, f"must be a region; there are {', '.join(names)}", names)
        return False


def read_declared(path: Path) -> DeclaredTopology:
    """Read all files of a topology, and collect their problems."""
    file = read_yaml(path)
    declared = DeclaredTopology(file, file.check(TopologyFile))
    if declared.content is None:
        return declared
    for index, name in enumerate(file.values["clusters"]):
        if name not in declared.content.clusters:
            continue  # an invalid name, which `check` has reported
        if name in [cluster.name for cluster in declared.clusters]:
            file.report(("clusters", index), "must be listed once")
            continue
        cluster_path = path.parent / "clusters" / f"{name}.yaml"
        if not cluster_path.exists():
            existing = sorted(other.stem for other in cluster_path.parent.glob("*.yaml"))
            file.report(
                ("clusters", index), f"must have its file {cluster_path}, which does not exist", existing
            )
            declared.clusters_missing = True
            continue
        cluster_file = read_yaml(cluster_path)
        declared.clusters.append(DeclaredCluster(name, cluster_file, cluster_file.check(ClusterFile)))
    return declared


def problems_by_line(file: YamlFile) -> list[Problem]:
    """Return the problems of a file, each once, sorted by line."""
    return sorted(dict.fromkeys(file.problems), key=lambda problem: problem.line or 0)


SettingsLevel = tuple[YamlFile, KeyPath, RegionSettings | None]


def settings_levels(declared: DeclaredTopology) -> dict[str, list[SettingsLevel]]:
    """Return for each region the places of its settings: region, cluster, topology. Earlier ones override later
    ones."""
    assert declared.content is not None
    return {
        name: [
            (cluster.file, ("regions", name, "settings"), part.settings),
            (cluster.file, ("settings",), cluster.content.settings if cluster.content else None),
            (declared.file, ("settings",), declared.content.settings),
        ]
        for cluster, name, part in declared.regions()
    }


def with_defaults(declared: DeclaredTopology, content: TopologyFile, path: Path) -> Topology:
    names = declared.region_names()
    return Topology(
        name=content.name,
        path=path.resolve(),
        runtime=content.runtime,
        clusters=tuple(_cluster(cluster, content) for cluster in declared.clusters),
        shape=content.shape,
        links=tuple(_links(content.links or LinksPart(), names, content.shape)),
        tenants=tenants_of(content),
        namespaces=tuple(namespaces_of(content, names)),
        pulsar_peers=tuple(
            PulsarPeerConfig(name, peer.token, tuple(peer.may or ()))
            for name, peer in (content.pulsar_peers or {}).items()
        ),
        compatibility=dict(content.compatibility or {}),
        admin_hosts=tuple(content.admin_hosts or ()),
    )


def _cluster(declared: DeclaredCluster, topology: TopologyFile) -> ClusterSpec:
    assert declared.content is not None
    cluster_log, cluster_settings = declared.content.log, declared.content.settings
    return ClusterSpec(
        name=declared.name,
        regions=tuple(
            RegionSpec(
                name=name,
                cluster=declared.name,
                host=part.host or "",
                listen=part.listen or "",
                service_port=part.service_port,
                admin_port=part.admin_port,
                service_port_tls=part.service_port_tls,
                admin_port_tls=part.admin_port_tls,
                log=_log(part.log or cluster_log or topology.log or LogPart()),
                settings=with_settings(BrokerSettings(), topology.settings, cluster_settings, part.settings),
            )
            for name, part in declared.regions()
        ),
    )


def _log(part: LogPart) -> LogConfig:
    return LogConfig(
        backend=part.backend,
        bootstrap_servers=part.bootstrap_servers or "",
        options=dict(part.options or {}),
    )


def _links(part: LinksPart, names: list[str], topology_shape: ShapeName) -> Iterator[LinkSpec]:
    of_all = link_fields_of(LinkFields(profile=part.profile))
    default = LinkShape(**(of_all | link_fields_of(part.defaults or LinkFields())))
    shapes: dict[tuple[str, str], LinkShape] = {}
    one_way_last = sorted(part.exceptions or [], key=lambda exception: exception.between is None)
    for exception in one_way_last:
        for direction in directions(exception):
            shape = shapes.get(direction, default)
            shapes[direction] = dataclasses.replace(shape, **link_fields_of(exception))
    via = {link: () if link in shapes else route for link, route in routes(topology_shape, names).items()}
    for source in names:
        for target in names:
            if source != target:
                route = via[source, target]
                shape = joined([shapes.get(hop, default) for hop in hops((source, target), route)])
                yield LinkSpec(source, target, shape, route)


def with_settings(base: BrokerSettings, *parts: RegionSettings | None) -> BrokerSettings:
    """Return `base` with the fields that parts set; later parts override earlier ones."""
    for part in parts:
        if part is not None:
            base = dataclasses.replace(base, **part.model_dump(exclude_unset=True))
    return base


def effective_settings(levels: list[SettingsLevel]) -> BrokerSettings:
    return with_settings(BrokerSettings(), *(level[2] for level in reversed(levels)))


def directions(exception: LinkException) -> list[tuple[str, str]]:
    if exception.between is not None:
        a, b = exception.between
        return [(a, b), (b, a)]
    assert exception.source is not None
    assert exception.target is not None
    return [(exception.source, exception.target)]


def link_fields_of(part: LinkFields) -> dict[str, Any]:
    """Return the fields of a link that a part sets, itself or by its profile. An empty `bandwidth_bytes_per_second:`
    sets it to unlimited; other empty fields are not set."""
    keys = part.model_fields_set & LinkFields.model_fields.keys() - {"profile"}
    fields = {key: getattr(part, key) for key in keys}
    written = {
        key: value for key, value in fields.items() if value is not None or key.startswith("bandwidth")
    }
    return (profile_fields(part.profile) if part.profile else {}) | written


def tenants_of(content: TopologyFile) -> tuple[str, ...]:
    return (DEFAULT_TENANT,) if content.tenants is None else tuple(content.tenants)


def namespaces_of(content: TopologyFile, names: list[str]) -> Iterator[NamespaceConfig]:
    implied = {DEFAULT_NAMESPACE: None} if DEFAULT_TENANT in tenants_of(content) else {}
    written: dict[str, NamespacePart | None] = dict(
        implied if content.namespaces is None else content.namespaces
    )
    for name, part in written.items():
        part = part or NamespacePart()
        regions = names if part.regions == ALL else part.regions
        active = names[0] if content.shape == "active-standby" and names and names[0] in regions else ""
        yield NamespaceConfig(
            name,
            tuple(regions),
            part.deduplication,
            part.keep_alive_interval_ms,
            part.exclusive_home or active,
            part.retention_minutes,
            part.retention_megabytes,
            part.message_ttl_seconds,
            _policies_of(part),
        )


def _policies_of(part: NamespacePart) -> dict[str, Any]:
    """Return the policies by name that a namespace sets and that are no field of NamespaceConfig."""
    others = {one.name for one in dataclasses.fields(NamespaceConfig)}
    policies = part.model_dump(exclude=others, exclude_none=True)
    if part.permissions is not None:
        policies["permissions"] = {"namespace_auth": policies["permissions"]}
    return policies
