"""Above and below the regions of the timeline: phases, fail-overs, faults of links, and a lane for each actor.

links     us-east → us-west     ├ latency 300 ms 2.4 s ┤     ├ cut 3.0 s ┤
actors    billing               us-east ▂▃▃▃ ░stall 0.9 s░ us-west ▃▃▃
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_jobs.figures.timeline import BINS, SERIES_OF, ActorLane
from spark_jobs.frames.faults import Interval, TimelineMark
from spark_jobs.report.picture import (
    LabelRow,
    PlotArea,
    bar_px,
    bars,
    bracket,
    label_beside,
    lasted,
    moment_label,
    name_of,
    shortened,
    text,
)

ACTOR_PX = 38
ACTOR_BARS_PX = 16
PHASE_PX = 20
PLACE_SHIFT_PX = 130
"""So far behind where an actor came to a region its name may stand, when a label is in the way."""
LINK_WORDS = {"hold": "held", "cut": "cut", "latency": "latency", "away": "unavailable"}


def link_name(fault: Interval) -> str:
    """`us-east → us-west`, or with `↔` for both directions. Of a configuration store: whose it is."""
    if fault.what == "away":
        return f"store of {shortened(fault.region, 20)}"
    arrow = "→" if fault.one_way else "↔"
    return f"{shortened(fault.region, 20)} {arrow} {shortened(fault.other_region or '?', 20)}"


def draw_phases(
    frame: PlotArea, marks: Iterable[TimelineMark], y: float, bottom: float
) -> tuple[list[str], float]:
    """Headings of the scenario, and a line where each begins."""
    phases = [mark for mark in marks if mark.op == "phase" and not (mark.detail or "").startswith("play of ")]
    row, parts = LabelRow(), []
    for mark in phases:
        x = frame.x(mark.at_s)
        parts.append(f'<path class="phase" d="M{x:.1f} {y + 2:.1f}V{bottom:.1f}"/>')
        words = moment_label(frame, mark.at_s, shortened(mark.detail or "", 48), y + 12, "phase", row)
        parts.append(words or "")
    return parts, y + (PHASE_PX if phases else 0)


def draw_gaps(frame: PlotArea, gaps: Sequence[Interval], y: float) -> tuple[list[str], float]:
    """A bracket for each fail-over."""
    parts = []
    for index, gap in enumerate(gaps):
        if index == 0:
            parts.append(name_of(frame, "fail-over", y + (16 if frame.names_beside else 13)))
            y += frame.name_height
        words = f"{shortened(gap.actor or 'consumer')}: {lasted(gap.seconds, gap.ended)}"
        parts += _strip(frame, gap, words, y, "gap", LabelRow())
        y += strip_height(frame)
    return parts, y + (4 if gaps else 0)


def draw_links(frame: PlotArea, faults: Sequence[Interval], y: float) -> tuple[list[str], float]:
    """A strip for each link with faults, and for each configuration store with outages."""
    parts: list[str] = []
    by_link: dict[str, list[Interval]] = {}
    for fault in faults:
        by_link.setdefault(link_name(fault), []).append(fault)
    for name, of_link in by_link.items():
        parts.append(name_of(frame, name, y + (16 if frame.names_beside else 13)))
        y += frame.name_height
        row = LabelRow([(frame.x(one.from_s) - 3, frame.x(one.to_s) + 3) for one in of_link])
        for fault in of_link:
            delay = f" {fault.detail}" if fault.detail else ""
            words = f"{LINK_WORDS.get(fault.what, fault.what)}{delay}: {lasted(fault.seconds, fault.ended)}"
            parts += _strip(frame, fault, words, y, "cut", row if len(of_link) > 1 else LabelRow())
        y += strip_height(frame)
    return parts, y + (2 if by_link else 0)


def strip_height(frame: PlotArea) -> float:
    return 26.0 if frame.names_beside else 34.0


def _strip(frame: PlotArea, interval: Interval, words: str, y: float, kind: str, row: LabelRow) -> list[str]:
    """A bracket with its label: beside it where names are, above it on a narrow picture."""
    beside = frame.names_beside
    line, baseline = (y + 11, y + 15) if beside else (y + 23, y + 13)
    drawn = bracket(frame, interval.from_s, interval.to_s, line, kind)
    words_drawn = (
        label_beside(frame, interval.from_s, interval.to_s, words, baseline, f"label {kind}", row)
        if beside
        else moment_label(frame, interval.from_s, words, baseline, f"label {kind}", row)
        or text(frame.left + 5, baseline, shortened(words, 46), f"label {kind}")
    )
    return [drawn, words_drawn or ""]


def actor_height(frame: PlotArea) -> float:
    return ACTOR_PX + frame.name_height


def draw_actor(frame: PlotArea, lane: ActorLane, y: float, highest: int) -> list[str]:
    """Where it was, how much it did, and how long it waited."""
    below = "" if frame.names_beside else lane.kind
    parts = [name_of(frame, lane.name, y + (24 if frame.names_beside else 13), below)]
    y += frame.name_height
    height = ACTOR_PX - 6
    parts.append(
        f'<rect class="lane" x="{frame.left:.1f}" y="{y:.1f}" width="{frame.right - frame.left:.1f}"'
        f' height="{height}" rx="3"/>'
    )
    for wait in lane.waits:
        x = frame.x(wait.from_s)
        width = max(frame.x(wait.to_s) - x, 2)
        parts.append(f'<rect class="wait" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"/>')
    base, more = SERIES_OF[lane.kind]
    both = [a + b for a, b in zip(lane.counts[base], lane.counts[more], strict=True)]
    for series, counts in ((more, both if any(lane.counts[more]) else []), (base, lane.counts[base])):
        sizes = [bar_px(count, highest, ACTOR_BARS_PX) for count in counts]
        parts.append(bars(frame, sizes, y + height - 1, -1, series))
    parts += _labels(frame, lane, y + 12)
    return parts


def _labels(frame: PlotArea, lane: ActorLane, y: float) -> list[str]:
    """Its longest waits, then where it was: what has no room is left out."""
    row, parts = LabelRow(), []
    for wait in lane.waits:
        words = f"{wait.what} {lasted(wait.seconds, wait.ended)}"
        parts.append(moment_label(frame, wait.from_s, words, y, "label wait", row))
    for number, region in lane.places:
        at_s = frame.seconds * number / BINS
        parts.append(moment_label(frame, at_s, shortened(region, 20), y, "place", row, PLACE_SHIFT_PX))
    return [part for part in parts if part]
