"""A topology graph as an SVG figure: regions on a circle, each cluster as a band behind its regions.

The positions follow from the order of the topology, so the same topology is the same figure. Its colours follow the
light or dark scheme of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from emulator.cli.topology_graph import GraphLink, GraphRegion, TopologyGraph

CHARACTER: Final = 7.5
"""Assumed width of a character in pixels."""
BOX_HEIGHT: Final = 34.0
LINK_LABEL_AT: Final = 0.36
"""Place of a label on its link, as a part of its length: not the middle, where links of opposite regions cross."""
ONE_WAY_OFFSET: Final = 5.0
"""Distance of a link for one direction from the middle line."""
BAND: Final = 62.0
"""Width of the band of a cluster."""
REGION_SPACE: Final = 130.0
"""Smallest distance of neighbours on the circle."""
LABEL_SPACE: Final = 76.0
"""Space for the label of a link between two neighbours."""
CLUSTER_GAP: Final = 0.35
"""Gap between two clusters, as a part of the angle of a region."""
HEADING: Final = 34.0

_STYLE: Final = """
svg{--ink:#1b2330;--paper:#fff;--band:#e8eef7;--line:#5b6b84;--bad:#b3261e;--box:#fff}
@media (prefers-color-scheme:dark){
svg{--ink:#e6eaf2;--paper:#12161d;--band:#212b3a;--line:#94a5c0;--bad:#ff8a80;--box:#1b2330}}
text{font:13px system-ui,sans-serif;fill:var(--ink);text-anchor:middle;dominant-baseline:central}
.paper{fill:var(--paper)}.band{fill:var(--band)}.cluster{font-weight:600}.title{font-size:15px;font-weight:600}
.box{fill:var(--box);stroke:var(--line)}.link{stroke:var(--line);stroke-width:1.4;fill:none}
.label{font-size:11.5px;paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.head{fill:var(--line)}.bad .link,.bad .box{stroke:var(--bad);stroke-dasharray:5 4}.bad .head,.bad text{fill:var(--bad)}
"""


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float

    def towards(self, other: _Place, part: float) -> _Place:
        return _Place(self.x + (other.x - self.x) * part, self.y + (other.y - self.y) * part)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything is: the centre of the circle, its radius, and an angle for each region."""

    centre: _Place
    radius: float
    angles: Mapping[str, float]
    step: float
    """Angle between neighbours of a cluster."""
    box_width: float

    def at(self, angle: float, radius: float) -> _Place:
        return _Place(self.centre.x + radius * math.cos(angle), self.centre.y + radius * math.sin(angle))

    def place(self, region: str) -> _Place:
        return self.at(self.angles[region], self.radius)


def as_svg(graph: TopologyGraph) -> str:
    """Return the figure as the text of an SVG file."""
    layout = _layout(graph)
    width, height = 2 * layout.centre.x, layout.centre.y * 2 - HEADING
    title = escape(graph.name)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="Topology {title}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="title" x="{layout.centre.x:.1f}" y="{HEADING / 2 + 4:.1f}">{title}</text>',
        *(_band(layout, name, members) for name, members in graph.clusters.items()),
        *(_link(layout, link) for link in graph.links),
        *(_box(layout, one) for members in graph.clusters.values() for one in members),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _layout(graph: TopologyGraph) -> _Layout:
    members = [members for members in graph.clusters.values() if members]
    count = sum(map(len, members))
    step = 2 * math.pi / max(1, count + CLUSTER_GAP * len(members))
    longest = max((len(_text(one)) for group in members for one in group), default=0)
    box_width = max(84.0, longest * CHARACTER + 24)
    space = max(REGION_SPACE, box_width + LABEL_SPACE)
    radius = max(120.0, space / (2 * math.sin(min(step, math.pi) / 2)))
    angles, angle = {}, -math.pi / 2
    for group in members:
        angle += step * CLUSTER_GAP / 2
        for one in group:
            angles[one.name] = angle
            angle += step
        angle += step * CLUSTER_GAP / 2
    margin = radius + box_width / 2 + max(map(len, graph.clusters), default=0) * CHARACTER + 24
    return _Layout(_Place(margin, margin + HEADING), radius, angles, step, box_width)


def _band(layout: _Layout, name: str, members: tuple[GraphRegion, ...]) -> str:
    """Return the band of a cluster: a part of a ring behind its regions, with its name outside."""
    if not members:
        return ""
    half = layout.step * 0.45
    first, last = layout.angles[members[0].name] - half, layout.angles[members[-1].name] + half
    inner, outer = layout.radius - BAND / 2, layout.radius + BAND / 2
    large = int(last - first > math.pi)
    a, b = layout.at(first, outer), layout.at(last, outer)
    c, d = layout.at(last, inner), layout.at(first, inner)
    middle = (first + last) / 2
    beyond = (layout.box_width / 2 + len(name) * CHARACTER / 2 + 8) * abs(math.cos(middle))
    label = layout.at(middle, max(outer + 14, layout.radius + beyond))
    return (
        f'<path class="band" d="M{_point(a)} A{outer:.1f} {outer:.1f} 0 {large} 1 {_point(b)} L{_point(c)} '
        f'A{inner:.1f} {inner:.1f} 0 {large} 0 {_point(d)} Z"/>'
        f'<text class="cluster" x="{label.x:.1f}" y="{label.y:.1f}">{escape(name)}</text>'
    )


def _link(layout: _Layout, link: GraphLink) -> str:
    source, target = layout.place(link.source), layout.place(link.target)
    start, end = _edge(layout, source, target), _edge(layout, target, source)
    if not link.is_two_way:
        start, end = _beside(start, end), _beside(end, start, -ONE_WAY_OFFSET)
    label = start.towards(end, LINK_LABEL_AT)
    heads = [_head(start, end), *([_head(end, start)] if link.is_two_way else [])]
    return (
        f"<g{_mark(link.is_up)}><title>{escape(_sentence(link))}</title>"
        f'<path class="link" d="M{_point(start)} L{_point(end)}"/>{"".join(heads)}'
        f'<text class="label" x="{label.x:.1f}" y="{label.y:.1f}">{escape(link.label)}</text></g>'
    )


def _beside(place: _Place, other: _Place, offset: float = ONE_WAY_OFFSET) -> _Place:
    """Return the place, moved to the side of the line to `other`: opposite links must not cover each other."""
    x, y = other.x - place.x, other.y - place.y
    length = math.hypot(x, y)
    return _Place(place.x - y / length * offset, place.y + x / length * offset)


def _sentence(link: GraphLink) -> str:
    return f"{link.source} {'<->' if link.is_two_way else '->'} {link.target}: {link.label}"


def _edge(layout: _Layout, inside: _Place, other: _Place) -> _Place:
    """Return the point where a line to another place leaves the box of a region."""
    x, y = other.x - inside.x, other.y - inside.y
    half_width, half_height = layout.box_width / 2 + 3, BOX_HEIGHT / 2 + 3
    part = min(
        half_width / abs(x) if abs(x) > 1e-9 else math.inf,
        half_height / abs(y) if abs(y) > 1e-9 else math.inf,
    )
    return inside.towards(other, min(part, 0.5))


def _head(start: _Place, end: _Place) -> str:
    """Return an arrow head at `end`."""
    angle = math.atan2(end.y - start.y, end.x - start.x)
    sides = (
        _Place(end.x - 9 * math.cos(angle + turn), end.y - 9 * math.sin(angle + turn)) for turn in (0.4, -0.4)
    )
    return f'<path class="head" d="M{_point(end)} L{" L".join(map(_point, sides))} Z"/>'


def _box(layout: _Layout, region: GraphRegion) -> str:
    place, width = layout.place(region.name), layout.box_width
    return (
        f'<g{_mark(region.is_up)}><rect class="box" x="{place.x - width / 2:.1f}" y="{place.y - BOX_HEIGHT / 2:.1f}" '
        f'width="{width:.1f}" height="{BOX_HEIGHT:.0f}" rx="8"/>'
        f'<text x="{place.x:.1f}" y="{place.y:.1f}">{escape(_text(region))}</text></g>'
    )


def _text(region: GraphRegion) -> str:
    return region.name if region.is_up else f"{region.name}: {region.state}"


def _mark(is_up: bool) -> str:
    return "" if is_up else ' class="bad"'


def _point(place: _Place) -> str:
    return f"{place.x:.1f} {place.y:.1f}"
