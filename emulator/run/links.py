"""Changes of links in a run record: a link that is routed over others changes with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from emulator.config.link_shape import LinkShape
from emulator.config.shapes import Link, with_routes
from emulator.config.topology import Topology
from emulator.errors import Refused
from emulator.model.values import CLIENTS
from emulator.run.directory import refuse_unknown
from emulator.run.record import RunRecord, links_of


def change_links(
    record: RunRecord,
    topology: Topology,
    links: Iterable[Link],
    change: Callable[[Link, LinkShape], LinkShape],
) -> set[Link]:
    """Change the shapes that links were given themselves. Return these links and the ones whose shapes changed with
    them, because they are routed over them. Raises Refused if a link is not in the run."""
    own = record.links | record.own_links
    changed = set(links)
    for link in changed:
        refuse_unknown_link(record, link)
        own[link] = change(link, own[link])
    current = with_routes(own, links_of(topology), topology.routes)
    changed |= {link for link, shape in current.items() if shape != record.links[link]}
    record.links = current
    record.own_links = {link: shape for link, shape in own.items() if shape != current[link]}
    return changed


def refuse_unknown_link(record: RunRecord, link: Link) -> None:
    """Raise Refused if a link is not in the run."""
    for end in link:
        if end != CLIENTS:
            refuse_unknown("region", end, record.regions)
    if link not in record.links:
        raise Refused(f"no link {' -> '.join(link)}: name two different regions")
