"""The files of a run directory, present and required.

Imports no engine: Spark and SQLite come later. Each missing or unreadable file becomes a damage, a sentence that
keeps the verdict from being valid; nothing here raises for the state of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.model.values import TopicName
from emulator.run.service_contract import Contract, read_answers
from spark_jobs.sources.policies import KEPT, Namespace, read_namespaces

KAFKA_SERVERS_FILE = "kafka_servers"
"""Beside region.json, where there is one: the region's `bootstrap_servers` for those who read the run from outside
of the regions' network."""


@dataclass(frozen=True, slots=True)
class RegionLog:
    """Where one region's log is."""

    region: str
    backend: str
    """sqlite, kafka or memory."""
    path: str
    """sqlite: the file, as this machine sees it."""
    bootstrap_servers: str = ""
    """kafka: host:port[,host:port...], as this machine sees them."""
    options: dict[str, Any] = field(default_factory=dict)
    """kafka: options of the region (TLS, SASL, topic prefix)."""

    @property
    def size_bytes(self) -> int:
        """Of its files, about."""
        return _size_of(Path(f"{self.path}{suffix}") for suffix in ("", "-wal"))


@dataclass(frozen=True, slots=True)
class EvidenceDamage:
    """A piece of evidence that is missing or cannot be read."""

    sentence: str
    region: str | None = None
    """Whose log it is; None: the history or the run as a whole."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run directory as found."""

    path: Path
    regions: tuple[str, ...]
    """All that there ought to be, in the order of the topology."""
    clusters: dict[str, str]
    """Region -> its cluster, where known."""
    logs: tuple[RegionLog, ...]
    """Those that can be looked for; a region without one has a damage."""
    namespaces: dict[str, Namespace]
    latency_ms_max: float
    """The slowest link's, one way."""
    history: tuple[Path, ...]
    damages: tuple[EvidenceDamage, ...]
    in_network: bool = False
    """Logs are called as the regions call them."""
    contracts: tuple[Contract, ...] = ()
    """Contracts of services that were declared for the run."""

    def trims(self, topic: str) -> bool:
        """Whether a policy lets old entries of the topic go."""
        namespace = self.namespaces.get(topic.partition("://")[2].rpartition("/")[0])
        if namespace is None:
            return False
        owner = str(TopicName.parse(topic).partitioned or topic)  # a partition has the policies of its topic
        return namespace.lifetime.trims or namespace.own_lifetimes.get(owner, KEPT).trims

    @property
    def size_bytes(self) -> int:
        """About how much there is to read."""
        return sum(log.size_bytes for log in self.logs) + _size_of(self.history)


def looks_like_a_run(path: Path) -> bool:
    """Whether anything of a run is there, be it damaged."""
    return any((path / part).exists() for part in ("run.json", "topology.json", "regions", "history"))


def open_run_folder(path: Path, *, in_network: bool = False) -> RunFolder:
    """Look at what is there. An absent folder is a folder without anything in it. `in_network`: this is a container
    in the network of the regions, and finds a Kafka where they do."""
    path = path.absolute()
    damages = [] if (path / "run.json").is_file() else [EvidenceDamage(f"run.json is missing from {path}")]
    topology, problems = _read_topology(path / "topology.json")
    damages += problems
    declared = {
        region["name"]: {**region, "cluster": cluster["name"]}
        for cluster in topology["clusters"]
        for region in cluster["regions"]
    }
    folders = sorted(folder.name for folder in (path / "regions").glob("*/"))
    regions = [*declared, *(name for name in folders if name not in declared)]
    logs = []
    for region in regions:
        if region not in folders:
            damages.append(EvidenceDamage(f"the folder regions/{region} is missing", region))
            continue
        log, problems = _region_log(
            path / "regions" / region, declared.get(region, {}).get("log", {}), in_network
        )
        logs.append(log)
        damages += problems
    namespaces, unreadable = read_namespaces(path, topology["namespaces"])
    damages += map(EvidenceDamage, unreadable)
    damages += forgotten_regions("topology.json", _named_regions(topology, namespaces), regions)
    contracts, contract_damages = _read_contracts(path)
    damages += contract_damages
    history, problems = _history_files(path / "history")
    if not regions:
        damages.append(EvidenceDamage(f"no log of a region is in {path / 'regions'}"))
    return RunFolder(
        path=path,
        regions=tuple(regions),
        clusters={name: region["cluster"] for name, region in declared.items()},
        logs=tuple(logs),
        namespaces=namespaces,
        latency_ms_max=max((link["shape"]["latency_ms"] for link in topology["links"]), default=0.0),
        history=history,
        damages=(*damages, *problems),
        in_network=in_network,
        contracts=contracts,
    )


def forgotten_regions(where: str, named: Iterable[str], known: Iterable[str]) -> list[EvidenceDamage]:
    """Regions that `where` names and of which the run has neither a folder nor an entry: their logs are gone."""
    return [
        EvidenceDamage(
            f"{where} names region {region}, of which the run has no folder and no entry in a cluster", region
        )
        for region in sorted(set(named) - set(known))
    ]


def _named_regions(topology: Mapping[str, Any], namespaces: Mapping[str, Namespace]) -> set[str]:
    linked = {link.get(end) for link in topology["links"] for end in ("source", "target")}
    shared = {region for one in namespaces.values() for region in one.regions}
    own = {
        region for one in namespaces.values() for topic in one.own_topics.values() for region in topic.regions
    }
    return (linked - {None}) | shared | own


def _read_contracts(path: Path) -> tuple[tuple[Contract, ...], list[EvidenceDamage]]:
    try:
        return read_answers(path), []
    except (OSError, ValueError) as problem:
        return (), [EvidenceDamage(f"the service's contract cannot be read: {problem}")]


def _size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _read_topology(path: Path) -> tuple[dict[str, Any], list[EvidenceDamage]]:
    """What `Topology.to_json` wrote, reduced to what is needed here; empty when it cannot be read."""
    wanted = ("clusters", "namespaces", "links")
    try:
        topology = json.loads(path.read_text())
        return {name: topology[name] for name in wanted}, []
    except FileNotFoundError:
        reason = f"topology.json is missing from {path.parent}"
    except (OSError, ValueError, TypeError, KeyError) as problem:
        reason = f"topology.json cannot be read: {problem}"
    return {name: [] for name in wanted}, [EvidenceDamage(reason)]


def _region_log(
    folder: Path, declared: dict[str, Any], in_network: bool
) -> tuple[RegionLog, list[EvidenceDamage]]:
    """Where the log of the region with this folder is; `declared`: its entry in the topology."""
    region, damages = folder.name, []
    log: dict[str, Any] = {}
    try:
        log = json.loads((folder / "region.json").read_text())["log"]
        backend = log["backend"]
    except (OSError, ValueError, TypeError, KeyError) as problem:
        reason = "is missing" if isinstance(problem, FileNotFoundError) else f"cannot be read: {problem}"
        damages.append(EvidenceDamage(f"regions/{region}/region.json {reason}", region))
        backend = declared.get("backend", "sqlite")
    # Not the path written in region.json: in a container that is another one, and in a copy the original's.
    servers = log.get("bootstrap_servers", "")
    # A region in a container may know its Kafka by a name that means nothing here.
    if not in_network and (addresses := folder / KAFKA_SERVERS_FILE).is_file():
        servers = addresses.read_text().strip()
    path = str(folder / "log.sqlite")
    return RegionLog(region, backend, path, servers, log.get("options", {})), damages


def _history_files(folder: Path) -> tuple[tuple[Path, ...], list[EvidenceDamage]]:
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        return (), [
            EvidenceDamage("the folder history/ has no history: the operations of the clients are unknown")
        ]
    # Spark takes files with such names for its own and passes over them without a word.
    hidden = [file for file in files if file.name.startswith(("_", "."))]
    damages = [
        EvidenceDamage(f"history/{file.name} cannot be read under that name; rename it") for file in hidden
    ]
    return tuple(file for file in files if file not in hidden), damages
