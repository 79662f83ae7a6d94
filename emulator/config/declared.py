"""What `topology.yaml` and `clusters/*.yaml` say, each file read and checked by itself: YAML (`yaml_file`), then
fields (`topology_models`). What must hold between the parts is for `topology_relations`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from emulator.config.models import ClusterFile, RegionPart, RegionSettings, TopologyFile
from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile, read_yaml
from emulator.errors import Problem


@dataclass(slots=True)
class DeclaredCluster:
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
class DeclaredTopology:
    """All that was read."""

    file: YamlFile
    content: TopologyFile | None
    """Without what was wrong in it."""
    clusters: list[DeclaredCluster] = field(default_factory=list)
    """Those that have a file."""
    clusters_missing: bool = False

    def files(self) -> list[YamlFile]:
        return [self.file, *(cluster.file for cluster in self.clusters)]

    def region_names(self) -> list[str]:
        return [name for cluster in self.clusters for name in cluster.written_names]

    def regions(self) -> Iterator[tuple[DeclaredCluster, str, RegionPart]]:
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


def read_declared(path: Path) -> DeclaredTopology:
    file = read_yaml(path)
    declared = DeclaredTopology(file, file.check(TopologyFile))
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
                ("clusters", index), f"must have its file {cluster_path}, which does not exist", existing
            )
            declared.clusters_missing = True
            continue
        cluster_file = read_yaml(cluster_path)
        declared.clusters.append(DeclaredCluster(name, cluster_file, cluster_file.check(ClusterFile)))
    return declared


def in_reading_order(file: YamlFile) -> list[Problem]:
    return sorted(dict.fromkeys(file.problems), key=lambda problem: problem.line or 0)


SettingsLevel = tuple[YamlFile, KeyPath, RegionSettings | None]


def settings_levels(declared: DeclaredTopology) -> dict[str, list[SettingsLevel]]:
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
