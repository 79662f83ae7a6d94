"""A topology graph as the text of a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.cli.topology_graph import GraphLink, GraphRegion, TopologyGraph


def as_mermaid(graph: TopologyGraph) -> str:
    """Return a flowchart that Markdown pages of GitHub and others show as a figure."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: TopologyGraph) -> Iterator[str]:
    regions = [one for cluster in graph.clusters.values() for one in cluster]
    names = {one.name: f"r{number}" for number, one in enumerate(regions)}
    yield "flowchart LR"
    for number, (cluster, members) in enumerate(graph.clusters.items()):
        yield f'  subgraph c{number}["{_quoted(cluster)}"]'
        yield from (f'    {names[one.name]}["{_quoted(_text(one))}"]' for one in members)
        yield "  end"
    for link in graph.links:
        yield f'  {names[link.source]} {_arrow(link)}|"{_quoted(link.label)}"| {names[link.target]}'
    down = [names[one.name] for one in regions if not one.is_up]
    if down:
        yield "  classDef down stroke-dasharray: 4 3"
        yield f"  class {','.join(down)} down"


def _text(region: GraphRegion) -> str:
    return region.name if region.is_up else f"{region.name} ({region.state})"


def _arrow(link: GraphLink) -> str:
    """Return the arrow: dotted unless the link is up, with two heads for both directions."""
    body = "-->" if link.is_up else "-.->"
    return f"<{body}" if link.is_two_way else body


def _quoted(text: str) -> str:
    """Return a text for a place between quotes: Mermaid has entities with `#` instead of `&`."""
    return "".join(one if one.isalnum() or one in " -_.,/()" else f"#{ord(one)};" for one in text)
