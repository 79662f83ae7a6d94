"""The timeline as one SVG, for a given width: no library draws lanes, outages and a fail-over in one picture.

fail-over     billing ├────────┤ 0.840 s
                      ┊        ┊
us-east   ▁▂▃▃▃▃▃▃ killed ░░░░░┊░░░░░ started ▃▃▃     above the line: publishes
          ───────────────────────────────────────
          ▔▀▀▀▀▀▀▀    ░░░░░░░░░┊░░░░                   below the line: deliveries
us-west   …
us-east ↔ eu-central  ├ cut 3.0 s ┤                    links, then actors (report/timeline_strips.py)
billing   us-east ▂▃▃▃ ░stall░ us-west ▃▃▃
0 s       2 s       4 s       6 s
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from spark_jobs.figures.timeline import RegionLane, Series, Timeline
from spark_jobs.frames.faults import Interval, TimelineMark
from spark_jobs.report.picture import (
    LABEL_PX,
    LabelRow,
    PlotArea,
    axis,
    bar_px,
    bars,
    frame_for,
    moment_label,
    name_of,
    svg,
    text,
)
from spark_jobs.report.timeline_strips import (
    actor_height,
    draw_actor,
    draw_gaps,
    draw_links,
    draw_phases,
    link_name,
)

STACKS: tuple[tuple[Series, Series, int], ...] = (("published", "unanswered", -1), ("received", "again", 1))
"""What is drawn on the line, what is stacked on that, and whether it grows down or up."""
STACKED_PX_MIN = 4
"""Least height of a stacked bar, so that small values remain visible."""
BARS_PX = 34
"""Height of the tallest bar, above as below the line."""
MARK_WORDS = {
    "kill": "killed",
    "lose": "lost",
    "stop": "stopped",
    "pause": "paused",
    "start": "started",
    "resume": "resumed",
    "restart": "restarted",
}


def draw_timeline(timeline: Timeline, width: int) -> str:
    """An `<svg>` element. All text in it is escaped."""
    away = [*timeline.links, *timeline.stores]
    names = [*map(link_name, away), *(lane.name for lane in timeline.actors)]
    names += ["fail-over", *(lane.region for lane in timeline.lanes)]
    frame = frame_for(width, timeline.seconds, names, map(_cluster_text, timeline.lanes))
    gaps, first_lane = draw_gaps(frame, timeline.gaps, _phase_end(timeline))
    y = first_lane
    tops: dict[str, float] = {}
    for lane in timeline.lanes:
        tops[lane.region] = y
        y += _lane_height(frame)
    links, y = draw_links(frame, away, y)
    actors, y = _draw_actors(frame, timeline, y)
    grid, end = axis(frame, y, first_lane)
    phases, _ = draw_phases(frame, timeline.marks, 4.0, y)
    # From the ground up: areas, grid, bars, labels.
    parts = [_ground(frame, lane, timeline.down, tops[lane.region]) for lane in timeline.lanes]
    parts += [grid, *phases, *gaps]
    highest = full_height_count(timeline)
    parts += [_lane_bars(frame, lane, tops[lane.region], highest) for lane in timeline.lanes]
    parts += _gap_guides(frame, timeline.gaps, first_lane, tops)
    parts += [_lane_marks(frame, lane, timeline.marks, tops[lane.region]) for lane in timeline.lanes]
    regions = ", ".join(lane.region for lane in timeline.lanes)
    title = f"Timeline of {timeline.seconds:.1f} seconds: publishes and deliveries in {regions}"
    return svg([*parts, *links, *actors], width, end, title)


def full_height_count(timeline: Timeline) -> int:
    """Messages in a slice from which on a bar has its full height. A few bursts are taller than the picture, so
    that they do not flatten all the rest."""
    return _full_height(
        count for lane in timeline.lanes for base, other, _ in STACKS for count in _stacked(lane, base, other)
    )


def _full_height(counts: Iterable[int]) -> int:
    counted = sorted(count for count in counts if count)
    return counted[math.ceil(len(counted) * 0.97) - 1] if counted else 1


def _phase_end(timeline: Timeline) -> float:
    """Where the row of phases ends."""
    has_phases = any(
        mark.op == "phase" and not (mark.detail or "").startswith("play of ") for mark in timeline.marks
    )
    return 26.0 if has_phases else 6.0


def _draw_actors(frame: PlotArea, timeline: Timeline, y: float) -> tuple[list[str], float]:
    parts = []
    highest = _full_height(
        count for lane in timeline.actors for counts in lane.counts.values() for count in counts
    )
    for lane in timeline.actors:
        parts += draw_actor(frame, lane, y, highest)
        y += actor_height(frame)
    if timeline.actors_left_out:
        words = f"and {timeline.actors_left_out:,} more producers and subscriptions, which waited less"
        parts.append(text(frame.left + 5, y + 12, words, "cluster"))
        y += LABEL_PX
    return parts, y


def _gap_guides(
    frame: PlotArea, gaps: Iterable[Interval], first_lane: float, tops: dict[str, float]
) -> list[str]:
    """From the ends of a bracket down to where the region was lost and where the next message came."""
    parts = []
    for gap in gaps:
        for at_s, region in ((gap.from_s, gap.region), (gap.to_s, gap.other_region)):
            if region in tops:
                x, bottom = frame.x(at_s), _middle(frame, tops[region])
                parts.append(f'<path class="gap guide" d="M{x:.1f} {first_lane - 8:.1f}V{bottom:.1f}"/>')
                if region == gap.other_region:
                    parts.append(f'<circle class="gap dot" cx="{x:.1f}" cy="{bottom:.1f}" r="3.5"/>')
    return parts


def _ground(frame: PlotArea, lane: RegionLane, down: Iterable[Interval], y: float) -> str:
    """The lane, its name, and the times when its region was down."""
    height = _lane_height(frame) - 6
    parts = [
        f'<rect class="lane" x="{frame.left:.1f}" y="{y:.1f}" width="{frame.right - frame.left:.1f}"'
        f' height="{height:.1f}" rx="3"/>'
    ]
    for interval in down:
        if interval.region == lane.region:
            x = frame.x(interval.from_s)
            parts.append(
                f'<rect class="down {escape(interval.what)}" x="{x:.1f}" y="{y:.1f}"'
                f' width="{max(frame.x(interval.to_s) - x, 1):.1f}" height="{height:.1f}"/>'
            )
    at = _middle(frame, y) if frame.names_beside else y + 14
    return "".join([*parts, name_of(frame, lane.region, at, _cluster_text(lane))])


def _lane_bars(frame: PlotArea, lane: RegionLane, y: float, highest: int) -> str:
    """Publishes above the line, deliveries below. What is stacked on top is drawn first, as the sum."""
    middle, parts = _middle(frame, y), []
    for base, other, direction in STACKS:
        sizes = [bar_px(count, highest, BARS_PX) for count in lane.counts[base]]
        tops = [
            min(max(bar_px(count + more, highest, BARS_PX), size + STACKED_PX_MIN), BARS_PX + STACKED_PX_MIN)
            if more
            else size
            for count, more, size in zip(lane.counts[base], lane.counts[other], sizes, strict=True)
        ]
        parts.append(bars(frame, tops if any(lane.counts[other]) else [], middle, direction, other))
        parts.append(bars(frame, sizes, middle, direction, base))
    return "".join([*parts, f'<path class="line" d="M{frame.left:.1f} {middle:.1f}H{frame.right:.1f}"/>'])


def _lane_marks(frame: PlotArea, lane: RegionLane, marks: Iterable[TimelineMark], y: float) -> str:
    """What was done to the region, each label in the first row where it touches no other; one that fits nowhere keeps
    its line and loses its text."""
    own = [mark for mark in marks if mark.region == lane.region and mark.op in MARK_WORDS]
    top, bottom = y + frame.name_height, y + _lane_height(frame) - 6
    parts = [f'<path class="mark" d="M{frame.x(mark.at_s):.1f} {top:.1f}V{bottom:.1f}"/>' for mark in own]
    rows = [LabelRow(), LabelRow()]
    for mark in own:
        words = f"{MARK_WORDS[mark.op]} {mark.at_s:.1f} s"
        drawn = (
            moment_label(frame, mark.at_s, words, top + 13 + number * LABEL_PX, "label", row)
            for number, row in enumerate(rows)
        )
        parts.append(next(filter(None, drawn), ""))
    return "".join(parts)


def _middle(frame: PlotArea, y: float) -> float:
    """Of the lane that begins at `y`: its line."""
    return y + _lane_height(frame) - BARS_PX - 10


def _lane_height(frame: PlotArea) -> float:
    """Room for the name where it stands above, two rows of labels, bars up and bars down."""
    return frame.name_height + 2 * LABEL_PX + 2 * BARS_PX + 16


def _cluster_text(lane: RegionLane) -> str:
    return f"cluster {lane.cluster}" if lane.cluster else ""


def _stacked(lane: RegionLane, base: Series, other: Series) -> Sequence[int]:
    return [a + b for a, b in zip(lane.counts[base], lane.counts[other], strict=True)]
