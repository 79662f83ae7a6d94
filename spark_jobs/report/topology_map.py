"""The map of a run's regions and links as one SVG, with the rows of the table beside it.

        ┌─────────┐
        │ us-east │            regions in a circle, those of a cluster side by side;
        └─────────┘            an arrow for each direction of a link, coloured by its faults
        ⇅        ⇅
┌─────────┐  ⇄  ┌────────────┐
│ us-west │     │ eu-central │
└─────────┘     └────────────┘

Each region and arrow has its faults as `data-periods` (`from to kind` in seconds, separated by semicolons), from which
the page's script shows the state at any moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.figures.links import LinkSummary
from spark_jobs.figures.timeline import RegionLane, Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.picture import BOLD_PX, CHARACTER_PX, escaped, path, rect, shortened, svg, text
from spark_jobs.wording import duration_text

REGIONS_MAX = 12
"""Maximum number of regions on the map; more do not fit, and only the table shows their links."""
LABELLED_REGIONS_MAX = 4
"""Maximum number of regions on a map whose arrows have labels."""
CROWDED_REGIONS = 8
STOPPED = frozenset({"cut", "hold", "half_open"})
"""Kinds of link faults that let nothing through."""
STATE_WORDS = {"up": "up", "hold": "held", "half_open": "half-open"}
PERIODS_MAX = 200
"""Maximum number of faults of one region or link that the script of the page knows."""
LABEL_ROOM_PX = 10
"""Room for a label below the lowest arrow."""
_NODE_PX = 42
_NAME_MAX = 15
_APART_PX = 9
"""Distance of the arrows of a link's two directions from the line between its regions."""
_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Node:
    x: float
    y: float
    half_width: float

    def border(self, shift: _Point, along: _Point) -> _Point:
        """Return where a ray leaves the box and a margin. `shift`: its start relative to the middle of the box;
        `along`: its direction."""
        reach = min(
            (half + 3 - math.copysign(offset, offset * towards)) / abs(towards) if towards else math.inf
            for half, offset, towards in zip((self.half_width, _NODE_PX / 2), shift, along, strict=True)
        )
        return self.x + shift[0] + along[0] * reach, self.y + shift[1] + along[1] * reach


def has_map(timeline: Timeline) -> bool:
    return 0 < len(timeline.lanes) <= REGIONS_MAX


def draw_map(timeline: Timeline, links: Sequence[LinkSummary], width: int) -> str:
    """Return the map as an `<svg>` element. Its text is escaped."""
    height = _height(len(timeline.lanes), width)
    nodes = _nodes(timeline.lanes, width, height)
    labelled = len(nodes) <= LABELLED_REGIONS_MAX and width > 400
    known = [link for link in links if link.source in nodes and link.target in nodes]
    parts = [_arrow(link, nodes, labelled=labelled) for link in known]
    parts += [_box(lane, nodes[lane.region], timeline.down) for lane in timeline.lanes]
    parts += [_arrow_label(link, nodes) for link in known] if labelled else []
    height += LABEL_ROOM_PX if labelled else 0
    title = f"Map of {len(nodes)} regions and {len(known)} links; the table lists every link"
    return svg(parts, width, height, title, "timeline map")


def link_rows(links: Iterable[LinkSummary]) -> list[tuple[str, str, list[str]]]:
    """Return name, tone (a class of the style sheet) and cells of each link, links with faults first: name, state at
    the end, declared latency, median and 99th percentile of the lag, faults."""
    ordered = sorted(links, key=lambda link: (-_rank(link), link.source, link.target))
    return [(f"{link.source} {link.target}", _tone(link), _cells(link)) for link in ordered]


def _rank(link: LinkSummary) -> int:
    return ("up", "slowed", "stopped").index(_kind(link.state)) * 4 + ("up", "slowed", "stopped").index(
        _kind(link.worst)
    )


def _cells(link: LinkSummary) -> list[str]:
    lag: Mapping[str, float] = link.lag_seconds or {}
    faults = [_fault_text(fault) for fault in link.faults[:2]]
    more = len(link.faults) - len(faults)
    return [
        f"{link.source} \u2192 {link.target}",
        STATE_WORDS.get(link.state, link.state),
        "" if link.latency_ms is None else f"{link.latency_ms:g} ms",
        *(duration_text(lag[name]) if name in lag else "" for name in ("p50", "p99", "max")),
        "; ".join([*faults, *([f"{more:,} more"] if more else [])]),
    ]


def _fault_text(fault: Interval) -> str:
    value = f" {fault.detail}" if fault.detail else ""
    until = f" for {duration_text(fault.seconds)}" if fault.ended else ", until the end"
    return f"{STATE_WORDS.get(fault.what, fault.what)}{value} at {fault.from_s:.1f} s{until}"


def _kind(state: str) -> str:
    return "up" if state == "up" else "stopped" if state in STOPPED else "slowed"


def _tone(link: LinkSummary) -> str:
    """Return the class of a link: `up` without a fault, `faulty` with faults that ended, else `failed`."""
    return "up" if not link.faults else "faulty" if link.state == "up" else "failed"


def _height(n: int, width: int) -> float:
    return 90.0 if n == 1 else 130.0 if n == 2 else max(min(width * 0.72, 150.0 + 45 * n), 34.0 * n)


def _nodes(lanes: Sequence[RegionLane], width: float, height: float) -> dict[str, _Node]:
    """Place the regions on an ellipse, those of a cluster side by side."""
    ordered = sorted(lanes, key=lambda lane: lane.cluster or "")
    n = len(ordered)
    longest = max(len(shortened(lane.region, _name_max(width, n))) for lane in ordered)
    half = min(longest * BOLD_PX + 24, width / 2 - 8) / 2
    if n > CROWDED_REGIONS:
        # Neighbours at the top of the ellipse must not overlap.
        share = math.sin(2 * math.pi / n) / 2
        half = min(half, ((width / 2 - 6) * share - 3) / (1 + share))
    radius_x, radius_y = width / 2 - half - 6, height / 2 - _NODE_PX / 2 - 6
    start = math.pi if n == 2 else -math.pi / 2
    angles = [start + 2 * math.pi * number / n for number in range(n)]
    # An odd number of regions leaves room at the lower end of the ellipse.
    drop = radius_y - max(math.sin(angle) for angle in angles) * radius_y if n > 2 else 0.0
    scale = (2 * radius_y) / (2 * radius_y - drop) if n > 2 else 0.0
    nodes = {}
    for lane, angle in zip(ordered, angles, strict=True):
        x = width / 2 + (math.cos(angle) * radius_x if n > 1 else 0.0)
        y = height / 2 + scale * (math.sin(angle) * radius_y + drop / 2)
        nodes[lane.region] = _Node(x, y, half)
    return nodes


def _name_max(width: float, regions: int) -> int:
    return _NAME_MAX if regions <= 4 or width > 400 else 8


def _periods(faults: Iterable[Interval]) -> str:
    listed = [f"{one.from_s:g} {one.to_s:g} {one.what}" for one in faults]
    return f' data-periods="{escaped(";".join(listed[:PERIODS_MAX]))}"' if listed else ""


def _box(lane: RegionLane, node: _Node, down: Iterable[Interval]) -> str:
    own = [one for one in down if one.region == lane.region]
    is_down = any(not one.ended for one in own)
    tone = "failed" if is_down else "faulty" if own else "up"
    below = "down at the end" if is_down else f"{len(own)} × down" if own else (lane.cluster or "")
    room = int(node.half_width * 2 / CHARACTER_PX)
    name = shortened(lane.region, max(int((node.half_width * 2 - 12) / BOLD_PX), 3))
    return (
        f'<g class="node {tone}"{_periods(own)}><title>{escaped(_node_title(lane, own))}</title>'
        + rect(
            "box", node.x - node.half_width, node.y - _NODE_PX / 2, node.half_width * 2, _NODE_PX, ' rx="7"'
        )
        + text(node.x, node.y - 2, name, "region", "middle")
        + text(node.x, node.y + 13, shortened(below, max(room, 3)), "cluster", "middle")
        + "</g>"
    )


def _node_title(lane: RegionLane, down: Sequence[Interval]) -> str:
    of_cluster = f" of cluster {lane.cluster}" if lane.cluster else ""
    return f"{lane.region}{of_cluster}: down {len(down)} times"


def _ends(link: LinkSummary, nodes: Mapping[str, _Node]) -> tuple[_Point, _Point, _Point]:
    """Return start and end of a link's arrow, and the unit vector to its right."""
    source, target = nodes[link.source], nodes[link.target]
    dx, dy = target.x - source.x, target.y - source.y
    length = math.hypot(dx, dy) or 1.0
    along = dx / length, dy / length
    right = -along[1], along[0]
    shift = right[0] * _APART_PX, right[1] * _APART_PX
    start, end = source.border(shift, along), target.border(shift, (-along[0], -along[1]))
    return start, end, right


def _arrow(link: LinkSummary, nodes: Mapping[str, _Node], *, labelled: bool) -> str:
    (x, y), (to_x, to_y), right = _ends(link, nodes)
    along = right[1], -right[0]
    back = to_x - along[0] * 9, to_y - along[1] * 9
    head = "".join(
        f"{'M' if sign > 0 else 'L'}{back[0] + sign * right[0] * 4:.1f} {back[1] + sign * right[1] * 4:.1f}"
        for sign in (1, -1)
    )
    title = ", ".join(filter(None, _cells(link)))
    return (
        f'<g class="link {_tone(link)}"{_periods(link.faults)}><title>{escaped(title)}</title>'
        + path("wire", f"M{x:.1f} {y:.1f}L{back[0]:.1f} {back[1]:.1f}")
        + path("tip", f"{head}L{to_x:.1f} {to_y:.1f}Z")
        + "</g>"
    )


def _arrow_label(link: LinkSummary, nodes: Mapping[str, _Node]) -> str:
    """Return the label outside of an arrow: its lag, or its declared latency."""
    (x, y), (to_x, to_y), right = _ends(link, nodes)
    if link.lag_seconds:
        words = f"p99 {duration_text(link.lag_seconds['p99'])}"
    elif link.latency_ms is not None:
        words = f"{link.latency_ms:g} ms"
    else:
        return ""
    middle_x, middle_y = (x + to_x) / 2 + right[0] * 7, (y + to_y) / 2 + right[1] * 7
    anchor = "middle" if abs(right[0]) < 0.35 else "start" if right[0] > 0 else "end"
    lower = 4.0 + (8.0 * right[1] if anchor == "middle" else 0.0)
    return text(middle_x, middle_y + lower, words, "tick", anchor)
