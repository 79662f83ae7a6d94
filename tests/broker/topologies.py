"""Topologies of simulated worlds with several clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.config.region import NamespaceConfig
from emulator.config.topology import ClusterSpec, LinkSpec, RegionSpec, Topology
from emulator.simulation.world import SERVICE_PORT


def clusters(
    *groups: Sequence[str], settings: BrokerSettings | None = None, exclusive_home: str = ""
) -> Topology:
    """Return a topology with one cluster for each group of regions; all share the namespace public/default."""
    names = tuple(name for group in groups for name in group)
    chosen = settings or BrokerSettings()

    def region(name: str, cluster: str) -> RegionSpec:
        return RegionSpec(name, cluster, host=name, service_port=SERVICE_PORT, settings=chosen)

    return Topology(
        name="world",
        path=Path("topology.yaml"),
        clusters=tuple(
            ClusterSpec(f"c-{group[0]}", tuple(region(name, f"c-{group[0]}") for name in group))
            for group in groups
        ),
        links=tuple(
            LinkSpec(one, two, LinkShape(latency_ms=20.0)) for one in names for two in names if one != two
        ),
        namespaces=(
            NamespaceConfig("public/default", names, deduplication=True, exclusive_home=exclusive_home),
        ),
    )
