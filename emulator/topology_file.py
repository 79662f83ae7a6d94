"""From `topology.yaml` and `clusters/*.yaml` to a `Topology`, or to the list of all that is wrong with them.

First each file by itself: YAML (`yaml_file`), then fields (`topology_models`). Then what must hold between the
parts, checked on whatever of them is right. What the files leave out is filled in last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.compatibility import CHOICES, SWITCHES
from emulator.errors import ConfigurationError, Problem
from emulator.model import TopicName
from emulator.region_config import BrokerSettings, LinkShape, LogConfig, NamespaceConfig, PulsarPeerConfig
from emulator.topology import Cluster, Link, Region, Topology
from emulator.topology_models import (
    ALL,
    ClusterFile,
    LinkException,
    LinkFields,
    LinksPart,
    LogPart,
    NamespacePart,
    RegionPart,
    Settings,
    TopologyFile,
)
from emulator.yaml_file import KeyPath, YamlFile, one_of, read_yaml

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "public/default"


def load_topology(path: Path) -> Topology:
    """Read `topology.yaml` and the `clusters/*.yaml` beside it.

    ConfigurationError carries every problem of all files, in reading order.
    """
    declared = _read(path)
    if declared.content is not None:
        _check_links(declared, declared.content)
        _check_tenants(declared, declared.content)
        _check_namespaces(declared, declared.content)
        _check_compatibility(declared, declared.content)
        _check_names_and_ports(declared)
        _check_logs(declared)
        _check_settings(declared)
        _check_metadata_sync(declared)
        _check_message_sizes(declared, declared.content)
        _check_pulsar_peers(declared, declared.content)
    problems = [problem for file in declared.files() for problem in _in_reading_order(file)]
    if problems:
        raise ConfigurationError(problems)
    assert declared.content is not None
    return _build(declared, declared.content, path)


# ---- reading -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _DeclaredCluster:
    name: str
    file: YamlFile
    content: ClusterFile | None
    """Without what was wrong in it."""

    @property
    def written_names(self) -> list[str]:
        """The regions that the file names, whatever may be wrong with what it says about them."""
        regions = self.file.values.get("regions") if isinstance(self.file.values, dict) else None
        return list(regions) if isinstance(regions, dict) else []

    def regions(self) -> Iterator[tuple[str, RegionPart]]:
        for name, part in (self.content.regions if self.content else {}).items():
            yield name, part or RegionPart()


@dataclass(slots=True)
class _Declared:
    """All that was read."""

    file: YamlFile
    content: TopologyFile | None
    """Without what was wrong in it."""
    clusters: list[_DeclaredCluster] = field(default_factory=list)
    """Those that have a file."""
    clusters_missing: bool = False

    def files(self) -> list[YamlFile]:
        return [self.file, *(cluster.file for cluster in self.clusters)]

    def region_names(self) -> list[str]:
        return [name for cluster in self.clusters for name in cluster.written_names]

    def regions(self) -> Iterator[tuple[_DeclaredCluster, str, RegionPart]]:
        for cluster in self.clusters:
            for name, part in cluster.regions():
                yield cluster, name, part

    def check_region(self, path: KeyPath, name: str) -> bool:
        """Whether `name` may be a region; notes the problem at `path` when it is certainly none."""
        names = self.region_names()
        some_unknown = self.clusters_missing or not all(cluster.written_names for cluster in self.clusters)
        if name in names or some_unknown:
            return True
        self.file.report(path, f"must be a region; there are {', '.join(names)}", names)
        return False


def _read(path: Path) -> _Declared:
    file = read_yaml(path)
    declared = _Declared(file, file.check(TopologyFile))
    if declared.content is None:
        return declared
    for index, name in enumerate(file.values["clusters"]):
        if name not in declared.content.clusters:
            continue  # not a cluster's name at all: noted by the check of the fields
        if name in [cluster.name for cluster in declared.clusters]:
            file.report(("clusters", index), "must be listed once")
            continue
        cluster_path = path.parent / "clusters" / f"{name}.yaml"
        if not cluster_path.exists():
            existing = sorted(other.stem for other in cluster_path.parent.glob("*.yaml"))
            file.report(
                ("clusters", index), f"must have its file {cluster_path}, which is not there", existing
            )
            declared.clusters_missing = True
            continue
        cluster_file = read_yaml(cluster_path)
        declared.clusters.append(_DeclaredCluster(name, cluster_file, cluster_file.check(ClusterFile)))
    return declared


def _in_reading_order(file: YamlFile) -> list[Problem]:
    return sorted(dict.fromkeys(file.problems), key=lambda problem: problem.line or 0)


# ---- relations ---------------------------------------------------------------------------------------------


def _check_links(declared: _Declared, content: TopologyFile) -> None:
    seen: dict[tuple[bool, str, str], KeyPath] = {}
    for path, exception in _exceptions(declared, content):
        if not _check_ends(declared, path, exception):
            continue
        keys = list(LinkFields.model_fields)
        if not _shape(exception) and not any(declared.file.has_problem_at((*path, key)) for key in keys):
            declared.file.report(path, f"must change something: give {one_of(keys)}")
        for source, target in _directions(exception):
            key = (exception.between is not None, source, target)
            if key in seen:
                line = declared.file.line(seen[key])
                declared.file.report(
                    path, f"must be said once; {source} to {target} is already on line {line}"
                )
                break
            seen[key] = path


def _exceptions(declared: _Declared, content: TopologyFile) -> Iterator[tuple[KeyPath, LinkException]]:
    """Each exception with its place in the file."""
    exceptions = content.links and content.links.exceptions
    if not exceptions:
        return
    written = declared.file.values["links"]["exceptions"]
    indexes = [index for index, value in enumerate(written) if isinstance(value, dict)]
    for index, exception in zip(indexes, exceptions, strict=True):
        yield ("links", "exceptions", index), exception


def _check_ends(declared: _Declared, path: KeyPath, exception: LinkException) -> bool:
    """Whether an exception names two different regions, in one of the two forms."""
    file = declared.file
    ends = (exception.source, exception.target)
    both_ways, one_way = exception.between is not None, ends != (None, None)
    if both_ways == one_way or (one_way and None in ends):
        if not _ends_were_wrong(file, path):
            file.report(path, "must say either between: [a, b] or from: a and to: b")
        return False
    if exception.between is not None:
        places = [((*path, "between", index), name) for index, name in enumerate(exception.between)]
    else:
        places = [((*path, key), str(name)) for key, name in zip(("from", "to"), ends, strict=True)]
    if len(places) != 2:
        if not _ends_were_wrong(file, path):
            file.report((*path, "between"), "must name two regions")
        return False
    known = [declared.check_region(place, name) for place, name in places]
    if not all(known):
        return False
    if places[0][1] == places[1][1]:
        file.report(places[1][0], "must be another region: there is no link from a region to itself")
        return False
    return True


def _ends_were_wrong(file: YamlFile, path: KeyPath) -> bool:
    """Whether a problem with the regions was noted already, so that what is left of them says little."""
    return any(file.has_problem_at((*path, key)) for key in ("between", "from", "to"))


def _check_tenants(declared: _Declared, content: TopologyFile) -> None:
    if content.tenants is None:
        return
    seen: set[str] = set()
    for index, tenant in enumerate(declared.file.values["tenants"]):
        if tenant in content.tenants:
            if tenant in seen:
                declared.file.report(("tenants", index), "must be listed once")
            seen.add(tenant)


def _check_namespaces(declared: _Declared, content: TopologyFile) -> None:
    tenants = _tenants(content)
    for name, part in (content.namespaces or {}).items():
        path = ("namespaces", name)
        tenant = name.split("/")[0]
        if tenant not in tenants:
            declared.file.report(path, f"must have its tenant {tenant} listed under tenants", about_key=True)
        regions = part.regions if part else ALL
        if part is not None and part.exclusive_home:
            declared.check_region((*path, "exclusive_home"), part.exclusive_home)
        for index, region in enumerate(() if regions == ALL else regions):
            place = (*path, "regions", index)
            if declared.check_region(place, region) and region in regions[:index]:
                declared.file.report(place, "must be listed once")


def _check_compatibility(declared: _Declared, content: TopologyFile) -> None:
    for switch, choice in (content.compatibility or {}).items():
        path = ("compatibility", switch)
        if switch not in SWITCHES:
            declared.file.report(
                path, f"is no switch; there are {', '.join(SWITCHES)}", SWITCHES, about_key=True
            )
        elif choice not in CHOICES:
            declared.file.report(path, f"must be {one_of(CHOICES)}", CHOICES)


def _check_names_and_ports(declared: _Declared) -> None:
    names: dict[str, str] = {}
    ports: dict[tuple[str, int], str] = {}
    for cluster in declared.clusters:
        for name in cluster.written_names:
            if name in names:
                rule = f"must be a name of its own; {names[name]} has a region of that name"
                cluster.file.report(("regions", name), rule, about_key=True)
            names.setdefault(name, cluster.file.name)
    for cluster, name, part in declared.regions():
        if cluster.file.has_problem_at(("regions", name, "host")):
            continue
        for key, port in (("service_port", part.service_port), ("admin_port", part.admin_port)):
            address = ("127.0.0.1" if part.host == "localhost" else part.host, port)
            if port and address in ports:
                cluster.file.report(
                    ("regions", name, key), f"must be a port of its own; {ports[address]} uses it"
                )
            ports.setdefault(address, f"{key} of {name}")


def _check_logs(declared: _Declared) -> None:
    if declared.content:
        _check_log(declared.file, ("log",), declared.content.log)
    for cluster in declared.clusters:
        _check_log(cluster.file, ("log",), cluster.content.log if cluster.content else None)
    for cluster, name, part in declared.regions():
        _check_log(cluster.file, ("regions", name, "log"), part.log)


def _check_log(file: YamlFile, path: KeyPath, log: LogPart | None) -> None:
    if log is None:
        return
    written = log.model_fields_set
    if log.backend != "kafka":
        for key in sorted({"bootstrap_servers", "options"} & written):
            file.report((*path, key), f"must not be given with backend {log.backend}; only kafka uses it")


def _check_settings(declared: _Declared) -> None:
    """The pause before a reconnect may not start above its maximum, however the two come together."""
    low, high = "peer_reconnect_backoff_ms", "peer_reconnect_backoff_ms_max"
    for levels in _settings_levels(declared).values():
        settings = _effective(levels)
        if getattr(settings, low) <= getattr(settings, high):
            continue
        file, path, key = next(
            (file, path, key)
            for file, path, written in levels
            for key in (low, high)
            if written and key in written.model_fields_set
        )
        rule = f"{low} ({getattr(settings, low)}) must not be more than {high} ({getattr(settings, high)})"
        file.report((*path, key), rule)


def _check_metadata_sync(declared: _Declared) -> None:
    """The event topic is a topic, the same for all, and of the store that clusters may share."""
    named: dict[str, str] = {}
    reported: set[tuple[str, KeyPath]] = set()

    def report(file: YamlFile, path: KeyPath, rule: str) -> None:
        if rule and (file.name, path) not in reported:
            reported.add((file.name, path))
            file.report(path, rule)

    for region, levels in _settings_levels(declared).items():
        topic = named[region] = _effective(levels).configuration_metadata_sync_event_topic
        for file, path, written in levels:
            if written is not None and getattr(written, _LOCAL_EVENT_TOPIC):
                report(file, (*path, _LOCAL_EVENT_TOPIC), LOCAL_STORE_RULE)
            if written is not None and _EVENT_TOPIC in written.model_fields_set:
                report(file, (*path, _EVENT_TOPIC), _no_event_topic(topic) or _no_common_topic(named, topic))


def _no_common_topic(named: dict[str, str], topic: str) -> str:
    other = next((name for name, its in named.items() if its != topic), None)
    return "" if other is None else f"must be the same everywhere; {other} has {named[other] or 'none'}"


_LOCAL_EVENT_TOPIC = "metadata_sync_event_topic"
_EVENT_TOPIC = "configuration_metadata_sync_event_topic"
LOCAL_STORE_RULE = (
    "must be left out: it would share what is local to a region, its cursors and positions, which mean nothing in "
    "another one; configuration_metadata_sync_event_topic shares tenants, namespaces and policies"
)


def _no_event_topic(topic: str) -> str:
    """What is wrong with it; empty: nothing."""
    try:
        parsed = TopicName.parse(topic) if topic else None
    except ValueError as problem:
        return f"must name a topic: {problem}"
    if parsed is not None and (parsed.domain != "persistent" or parsed.partition_index >= 0):
        return "must name a persistent topic without partitions"
    return ""


_SettingsLevel = tuple[YamlFile, KeyPath, Settings | None]


def _settings_levels(declared: _Declared) -> dict[str, list[_SettingsLevel]]:
    """By region: where its settings are written, the place that counts most first."""
    assert declared.content is not None
    return {
        name: [
            (cluster.file, ("regions", name, "settings"), part.settings),
            (cluster.file, ("settings",), cluster.content.settings if cluster.content else None),
            (declared.file, ("settings",), declared.content.settings),
        ]
        for cluster, name, part in declared.regions()
    }


def _effective(levels: list[_SettingsLevel]) -> BrokerSettings:
    return _settings(BrokerSettings(), *(level[2] for level in reversed(levels)))


def _check_message_sizes(declared: _Declared, content: TopologyFile) -> None:
    """What one region of a namespace accepts, the others must take: otherwise replication of that topic would stop at
    the first entry that is too large for one of them."""
    key = "max_message_bytes"
    levels = _settings_levels(declared)
    maxima = {name: _effective(of_region).max_message_bytes for name, of_region in levels.items()}
    reported: set[tuple[str, KeyPath]] = set()
    for namespace in _namespaces(content, list(maxima)):
        known = [name for name in namespace.regions if name in maxima]
        for name in known:
            other = next((one for one in known if maxima[one] < maxima[name]), None)
            if other is None:
                continue
            file, path = _place_of(key, levels[name]) or _place_of(key, levels[other]) or (declared.file, ())
            if (file.name, path) not in reported:
                reported.add((file.name, path))
                rule = (
                    f"max_message_bytes must be the same in regions that replicate to each other: {name} has "
                    f"{maxima[name]}, {other} has {maxima[other]} ({namespace.name})"
                )
                file.report(path, rule)


def _place_of(key: str, levels: list[_SettingsLevel]) -> tuple[YamlFile, KeyPath] | None:
    """Where a setting is written that counts for a region; None when it is the default."""
    for file, path, written in levels:
        if written and key in written.model_fields_set:
            return file, (*path, key)
    return None


def _check_pulsar_peers(declared: _Declared, content: TopologyFile) -> None:
    tokens: dict[str, str] = {}
    for name, peer in (content.pulsar_peers or {}).items():
        if name in declared.region_names():
            rule = "must be a name of its own; a region has it"
            declared.file.report(("pulsar_peers", name), rule, about_key=True)
        if peer.token in tokens:
            rule = f"must be a token of its own; {tokens[peer.token]} has the same"
            declared.file.report(("pulsar_peers", name, "token"), rule)
        tokens.setdefault(peer.token, name)


# ---- filling in --------------------------------------------------------------------------------------------


def _build(declared: _Declared, content: TopologyFile, path: Path) -> Topology:
    names = declared.region_names()
    return Topology(
        name=content.name,
        path=path.resolve(),
        runtime=content.runtime,
        clusters=tuple(_cluster(cluster, content) for cluster in declared.clusters),
        links=tuple(_links(content.links or LinksPart(), names)),
        tenants=_tenants(content),
        namespaces=tuple(_namespaces(content, names)),
        pulsar_peers=tuple(
            PulsarPeerConfig(name, peer.token, tuple(peer.may or ()))
            for name, peer in (content.pulsar_peers or {}).items()
        ),
        compatibility=dict(content.compatibility or {}),
        admin_hosts=tuple(content.admin_hosts or ()),
    )


def _cluster(declared: _DeclaredCluster, topology: TopologyFile) -> Cluster:
    assert declared.content is not None
    cluster_log, cluster_settings = declared.content.log, declared.content.settings
    return Cluster(
        name=declared.name,
        regions=tuple(
            Region(
                name=name,
                cluster=declared.name,
                host=part.host,
                service_port=part.service_port,
                admin_port=part.admin_port,
                log=_log(part.log or cluster_log or topology.log or LogPart()),
                settings=_settings(BrokerSettings(), topology.settings, cluster_settings, part.settings),
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


def _settings(base: BrokerSettings, *parts: Settings | None) -> BrokerSettings:
    """Later parts count more."""
    for part in parts:
        if part is not None:
            base = dataclasses.replace(base, **part.model_dump(exclude_unset=True))
    return base


def _links(part: LinksPart, names: list[str]) -> Iterator[Link]:
    default = LinkShape(**_shape(part.defaults or LinkFields()))
    shapes: dict[tuple[str, str], LinkShape] = {}
    one_way_last = sorted(part.exceptions or [], key=lambda exception: exception.between is None)
    for exception in one_way_last:
        for direction in _directions(exception):
            shape = shapes.get(direction, default)
            shapes[direction] = dataclasses.replace(shape, **_shape(exception))
    for source in names:
        for target in names:
            if source != target:
                yield Link(source, target, shapes.get((source, target), default))


def _directions(exception: LinkException) -> list[tuple[str, str]]:
    if exception.between is not None:
        a, b = exception.between
        return [(a, b), (b, a)]
    assert exception.source is not None
    assert exception.target is not None
    return [(exception.source, exception.target)]


def _shape(part: LinkFields) -> dict[str, Any]:
    """What a part says about a link. `bandwidth_bytes_per_second:` with nothing behind it says: unlimited."""
    said = {key: getattr(part, key) for key in LinkFields.model_fields if key in part.model_fields_set}
    return {key: value for key, value in said.items() if value is not None or key.startswith("bandwidth")}


def _tenants(content: TopologyFile) -> tuple[str, ...]:
    return (DEFAULT_TENANT,) if content.tenants is None else tuple(content.tenants)


def _namespaces(content: TopologyFile, names: list[str]) -> Iterator[NamespaceConfig]:
    implied = {DEFAULT_NAMESPACE: None} if DEFAULT_TENANT in _tenants(content) else {}
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
