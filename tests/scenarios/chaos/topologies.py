"""Topologies for plans of random faults."""

from __future__ import annotations

from pathlib import Path

from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology


def topology_of(count: int) -> Topology:
    """Return a topology with this number of regions, all linked, and one namespace."""
    names = tuple(f"region-{index}" for index in range(count))
    return Topology(
        name="test",
        path=Path("topology.yaml"),
        clusters=(ClusterSpec("all", tuple(RegionSpec(name, "all") for name in names)),),
        links=tuple(LinkSpec(a, b, LinkShape()) for a in names for b in names if a != b),
        namespaces=(NamespaceConfig("public/default", names, deduplication=True),),
    )
