"""A topology as a graph: regions in clusters, and the direct links between them with latency and state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from emulator.config.link_shape import LinkShape
from emulator.config.shapes import Link
from emulator.config.topology import Topology
from emulator.runtimes.contract import RunStatus


@dataclass(frozen=True, slots=True)
class GraphRegion:
    """A region of the graph."""

    name: str
    state: str = ""
    """Its state in a run; empty: the graph is of a topology."""

    @property
    def is_up(self) -> bool:
        return self.state in ("", "running")


@dataclass(frozen=True, slots=True)
class GraphLink:
    """One direction of a link, or both if they are alike."""

    source: str
    target: str
    label: str
    """Its latency, and its state unless it is up."""
    is_up: bool
    is_two_way: bool


@dataclass(frozen=True, slots=True)
class TopologyGraph:
    """The regions of each cluster, and the direct links between them. Links that pass other regions are left out: their
    latency is the sum of those that they pass."""

    name: str
    clusters: Mapping[str, tuple[GraphRegion, ...]]
    links: tuple[GraphLink, ...]


def graph_of(topology: Topology, status: RunStatus | None = None) -> TopologyGraph:
    """Return the graph of a topology; with `status`, of a run of it with the present states and latencies."""
    states = {one.name: one.state for one in status.regions} if status else {}
    shapes = {(one.source, one.target): one.shape for one in topology.links if not one.via}
    if status is not None:
        present = {(one.source, one.target): one.shape for one in status.links}
        shapes = {link: present.get(link, shape) for link, shape in shapes.items()}
    clusters = {
        cluster.name: tuple(GraphRegion(one.name, states.get(one.name, "")) for one in cluster.regions)
        for cluster in topology.clusters
    }
    return TopologyGraph(topology.name, clusters, tuple(_links(shapes)))


def _links(shapes: Mapping[Link, LinkShape]) -> Iterator[GraphLink]:
    """Yield each pair of regions once if both directions are alike, otherwise each direction."""
    for (source, target), shape in shapes.items():
        back = shapes.get((target, source))
        alike = back is not None and (_label(back), back.state) == (_label(shape), shape.state)
        if alike and list(shapes).index((target, source)) < list(shapes).index((source, target)):
            continue
        yield GraphLink(source, target, _label(shape), shape.state == "up", alike)


def _label(shape: LinkShape) -> str:
    latency = f"{shape.latency_ms:g} ms"
    return latency if shape.state == "up" else f"{latency}, {shape.state}"
