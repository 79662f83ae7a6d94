"""What a topology means: what its files leave out is filled in here, once for the checks and for the `Topology`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emulator.config.declared import DeclaredCluster, DeclaredTopology, SettingsLevel
from emulator.config.models import (
    ALL,
    LinkException,
    LinkFields,
    LinksPart,
    LogPart,
    NamespacePart,
    RegionSettings,
    TopologyFile,
)
from emulator.config.region import BrokerSettings, LinkShape, LogConfig, NamespaceConfig, PulsarPeerConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "public/default"


def filled_in(declared: DeclaredTopology, content: TopologyFile, path: Path) -> Topology:
    names = declared.region_names()
    return Topology(
        name=content.name,
        path=path.resolve(),
        runtime=content.runtime,
        clusters=tuple(_cluster(cluster, content) for cluster in declared.clusters),
        links=tuple(_links(content.links or LinksPart(), names)),
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


def _links(part: LinksPart, names: list[str]) -> Iterator[LinkSpec]:
    default = LinkShape(**said_of_link(part.defaults or LinkFields()))
    shapes: dict[tuple[str, str], LinkShape] = {}
    one_way_last = sorted(part.exceptions or [], key=lambda exception: exception.between is None)
    for exception in one_way_last:
        for direction in directions(exception):
            shape = shapes.get(direction, default)
            shapes[direction] = dataclasses.replace(shape, **said_of_link(exception))
    for source in names:
        for target in names:
            if source != target:
                yield LinkSpec(source, target, shapes.get((source, target), default))


def with_settings(base: BrokerSettings, *parts: RegionSettings | None) -> BrokerSettings:
    """Later parts count more."""
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


def said_of_link(part: LinkFields) -> dict[str, Any]:
    """What a part says about a link. `bandwidth_bytes_per_second:` with nothing behind it says: unlimited."""
    said = {key: getattr(part, key) for key in LinkFields.model_fields if key in part.model_fields_set}
    return {key: value for key, value in said.items() if value is not None or key.startswith("bandwidth")}


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
        yield NamespaceConfig(
            name,
            tuple(regions),
            part.deduplication,
            part.keep_alive_interval_ms,
            part.exclusive_home,
            part.retention_minutes,
            part.retention_megabytes,
            part.message_ttl_seconds,
        )
