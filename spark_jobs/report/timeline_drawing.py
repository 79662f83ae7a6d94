"""The timeline as one SVG, for a given width: no library draws lanes, outages and a fail-over in one picture.

fail-over     billing ├────────┤ 0.840 s
                      ┊        ┊
us-east   ▁▂▃▃▃▃▃▃ killed ░░░░░┊░░░░░ started ▃▃▃     above the line: publishes
          ───────────────────────────────────────
          ▔▀▀▀▀▀▀▀    ░░░░░░░░░┊░░░░                   below the line: deliveries
us-west   …
us-east ↔ eu-central  ├ cut 3.0 s ┤                    disks, clocks, links and configuration stores with faults
billing   us-east ▂▃▃▃ ░stall░ us-west ▃▃▃             producers and subscriptions that waited longest
0 s       2 s       4 s       6 s
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from spark_jobs.figures.timeline import BINS, SERIES_OF, ActorLane, RegionLane, Series, Timeline
from spark_jobs.frames.faults import Interval, TimelineMark
from spark_jobs.report.picture import (
    BOLD_PX,
    LABEL_PX,
    LabelRow,
    PlotArea,
    axis,
    bar_px,
    bars,
    bracket,
    covered,
    distinct_periods,
    escaped,
    frame_for,
    grid,
    label_beside,
    length_text,
    moment_label,
    name_of,
    named_row,
    path,
    period_rect,
    rect,
    shortened,
    svg,
    text,
    time_scale,
)

STACKS: tuple[tuple[Series, Series, int], ...] = (("published", "unanswered", -1), ("received", "again", 1))
"""Series at the line, series stacked on it, and the direction: -1 up, 1 down."""
STACKED_PX_MIN = 4
"""Minimum height of a stacked bar, so that small values remain visible."""
BARS_PX = 34
"""Height of the tallest bar, above as below the line; a stacked bar may be higher by STACKED_PX_MIN."""
MARK_WORDS = {
    "kill": "killed",
    "lose": "lost",
    "power_loss": "power loss",
    "stop": "stopped",
    "pause": "paused",
    "start": "started",
    "resume": "resumed",
    "restart": "restarted",
}
REGIONS_NAMED_MAX = 20
"""Maximum number of regions that the description of the picture names."""
STRIPS_MAX = 30
"""Maximum number of links, disks, clocks and stores with a strip."""
GAPS_MAX = 20
"""Maximum number of fail-overs with a bracket: the longest ones."""
ACTOR_PX = 38
ACTOR_BARS_PX = 16
PLACE_SHIFT_PX = 130
"""Maximum distance of a region's name from the time of the actor's move there, if another label is in between."""
LINK_WORDS = {"hold": "held", "cut": "cut", "half_open": "half-open", "away": "unavailable", "skew": "wrong"}


def draw_timeline(timeline: Timeline, width: int) -> str:
    """Return the timeline as an `<svg>` element. Its text is escaped."""
    interruptions = [*timeline.machines, *timeline.links, *timeline.stores]
    names = [*map(_link_name, interruptions), *(lane.name for lane in timeline.actors)]
    names += ["fail-over", *(lane.region for lane in timeline.lanes)]
    frame = frame_for(width, timeline.seconds, names, map(_cluster_text, timeline.lanes))
    phase_marks = [
        mark
        for mark in timeline.marks
        if mark.op == "phase" and not (mark.detail or "").startswith("play of ")
    ]
    shown_gaps = _longest_gaps(timeline.gaps)
    gaps, first_lane = _draw_gaps(frame, shown_gaps, 26.0 if phase_marks else 6.0)
    y = first_lane
    tops: dict[str, float] = {}
    for lane in timeline.lanes:
        tops[lane.region] = y
        y += _lane_height(frame)
    links, y = _draw_links(frame, interruptions, y)
    actors, y = _draw_actors(frame, timeline, y)
    ticks, end = axis(frame, y)
    highest = full_height_count(timeline)
    lanes = [_draw_lane(frame, lane, timeline, tops[lane.region], highest) for lane in timeline.lanes]
    guides = [*_draw_phases(frame, phase_marks, 4.0, y), *gaps]
    guides += _gap_guides(frame, shown_gaps, first_lane, tops)
    regions = ", ".join(lane.region for lane in timeline.lanes[:REGIONS_NAMED_MAX])
    title = f"Timeline of {timeline.seconds:.1f} seconds: publishes and deliveries in {regions}"
    return svg([*lanes, *guides, *links, *actors, ticks], width, end, title, more=time_scale(frame))


def _draw_lane(frame: PlotArea, lane: RegionLane, timeline: Timeline, y: float, highest: int) -> str:
    parts = [
        _lane_background(frame, lane, timeline.down, y),
        _lane_bars(frame, lane, y, highest),
        _lane_marks(frame, lane, timeline.marks, y),
    ]
    return named_row(lane.region, _lane_height(frame), parts)


def full_height_count(timeline: Timeline) -> int:
    """Return the number of messages per slice at which a bar has its full height. The highest 3 % of the bars are cut
    off, so that bursts do not flatten all others."""
    return _full_height(
        count for lane in timeline.lanes for base, other, _ in STACKS for count in _stacked(lane, base, other)
    )


def _full_height(counts: Iterable[int]) -> int:
    counted = sorted(count for count in counts if count)
    return counted[math.ceil(len(counted) * 0.97) - 1] if counted else 1


def _draw_actors(frame: PlotArea, timeline: Timeline, y: float) -> tuple[list[str], float]:
    parts = []
    highest = _full_height(
        count for lane in timeline.actors for counts in lane.counts.values() for count in counts
    )
    for lane in timeline.actors:
        names = " ".join([lane.name, *(region for _, region in lane.places)])
        parts.append(named_row(names, _actor_height(frame), _draw_actor(frame, lane, y, highest)))
        y += _actor_height(frame)
    if timeline.actors_left_out:
        words = f"and {timeline.actors_left_out:,} more producers and subscriptions, which waited less"
        parts.append(named_row(words, LABEL_PX, [text(frame.left + 5, y + 12, words, "cluster")]))
        y += LABEL_PX
    return parts, y


def _gap_guides(
    frame: PlotArea, gaps: Iterable[Interval], first_lane: float, tops: dict[str, float]
) -> list[str]:
    """Return lines from each bracket's ends down to the lanes of the lost region and of the next message's region, with
    a dot at that message."""
    parts = []
    for gap in gaps:
        for at_s, region in ((gap.from_s, gap.region), (gap.to_s, gap.other_region)):
            if region in tops:
                x, bottom = frame.x(at_s), _middle(frame, tops[region])
                parts.append(path("gap guide", f"M{x:.1f} {first_lane - 8:.1f}V{bottom:.1f}"))
                if region == gap.other_region:
                    parts.append(f'<circle class="gap dot" cx="{x:.1f}" cy="{bottom:.1f}" r="3.5"/>')
    return parts


def _lane(frame: PlotArea, y: float, height: float) -> str:
    return rect("lane", frame.left, y, frame.right - frame.left, height, ' rx="3"')


def _lane_background(frame: PlotArea, lane: RegionLane, down: Iterable[Interval], y: float) -> str:
    """Return the area of a lane, its name, and the outages of its region."""
    height = _lane_height(frame) - 6
    parts = [_lane(frame, y, height)]
    own = [one for one in down if one.region == lane.region]
    for kind in sorted({one.what for one in own}):
        of_kind = [one for one in own if one.what == kind]
        parts.append(covered(frame, f"down {escaped(kind)}", of_kind, y, height))
    parts.append(grid(frame, y, y + height))
    at = _middle(frame, y) if frame.names_beside else y + 14
    return "".join([*parts, name_of(frame, lane.region, at, _cluster_text(lane))])


def _lane_bars(frame: PlotArea, lane: RegionLane, y: float, highest: int) -> str:
    """Return publishes above the line and deliveries below. The stacked series is drawn first, as the sum of both."""
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
    return "".join([*parts, path("line", f"M{frame.left:.1f} {middle:.1f}H{frame.right:.1f}")])


def _lane_marks(frame: PlotArea, lane: RegionLane, marks: Iterable[TimelineMark], y: float) -> str:
    """Return the faults, starts and resumes of a region as lines with labels, each label in the first row with room for
    it. Without room only the line is drawn."""
    of_region = [mark for mark in marks if mark.region == lane.region and mark.op in MARK_WORDS]
    # Marks on the same pixel are drawn once.
    own = [*{round(frame.x(mark.at_s)): mark for mark in reversed(of_region)}.values()][::-1]
    top, bottom = y + frame.name_height, y + _lane_height(frame) - 6
    lines = "".join(f"M{frame.x(mark.at_s):.1f} {top:.1f}V{bottom:.1f}" for mark in own)
    parts = [path("mark", lines)] if own else []
    rows = [LabelRow(), LabelRow()]
    for mark in own:
        words = f"{MARK_WORDS[mark.op]} {mark.at_s:.1f} s"
        labels = (
            moment_label(frame, mark.at_s, words, top + 13 + number * LABEL_PX, "label", row)
            for number, row in enumerate(rows)
        )
        parts.append(next(filter(None, labels), ""))
    return "".join(parts)


def _middle(frame: PlotArea, y: float) -> float:
    """Return the y position of the line in the lane that begins at `y`."""
    return y + _lane_height(frame) - BARS_PX - 10


def _lane_height(frame: PlotArea) -> float:
    """Return the height of a lane: a name above it if there is no margin, two rows of labels, bars up, bars down."""
    return frame.name_height + 2 * LABEL_PX + 2 * BARS_PX + 16


def _cluster_text(lane: RegionLane) -> str:
    return f"cluster {lane.cluster}" if lane.cluster else ""


def _stacked(lane: RegionLane, base: Series, other: Series) -> Sequence[int]:
    return [a + b for a, b in zip(lane.counts[base], lane.counts[other], strict=True)]


def _link_name(fault: Interval) -> str:
    """Return `us-east → us-west`, with `↔` for both directions; for a configuration store `store of americas`."""
    if fault.what == "away":
        return f"store of {shortened(fault.region, 20)}"
    arrow = "→" if fault.one_way else "↔"
    return f"{shortened(fault.region, 20)} {arrow} {shortened(fault.other_region or '?', 20)}"


def _draw_phases(frame: PlotArea, phases: Iterable[TimelineMark], y: float, bottom: float) -> list[str]:
    """Return a line at the start of each phase of the scenario, and its heading if there is room."""
    row, parts = LabelRow(), []
    for mark in phases:
        x = frame.x(mark.at_s)
        parts.append(path("phase", f"M{x:.1f} {y + 2:.1f}V{bottom:.1f}"))
        words = moment_label(frame, mark.at_s, shortened(mark.detail or "", 48), y + 12, "phase", row)
        parts.append(words or "")
    return parts


def _longest_gaps(gaps: Sequence[Interval]) -> list[Interval]:
    """Return the up to GAPS_MAX longest gaps, sorted by start."""
    longest = sorted(gaps, key=lambda gap: -gap.seconds)[:GAPS_MAX]
    return sorted(longest, key=lambda gap: gap.from_s)


def _draw_gaps(frame: PlotArea, gaps: Sequence[Interval], y: float) -> tuple[list[str], float]:
    """Return a bracket for each fail-over, and the position below them."""
    parts = []
    for index, gap in enumerate(gaps):
        if index == 0:
            parts.append(name_of(frame, "fail-over", y + (16 if frame.names_beside else 13)))
            y += frame.name_height
        words = f"{shortened(gap.actor or 'consumer')}: {length_text(gap.seconds, gap.ended)}"
        parts += _strip(frame, gap, words, y, "gap", LabelRow())
        y += _strip_height(frame)
    return parts, y + (4 if gaps else 0)


def _draw_links(frame: PlotArea, faults: Sequence[Interval], y: float) -> tuple[list[str], float]:
    """Return a strip for each link or configuration store with faults, and the position below them."""
    parts: list[str] = []
    by_link: dict[str, list[Interval]] = {}
    for fault in faults:
        by_link.setdefault(_link_name(fault), []).append(fault)
    for name, of_link in [*by_link.items()][:STRIPS_MAX]:
        parts.append(named_row(name, _strip_row_height(frame), _draw_link(frame, name, of_link, y)))
        y += _strip_row_height(frame)
    if len(by_link) > STRIPS_MAX:
        words = f"and {len(by_link) - STRIPS_MAX:,} more links, disks, clocks and stores with faults"
        parts.append(named_row(words, LABEL_PX, [text(frame.left + 5, y + 12, words, "cluster")]))
        y += LABEL_PX
    return parts, y + (2 if by_link else 0)


def _draw_link(frame: PlotArea, name: str, faults: Sequence[Interval], y: float) -> list[str]:
    parts = [name_of(frame, name, y + (16 if frame.names_beside else 13))]
    y += frame.name_height
    labels = LabelRow([(frame.x(one.from_s) - 3, frame.x(one.to_s) + 3) for one in faults])
    for fault in distinct_periods(frame, faults):
        delay = f" {fault.detail}" if fault.detail else ""
        words = f"{LINK_WORDS.get(fault.what, fault.what)}{delay}: {length_text(fault.seconds, fault.ended)}"
        parts += _strip(frame, fault, words, y, "cut", labels if len(faults) > 1 else LabelRow())
    return parts


def _strip_row_height(frame: PlotArea) -> float:
    return _strip_height(frame) + frame.name_height


def _strip_height(frame: PlotArea) -> float:
    return 26.0 if frame.names_beside else 34.0


def _strip(frame: PlotArea, interval: Interval, words: str, y: float, kind: str, row: LabelRow) -> list[str]:
    """Return a bracket with its label: beside it in a wide picture, above it in a narrow one."""
    beside = frame.names_beside
    line, baseline = (y + 11, y + 15) if beside else (y + 23, y + 13)
    bracket_path = bracket(frame, interval.from_s, interval.to_s, line, kind)
    label = (
        label_beside(frame, interval.from_s, interval.to_s, words, baseline, f"label {kind}", row)
        if beside
        else moment_label(frame, interval.from_s, words, baseline, f"label {kind}", row)
        or text(frame.left + 5, baseline, shortened(words, 46), f"label {kind}")
    )
    return [bracket_path, label or ""]


def _actor_height(frame: PlotArea) -> float:
    return ACTOR_PX + frame.name_height


def _draw_actor(frame: PlotArea, lane: ActorLane, y: float, highest: int) -> list[str]:
    """Return the lane of an actor: its bars, its waits, and its regions."""
    below = "" if frame.names_beside else lane.kind
    parts = [name_of(frame, lane.name, y + (24 if frame.names_beside else 13), below)]
    y += frame.name_height
    height = ACTOR_PX - 6
    parts += [_lane(frame, y, height), grid(frame, y, y + height)]
    parts += [period_rect(frame, "wait", wait.from_s, wait.to_s, y, height, 2) for wait in lane.waits]
    base, more = SERIES_OF[lane.kind]
    both = [a + b for a, b in zip(lane.counts[base], lane.counts[more], strict=True)]
    for series, counts in ((more, both if any(lane.counts[more]) else []), (base, lane.counts[base])):
        sizes = [bar_px(count, highest, ACTOR_BARS_PX) for count in counts]
        parts.append(bars(frame, sizes, y + height - 1, -1, series))
    parts += _actor_labels(frame, lane, y + 12)
    return parts


def _actor_labels(frame: PlotArea, lane: ActorLane, y: float) -> list[str]:
    """Return the labels of an actor's longest waits, then of its regions; labels without room are left out."""
    row, parts = LabelRow(), []
    for wait in lane.waits:
        words = f"{wait.what} {length_text(wait.seconds, wait.ended)}"
        parts.append(moment_label(frame, wait.from_s, words, y, "label wait", row, character_px=BOLD_PX))
    for number, region in lane.places:
        at_s = frame.seconds * number / BINS
        parts.append(moment_label(frame, at_s, shortened(region, 20), y, "place", row, PLACE_SHIFT_PX))
    return [part for part in parts if part]
