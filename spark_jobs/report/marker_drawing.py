"""Markers of replicated subscriptions as one SVG: a line for each region, and arrows between the lines.

us-east     ──●────┬────────●──▲───          ● complete snapshot
                   │           │             ↑ requests and responses of snapshots (thin), updates (thick)
us-west     ───▲───▼───────────┴───
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_jobs.figures.markers import SLICES, MarkerCount
from spark_jobs.figures.timeline import Timeline
from spark_jobs.report.picture import (
    NARROW_BELOW_PX,
    PlotArea,
    axis,
    covered,
    frame_for,
    grid,
    name_of,
    path,
    rect,
    svg,
    time_scale,
)
from spark_jobs.wording import count

LANE_PX = 46
TOP_PX = 4.0
NARROW_STEP = 2
"""Number of slices that share arrows in a narrow picture."""


def draw_markers(
    counts: Sequence[MarkerCount], timeline: Timeline, width: int, names: Iterable[str] = ()
) -> str:
    """Return the picture as an `<svg>` element. Its text is escaped. `names`: see `draw_curves`."""
    regions = lanes_of(counts, timeline)
    written = {region: written_text(counts, region) for region in regions}
    frame = frame_for(width, timeline.seconds, [*names, *regions], written.values())
    height = LANE_PX + frame.name_height
    tops = {region: TOP_PX + number * height for number, region in enumerate(regions)}
    lines = {region: top + frame.name_height + LANE_PX / 2 - 4 for region, top in tops.items()}
    parts = []
    for region, top in tops.items():
        lane = top + frame.name_height
        parts.append(rect("lane", frame.left, lane, frame.right - frame.left, LANE_PX - 8, ' rx="3"'))
        down = [one for one in timeline.down if one.region == region]
        parts.append(covered(frame, "down", down, lane, LANE_PX - 8))
        parts.append(grid(frame, lane, lane + LANE_PX - 8))
        parts.append(path("line", f"M{frame.left:.1f} {lines[region]:.1f}H{frame.right:.1f}"))
    parts += _arrows(frame, counts, lines)
    for region, top in tops.items():
        name = name_of(frame, region, top + (20 if frame.names_beside else 13), written[region])
        parts.append(f'<g class="halo">{name}</g>')
    ticks, end = axis(frame, TOP_PX + len(regions) * height - 4)
    title = f"Markers of replicated subscriptions between {len(regions)} regions"
    return svg([*parts, ticks], width, end, title, more=time_scale(frame))


def lanes_of(counts: Iterable[MarkerCount], timeline: Timeline) -> list[str]:
    """Return the regions that wrote or store a marker, in the order of the timeline."""
    named = {name for one in counts for name in (one.source, one.region)}
    ordered = [lane.region for lane in timeline.lanes if lane.region in named]
    return [*ordered, *sorted(named - {*ordered})]


def written_text(counts: Iterable[MarkerCount], region: str) -> str:
    """Return `9 snapshots, 5 updates`: the markers that a region wrote."""
    own = [one for one in counts if one.source == one.region == region]
    snapshots, updates = (sum(one.n for one in own if one.kind == kind) for kind in ("snapshot", "update"))
    return f"{count(snapshots, 'snapshot')}, {count(updates, 'update')}"


def _arrows(frame: PlotArea, counts: Iterable[MarkerCount], lines: Mapping[str, float]) -> Iterable[str]:
    """Yield a path of all arrows of each kind, then the dots: on a region's line, where it wrote markers that no arrow
    shows."""
    step = 1 if frame.width >= NARROW_BELOW_PX else NARROW_STEP
    merged: dict[tuple[str, str, int], tuple[float, set[str]]] = {}
    for one in counts:
        key = one.kind, one.source, min(one.slice, SLICES - 1) // step
        first_s, regions = merged.get(key, (one.first_s, set()))
        merged[key] = min(first_s, one.first_s), regions | {one.region} - {one.source}
    moves: dict[str, list[str]] = {}
    dots: dict[str, list[str]] = {}
    for (kind, source, _), (first_s, regions) in merged.items():
        x = frame.x(first_s)
        if regions:
            moves.setdefault(kind, []).append(
                _arrow(x, lines[source], [lines[one] for one in sorted(regions)])
            )
        elif kind != "response":
            dots.setdefault(kind, []).append(_dot(x, lines[source]))
    for kind in ("request", "response", "update"):
        yield path(f"marker {kind}", "".join(moves.get(kind, ())))
    for kind, of_kind in dots.items():
        yield path(f"marker {kind} point", "".join(of_kind))


def _arrow(x: float, y: float, targets: Sequence[float]) -> str:
    """Return a line from a region's line to the farthest targets above and below, with a head at each target."""
    heads = "".join(
        f"M{x - 3:.1f} {target - 6:.1f}l3 6 3-6" if target > y else f"M{x - 3:.1f} {target + 6:.1f}l3-6 3 6"
        for target in targets
    )
    return f"M{x:.1f} {min(y, *targets):.1f}V{max(y, *targets):.1f}{heads}"


def _dot(x: float, y: float) -> str:
    return f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0-8 0"
