"""Shapes of topologies: which regions have a direct link, and over which regions the other links are routed.

Pulsar replicates a namespace between all pairs of its regions: the region in which a message was published sends it
to each other region itself, and no region forwards messages of another one. A shape therefore does not change what is
replicated. It describes the network below the regions: between two regions without a direct link, bytes pass the
networks of other regions, but not their brokers. Latencies of a route add up, and its smallest bandwidth applies. A
cut, held or slow hop affects every link that is routed over it; a killed region affects none. The first region is the
first one of the first cluster. A link with an exception of its own (`links.exceptions`) is direct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Literal

from emulator.config.link_shape import LinkShape

ShapeName = Literal["mesh", "ring", "hub", "chain", "active-standby"]
Link = tuple[str, str]
"""Source and target region."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of topology."""

    links: str
    """Which regions have a direct link, and the route between the others."""
    use: str
    """What it stands for."""


SHAPES: dict[ShapeName, Shape] = {
    "mesh": Shape("every pair of regions", "the default: a cloud whose regions all reach each other"),
    "ring": Shape(
        "neighbours in the order of the files, and the last region with the first one; the others over the shorter way "
        "round, or, if both are equally long, over the regions that the files name between them",
        "sites on a ring of cables. Routes do not change: a cut hop cuts the links that are routed over it",
    ),
    "hub": Shape(
        "the first region with each other one; the others over the first region",
        "branch offices and a data centre",
    ),
    "chain": Shape(
        "neighbours in the order of the files; the others over the regions between them",
        "sites along one cable",
    ),
    "active-standby": Shape(
        "every pair of regions",
        "clients publish in the first region only: it is the `exclusive_home` of every namespace that is replicated "
        "to it and names no other one. A fail-over sets this policy to another region",
    ),
}
"""Shape by name."""


def routes(shape: ShapeName, regions: Sequence[str]) -> dict[Link, tuple[str, ...]]:
    """Return for each ordered pair of different regions the regions that its route passes; none: a direct link. The way
    back is the same."""
    found: dict[Link, tuple[str, ...]] = {}
    for later in range(len(regions)):
        for first in range(later):
            via = tuple(regions[index] for index in _between(shape, first, later, len(regions)))
            found[regions[first], regions[later]] = via
            found[regions[later], regions[first]] = via[::-1]
    return found


def _between(shape: ShapeName, first: int, later: int, count: int) -> Iterator[int]:
    """Yield the indexes of the regions that are passed from `first` to `later`."""
    forward = range(first + 1, later)
    match shape:
        case "mesh" | "active-standby":
            yield from ()
        case "hub":
            yield from (0,) if first else ()
        case "chain":
            yield from forward
        case "ring":
            backward = (*range(first - 1, -1, -1), *range(count - 1, later, -1))
            yield from forward if len(forward) <= len(backward) else backward


def hops(link: Link, via: Sequence[str]) -> list[Link]:
    """Return the links over which a link is routed, in order; the link itself if it is direct."""
    stops = [link[0], *via, link[1]]
    return list(pairwise(stops))


def joined(shapes: Sequence[LinkShape]) -> LinkShape:
    """Return the shape of a route over links of these shapes: latencies and jitters add up, the smallest bandwidth
    applies, and the route is cut or held if one of them is. It stalls as the link that stalls for the largest part of
    the time, and flaps as the link that is up for the smallest one."""
    bandwidths = [shape.bandwidth_bytes_per_second for shape in shapes]
    states = {shape.state for shape in shapes}
    stalling = max(shapes, key=lambda shape: shape.stall_ms / shape.stall_every_ms if shape.stall_ms else 0)
    flapping = min(shapes, key=lambda shape: shape.flap_up if shape.flap_period_ms else 1)
    return LinkShape(
        latency_ms=sum(shape.latency_ms for shape in shapes),
        jitter_ms=sum(shape.jitter_ms for shape in shapes),
        bandwidth_bytes_per_second=min((limit for limit in bandwidths if limit is not None), default=None),
        state=next((state for state in ("cut", "held") if state in states), "up"),
        stall_every_ms=stalling.stall_every_ms,
        stall_ms=stalling.stall_ms,
        flap_period_ms=flapping.flap_period_ms,
        flap_up=flapping.flap_up,
    )


def with_routes(
    links: Mapping[Link, LinkShape], declared: Mapping[Link, LinkShape], via: Mapping[Link, Sequence[str]]
) -> dict[Link, LinkShape]:
    """Return the shapes of all links while `links` are the shapes that each link was given itself.

    A routed link follows its hops in every field in which it was not given another value than `declared`.
    """
    return {
        link: _over(shape, declared[link], [links[hop] for hop in hops(link, via[link])])
        if via.get(link)
        else shape
        for link, shape in links.items()
    }


def _over(own: LinkShape, declared: LinkShape, hop_shapes: Sequence[LinkShape]) -> LinkShape:
    route = joined(hop_shapes)
    changed = {
        field.name: value
        for field in fields(LinkShape)
        if (value := getattr(own, field.name)) != getattr(declared, field.name)
    }
    return replace(route, **changed | {"state": joined([own, route]).state})
