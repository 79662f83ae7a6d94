"""The files of a run directory, present and required.

Imports no engine. Each missing or unreadable file becomes a damage, so that the verdict cannot be valid. Files without
permission may raise PermissionError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from emulator.model.values import TopicName
from emulator.run.json_text import is_unicode, parse_json, readable
from emulator.run.manifest import MADE_BY_FILE, read_made_by
from emulator.run.service_contract import Contract, read_answers
from spark_jobs.sources.export_folder import EXPORT_BACKEND, MANIFEST, TABLES, Export, read_export
from spark_jobs.sources.policies import (
    KEPT,
    Namespace,
    declared_namespaces,
    declared_otherwise,
    read_namespaces,
)

KAFKA_SERVERS_FILE = "kafka_servers"
"""Optional file next to region.json: the region's `bootstrap_servers` for readers outside of the regions' network."""


@dataclass(frozen=True, slots=True)
class RegionLog:
    """Location of one region's log."""

    region: str
    backend: str
    """Backend: sqlite, kafka or memory; export: an export contains the log."""
    path: str
    """Path on this machine; sqlite: of the file; export: of its directory."""
    bootstrap_servers: str = ""
    """kafka: host:port[,host:port...] as reachable from this machine."""
    options: dict[str, Any] = field(default_factory=dict)
    """kafka: options of the region (TLS, SASL, topic prefix)."""
    has_other_clock: bool = False
    """Whether the region's clock was set to another time than that of its machine."""

    @property
    def folder(self) -> Path | None:
        """Directory of the run or export that contains its files; None: the log is not in files."""
        if self.backend == EXPORT_BACKEND:
            return Path(self.path)
        return None if self.backend == "kafka" else Path(self.path).parents[2]

    @property
    def size_bytes(self) -> int:
        """Approximate size of its files."""
        return _size_of(Path(f"{self.path}{suffix}") for suffix in ("", "-wal"))


@dataclass(frozen=True, slots=True)
class EvidenceDamage:
    """Evidence that is missing or unreadable."""

    sentence: str
    region: str | None = None
    """Region whose log or stored values are damaged; None: the history or the run as a whole."""


def folder_of(logs: Iterable[RegionLog]) -> Path | None:
    """Return the directory that contains files of any of the logs; None if no log is in files."""
    return next((log.folder for log in logs if log.folder is not None), None)


Link = tuple[str, str]
"""Source and target region."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The content of a run directory, and its damages."""

    path: Path
    regions: tuple[str, ...]
    """Regions of the topology in its order, then other regions with a folder."""
    clusters: dict[str, str]
    """Region -> its cluster, where known."""
    logs: tuple[RegionLog, ...]
    """Locations of the logs; a region without a location has a damage."""
    namespaces: dict[str, Namespace]
    latency_ms_max: float
    """Highest one-way latency of all links."""
    history: tuple[Path, ...]
    damages: tuple[EvidenceDamage, ...]
    in_network: bool = False
    """Whether logs are reached at the addresses that the regions use."""
    contracts: tuple[Contract, ...] = ()
    """Contracts of services, as declared for the run."""
    routes: Mapping[Link, tuple[Link, ...]] = field(default_factory=dict)
    """Link (from, to) -> the links over which it is routed, in order, if it is not direct."""
    latencies_ms: Mapping[Link, float] = field(default_factory=dict)
    """Each declared link -> its one-way latency."""
    export: Export | None = None
    """The export of a run that the directory contains; None: the directory is that of the run."""

    def trims(self, topic: str) -> bool:
        """Return whether a policy of the topic or of its namespace trims old entries of the topic."""
        namespace = self.namespaces.get(topic.partition("://")[2].rpartition("/")[0])
        if namespace is None:
            return False
        owner = str(TopicName.parse(topic).partitioned or topic)  # a partition has the policies of its topic
        return namespace.lifetime.trims or namespace.own_lifetimes.get(owner, KEPT).trims

    @property
    def size_bytes(self) -> int:
        """Approximate size of logs and histories."""
        if self.export is not None:
            return self.export.size_bytes
        return sum(log.size_bytes for log in self.logs) + _size_of(self.history)


@dataclass(frozen=True, slots=True)
class _Topology:
    """The parts of topology.json that the verdict uses."""

    clusters: dict[str, str] = field(default_factory=dict)
    """Region -> its cluster."""
    backends: dict[str, str] = field(default_factory=dict)
    """Region -> backend of its log."""
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    latencies_ms: Mapping[Link, float] = field(default_factory=dict)
    """Link -> its one-way latency."""
    routes: Mapping[Link, tuple[Link, ...]] = field(default_factory=dict)

    @property
    def linked(self) -> frozenset[str]:
        """Regions at the ends of links."""
        return frozenset(region for link in self.latencies_ms for region in link)


def looks_like_a_run(path: Path) -> bool:
    """Return whether the directory contains any file of a run or of an export, even a damaged one."""
    parts = ("run.json", "topology.json", "regions", "history", MANIFEST, TABLES)
    return any((path / part).exists() for part in parts)


def is_simulated(path: Path) -> bool:
    """Return whether a run was simulated: its evidence was written at once when its virtual time ended, with the
    configuration stores, which no region.json names."""
    try:
        return bool(parse_json((path / "run.json").read_text())["runtime"] == "simulated")
    except (OSError, ValueError, TypeError, KeyError):
        return False


def open_run_folder(path: Path, *, in_network: bool = False) -> RunFolder:
    """Find the files of a run directory, or of its export. An absent directory counts as an empty one. `in_network`:
    this process is in the network of the regions, and connects to Kafka at their addresses. Raises ExportUnreadable."""
    path = path.absolute()
    export = read_export(path)
    damages = [] if (path / "run.json").is_file() else [EvidenceDamage(f"run.json is missing from {path}")]
    topology, problems = _read_topology(path / "topology.json")
    damages += problems
    declared = topology.clusters
    folders, problems = _region_folders(path / "regions")
    damages += problems
    undeclared = [name for name in folders if name not in declared]
    regions = [*declared, *undeclared]
    if declared:  # else topology.json is unreadable
        damages += [
            EvidenceDamage(f"topology.json has no region {name}, but the folder regions/{name} exists", name)
            for name in undeclared
        ]
    logs = []
    for region in regions:
        if region not in folders:
            damages.append(EvidenceDamage(f"the folder regions/{region} is missing", region))
            continue
        backend = topology.backends.get(region, "sqlite")
        log, problems = _region_log(path / "regions" / region, backend, in_network)
        logs.append(log if export is None else replace(log, backend=EXPORT_BACKEND, path=str(path)))
        damages += problems
    namespaces, unreadable = read_namespaces(path, topology.namespaces)
    damages += map(EvidenceDamage, unreadable)
    damages += forgotten_regions("topology.json", _named_regions(topology, namespaces), regions)
    damages += _namespace_damages(path, [log.region for log in logs], topology)
    damages += _manifest_damages(path)
    contracts, contract_damages = _read_contracts(path)
    damages += contract_damages
    history, problems = _history_files(path / "history") if export is None else ((), [])
    if not regions:
        damages.append(EvidenceDamage(f"no log of a region is in {path / 'regions'}"))
    return RunFolder(
        path=path,
        regions=tuple(regions),
        clusters=declared,
        logs=tuple(logs),
        namespaces=namespaces,
        latency_ms_max=max(topology.latencies_ms.values(), default=0.0),
        history=history,
        damages=(*damages, *problems),
        in_network=in_network,
        contracts=contracts,
        routes=topology.routes,
        latencies_ms=topology.latencies_ms,
        export=export,
    )


def _region_folders(regions: Path) -> tuple[list[str], list[EvidenceDamage]]:
    names = sorted(folder.name for folder in regions.glob("*/"))
    damages = [
        EvidenceDamage(f"the folder regions/{readable(name)} cannot be read under that name")
        for name in names
        if not is_unicode(name)
    ]
    return [name for name in names if is_unicode(name)], damages


def forgotten_regions(where: str, named: Iterable[str], known: Iterable[str]) -> list[EvidenceDamage]:
    """Return a damage for each region that `where` names and that has neither a folder nor an entry in the run."""
    return [
        EvidenceDamage(
            f"{where} names region {region}, of which the run has no folder and no entry in a cluster", region
        )
        for region in sorted(set(named) - set(known))
    ]


def _named_regions(topology: _Topology, namespaces: Mapping[str, Namespace]) -> set[str]:
    shared = {region for one in namespaces.values() for region in one.regions}
    own = {
        region for one in namespaces.values() for topic in one.own_topics.values() for region in topic.regions
    }
    return shared | own | topology.linked


def _read_contracts(path: Path) -> tuple[tuple[Contract, ...], list[EvidenceDamage]]:
    try:
        return read_answers(path), []
    except (OSError, ValueError) as problem:
        return (), [EvidenceDamage(f"the service's contract cannot be read: {problem}")]


def _manifest_damages(path: Path) -> list[EvidenceDamage]:
    """Return a damage if the manifest, which is optional, is present and unreadable."""
    if (path / MADE_BY_FILE).exists() and read_made_by(path) is None:
        return [EvidenceDamage(f"{MADE_BY_FILE} cannot be read: the scenario and its steps are unknown")]
    return []


def _size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _read_topology(path: Path) -> tuple[_Topology, list[EvidenceDamage]]:
    """Read the output of `Topology.to_json`; the result is empty if the file is unreadable or has another shape."""
    try:
        return _topology_of(parse_json(path.read_text())), []
    except FileNotFoundError:
        reason = f"topology.json is missing from {path.parent}"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        reason = f"topology.json cannot be read: {problem}"
    return _Topology(), [EvidenceDamage(reason)]


def _topology_of(raw: Mapping[str, Any]) -> _Topology:
    regions = [(cluster, region) for cluster in raw["clusters"] for region in cluster["regions"]]
    links, namespaces = raw["links"], declared_namespaces(raw["namespaces"])
    topology = _Topology(
        clusters={region["name"]: cluster["name"] for cluster, region in regions},
        backends={region["name"]: region["log"]["backend"] for _, region in regions},
        namespaces=namespaces,
        latencies_ms={(link["source"], link["target"]): float(link["shape"]["latency_ms"]) for link in links},
        routes={
            (link["source"], link["target"]): tuple(pairwise([link["source"], *link["via"], link["target"]]))
            for link in links
            if link.get("via")
        },
    )
    of_namespaces = {region for one in namespaces.values() for region in one.regions}
    passed = {region for link in links for region in link.get("via", ())}
    names = {*topology.clusters, *topology.clusters.values(), *topology.linked, *passed}
    names |= {*namespaces, *of_namespaces}
    if other := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"{other[0]!r} is no name")
    return topology


def _region_log(
    folder: Path, declared_backend: str, in_network: bool
) -> tuple[RegionLog, list[EvidenceDamage]]:
    """Return the location of a region's log. `folder`: folder of the region; `declared_backend`: as in the topology."""
    region, damages = folder.name, []
    log: Mapping[str, Any] = {}
    has_other_clock = False
    try:
        config = parse_json((folder / "region.json").read_text())
        read = config["log"]
        backend, log = read["backend"], read
        has_other_clock = bool(config.get("clock_ahead_ms") or config.get("clock_drift_ppm"))
    except (OSError, ValueError, TypeError, KeyError) as problem:
        reason = "is missing" if isinstance(problem, FileNotFoundError) else f"cannot be read: {problem}"
        damages.append(EvidenceDamage(f"regions/{region}/region.json {reason}", region))
        backend = declared_backend
    # Not the path in region.json: a container has other paths, and a copy of the run has those of the original.
    servers = log.get("bootstrap_servers", "")
    # A region in a container may use an address of Kafka that is not valid on this machine.
    if not in_network and (addresses := folder / KAFKA_SERVERS_FILE).is_file():
        try:
            servers = addresses.read_text().strip()
        except ValueError as problem:
            damages.append(
                EvidenceDamage(f"regions/{region}/{addresses.name} cannot be read: {problem}", region)
            )
    path = str(folder / "log.sqlite")
    return RegionLog(region, backend, path, servers, log.get("options", {}), has_other_clock), damages


def _namespace_damages(path: Path, with_folder: Iterable[str], topology: _Topology) -> list[EvidenceDamage]:
    """Return a damage for each namespace that topology.json and the configurations of regions declare differently. All
    of them were written from the same topology."""
    if not topology.clusters:
        return []
    differing: dict[str, list[str]] = {}
    damages = []
    for region in with_folder:
        try:
            config = parse_json((path / "regions" / region / "region.json").read_text())
        except (OSError, ValueError):
            continue  # reported with the log
        try:
            for name in declared_otherwise(config, topology.namespaces):
                differing.setdefault(name, []).append(region)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            sentence = (
                f"the namespaces or settings in regions/{region}/region.json cannot be read: {problem!r}"
            )
            damages.append(EvidenceDamage(sentence, region))
    return damages + [
        EvidenceDamage(
            f"topology.json and region.json of {' and '.join(regions)} declare namespace {name} differently"
        )
        for name, regions in sorted(differing.items())
    ]


def _history_files(folder: Path) -> tuple[tuple[Path, ...], list[EvidenceDamage]]:
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        return (), [
            EvidenceDamage("the folder history/ has no history: the operations of the clients are unknown")
        ]
    folders = [file for file in files if not file.is_file()]
    # Spark treats files with the first kind of names as hidden and skips them silently; Arrow has UTF-8 only.
    unusable = [file for file in files if file.name.startswith(("_", ".")) or not is_unicode(file.name)]
    damages = [
        EvidenceDamage(f"history/{readable(file.name)} cannot be read under that name; rename it")
        for file in unusable
    ]
    damages += [EvidenceDamage(f"history/{readable(file.name)} is not a file") for file in folders]
    return tuple(file for file in files if file not in [*unusable, *folders]), damages
