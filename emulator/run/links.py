"""Changes of links in a run record: a link that is routed over others changes with them."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.config.region import LinkShape
from emulator.config.shapes import Link, with_routes
from emulator.config.topology import Topology
from emulator.run.directory import RunRecord, links_of


def change_links(record: RunRecord, topology: Topology, shapes: Mapping[Link, LinkShape]) -> set[Link]:
    """Give links these shapes of their own. Return them and the links whose shapes changed with them, because they are
    routed over them."""
    own = {**record.links, **record.own_links, **shapes}
    current = with_routes(own, links_of(topology), topology.routes)
    changed = {link for link, shape in current.items() if shape != record.links[link]}
    record.links = current
    record.own_links = {link: shape for link, shape in own.items() if shape != current[link]}
    return changed | shapes.keys()


def own_shape(record: RunRecord, link: Link) -> LinkShape:
    """Return the shape that a link was given itself; its hops may make it slower or cut it."""
    return record.own_links.get(link, record.links[link])
