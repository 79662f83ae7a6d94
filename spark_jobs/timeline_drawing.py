"""The timeline as one SVG, for a given width: no library draws lanes, outages and a fail-over in one picture.

    fail-over     billing ├────────┤ 0.84 s
                          ┊        ┊
    us-east   ▁▂▃▃▃▃▃▃ killed ░░░░░┊░░░░░ started ▃▃▃     above the line: publishes
              ───────────────────────────────────────
              ▔▀▀▀▀▀▀▀    ░░░░░░░░░┊░░░░                   below the line: deliveries
    us-west   …
    links     us-east - eu-central  ├ cut 3.0 s ┤
    0 s       2 s       4 s       6 s

Drawn twice, once wide and once narrow, instead of scaled: text keeps its size. Colours are classes, the page's style
sheet says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from spark_jobs.timeline import Interval, Lane, Mark, Series, Timeline

CHARACTER_PX = 6.6
"""Upper estimate for the 12 px of the labels."""
LABEL_PX = 17
"""Height of one row of labels."""
STACKS: tuple[tuple[Series, Series, int], ...] = (("published", "unanswered", -1), ("received", "again", 1))
"""What is drawn on the line, what is stacked on that, and whether it grows down or up."""
STACKED_PX_MIN = 4
"""What is stacked on something may be little; it must be seen all the same."""
NAME_MAX = 26
"""Characters of a name."""
BOLD_PX = 7.4
"""The same for bold."""
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


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where things go; pixels."""

    width: float
    left: float
    """Of the first moment. Beside it, where there is room, stand the names of the lanes."""
    right: float
    """Of the last moment."""
    seconds: float
    names_beside: bool

    def x(self, at_s: float) -> float:
        return self.left + (self.right - self.left) * min(max(at_s / self.seconds, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class _Label:
    """A text beside a moment, and the row in which it disturbs no other."""

    text: str
    x: float
    anchor: str
    row: int


def draw_timeline(timeline: Timeline, width: int) -> str:
    """An `<svg>` element. All text in it is escaped."""
    names_beside = width >= 700
    frame = _Frame(
        width,
        _gutter(timeline) if names_beside else 8.0,
        width - 14.0,
        max(timeline.seconds, 0.001),
        names_beside,
    )
    parts: list[str] = []
    y = _draw_gaps(parts, frame, timeline.gaps, 6.0)
    first_lane = y
    tops: dict[str, float] = {}
    for lane in timeline.lanes:
        tops[lane.region] = y
        y += _lane_height(frame)
    # From the ground up: areas, grid, bars, labels.
    for lane in timeline.lanes:
        _draw_ground(parts, frame, lane, timeline.down, tops[lane.region])
    axis = y + (
        _strip_height(frame) * len(timeline.cuts) + _strip_name_height(frame) + 2 if timeline.cuts else 0
    )
    end = _draw_axis(parts, frame, axis, first_lane)
    highest = full_height_count(timeline)
    for lane in timeline.lanes:
        _draw_bars(parts, frame, lane, tops[lane.region], highest)
    _draw_gap_guides(parts, frame, timeline.gaps, first_lane, tops)
    for lane in timeline.lanes:
        _draw_marks(parts, frame, lane, timeline.marks, tops[lane.region])
    _draw_cuts(parts, frame, timeline.cuts, y)
    regions = ", ".join(lane.region for lane in timeline.lanes)
    title = f"Timeline of {timeline.seconds:.1f} seconds: publishes and deliveries in {regions}"
    return (
        f'<svg class="timeline" viewBox="0 0 {width} {end:.0f}" width="{width}" height="{end:.0f}" role="img"'
        f' aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def full_height_count(timeline: Timeline) -> int:
    """Messages in a slice from which on a bar has its full height. A few bursts are taller than the picture, so
    that they do not flatten all the rest."""
    counts = sorted(
        count
        for lane in timeline.lanes
        for base, other, _ in STACKS
        for count in _stacked(lane, base, other)
        if count
    )
    return counts[math.ceil(len(counts) * 0.97) - 1] if counts else 1


def _gutter(timeline: Timeline) -> float:
    """Room for the names of regions, in bold, and of their clusters, in small."""
    names = ["fail-over", *(_shortened(lane.region, NAME_MAX) for lane in timeline.lanes)]
    clusters = [_shortened(_cluster_text(lane), NAME_MAX) for lane in timeline.lanes]
    return 16 + max(max(map(len, names)) * (BOLD_PX + 0.6), max(map(len, clusters), default=0) * CHARACTER_PX)


def _draw_gaps(parts: list[str], frame: _Frame, gaps: Sequence[Interval], y: float) -> float:
    for index, gap in enumerate(gaps):
        if index == 0:
            y = _strip_name(parts, frame, "fail-over", y)
        text = f"{_shortened(gap.subscription or 'consumer', NAME_MAX)}: {gap.to_s - gap.from_s:.2f} s"
        _bracket(parts, frame, gap.from_s, gap.to_s, text, y, "gap")
        y += _strip_height(frame)
    return y + (4 if gaps else 0)


def _draw_gap_guides(
    parts: list[str], frame: _Frame, gaps: Iterable[Interval], first_lane: float, tops: dict[str, float]
) -> None:
    """From the ends of a bracket down to where the region was lost and where the next message came."""
    for gap in gaps:
        for at_s, region in ((gap.from_s, gap.region), (gap.to_s, gap.other_region)):
            if region in tops:
                x, bottom = frame.x(at_s), _middle(frame, tops[region])
                parts.append(f'<path class="gap guide" d="M{x:.1f} {first_lane - 8:.1f}V{bottom:.1f}"/>')
                if region == gap.other_region:
                    parts.append(f'<circle class="gap dot" cx="{x:.1f}" cy="{bottom:.1f}" r="3.5"/>')


def _draw_ground(parts: list[str], frame: _Frame, lane: Lane, down: Iterable[Interval], y: float) -> None:
    """The lane, its name, and the times when its region was down."""
    height = _lane_height(frame) - 6
    parts.append(
        f'<rect class="lane" x="{frame.left:.1f}" y="{y:.1f}" width="{frame.right - frame.left:.1f}"'
        f' height="{height:.1f}" rx="3"/>'
    )
    for interval in down:
        if interval.region == lane.region:
            x = frame.x(interval.from_s)
            parts.append(
                f'<rect class="down {escape(interval.what)}" x="{x:.1f}" y="{y:.1f}"'
                f' width="{max(frame.x(interval.to_s) - x, 1):.1f}" height="{height:.1f}"/>'
            )
    name = escape(_shortened(lane.region, NAME_MAX))
    cluster = escape(_shortened(_cluster_text(lane), NAME_MAX))
    if frame.names_beside:
        x, middle = frame.left - 12, _middle(frame, y)
        parts.append(
            f'<text class="region" x="{x:.1f}" y="{middle:.1f}" text-anchor="end">{name}</text>'
            f'<text class="cluster" x="{x:.1f}" y="{middle + 15:.1f}" text-anchor="end">{cluster}</text>'
        )
    else:
        parts.append(
            f'<text class="region" x="{frame.left + 5:.1f}" y="{y + 14:.1f}">{name}'
            f' <tspan class="cluster">{cluster}</tspan></text>'
        )


def _draw_bars(parts: list[str], frame: _Frame, lane: Lane, y: float, highest: int) -> None:
    """Publishes above the line, deliveries below. What is stacked on top is drawn first, as the sum."""
    middle = _middle(frame, y)
    for base, other, direction in STACKS:
        sizes = [_bar_px(count, highest) for count in lane.counts[base]]
        tops = [
            min(max(_bar_px(count + more, highest), size + STACKED_PX_MIN), BARS_PX + STACKED_PX_MIN)
            if more
            else size
            for count, more, size in zip(lane.counts[base], lane.counts[other], sizes, strict=True)
        ]
        parts.append(_bars(frame, tops if any(lane.counts[other]) else [], middle, direction, other))
        parts.append(_bars(frame, sizes, middle, direction, base))
    parts.append(f'<path class="line" d="M{frame.left:.1f} {middle:.1f}H{frame.right:.1f}"/>')


def _draw_marks(parts: list[str], frame: _Frame, lane: Lane, marks: Iterable[Mark], y: float) -> None:
    own = [mark for mark in marks if mark.region == lane.region and mark.op in MARK_WORDS]
    top, bottom = y + _name_height(frame), y + _lane_height(frame) - 6
    parts += [f'<path class="mark" d="M{frame.x(mark.at_s):.1f} {top:.1f}V{bottom:.1f}"/>' for mark in own]
    for label in _placed(frame, own, 2):
        baseline = top + 13 + label.row * LABEL_PX
        parts.append(
            f'<text class="label" x="{label.x:.1f}" y="{baseline:.1f}" text-anchor="{label.anchor}">'
            f"{escape(label.text)}</text>"
        )


def _middle(frame: _Frame, y: float) -> float:
    """Of the lane that begins at `y`: its line."""
    return y + _lane_height(frame) - BARS_PX - 10


def _name_height(frame: _Frame) -> float:
    return 0.0 if frame.names_beside else float(LABEL_PX)


def _lane_height(frame: _Frame) -> float:
    """Room for the name where it stands above, two rows of labels, bars up and bars down."""
    return _name_height(frame) + 2 * LABEL_PX + 2 * BARS_PX + 16


def _bar_px(count: int, highest: int) -> float:
    """Square root, so that quiet times are seen beside busy ones, and one message alone is seen too."""
    return max(2.0, math.sqrt(min(count / highest, 1.0)) * BARS_PX) if count else 0.0


def _bars(frame: _Frame, sizes: Sequence[float], middle: float, direction: int, series: str) -> str:
    """One path for a whole series: fewer nodes than a rectangle per slice, and no seams between them."""
    if not any(sizes):
        return ""
    # On a narrow screen several slices share a bar, which shows the tallest of them.
    step = max(1, round(len(sizes) * 2.5 / (frame.right - frame.left)))
    merged = [max(sizes[start : start + step]) for start in range(0, len(sizes), step)]
    width = (frame.right - frame.left) * step / len(sizes)
    path = [f"M{frame.left:.1f} {middle:.1f}"]
    path += [f"V{middle + direction * size:.1f}h{width:.2f}" for size in merged]
    return f'<path class="{series}" d="{"".join(path)}V{middle:.1f}Z"/>'


def _cluster_text(lane: Lane) -> str:
    return f"cluster {lane.cluster}" if lane.cluster else ""


def _draw_cuts(parts: list[str], frame: _Frame, cuts: Sequence[Interval], y: float) -> None:
    for index, cut in enumerate(cuts):
        if index == 0:
            y = _strip_name(parts, frame, "links", y + 2)
        going_on = "" if cut.ended else ", not healed"
        ends = " \u2013 ".join(_shortened(region or "?", 20) for region in (cut.region, cut.other_region))
        text = f"{ends} {'held' if cut.what == 'hold' else cut.what} {cut.to_s - cut.from_s:.1f} s{going_on}"
        _bracket(parts, frame, cut.from_s, cut.to_s, text, y, "cut")
        y += _strip_height(frame)


def _strip_height(frame: _Frame) -> float:
    return 26.0 if frame.names_beside else 34.0


def _strip_name_height(frame: _Frame) -> float:
    return 0.0 if frame.names_beside else float(LABEL_PX)


def _strip_name(parts: list[str], frame: _Frame, name: str, y: float) -> float:
    if frame.names_beside:
        parts.append(
            f'<text class="region" x="{frame.left - 12:.1f}" y="{y + 16:.1f}" text-anchor="end">{name}</text>'
        )
        return y
    parts.append(f'<text class="region" x="{frame.left + 5:.1f}" y="{y + 13:.1f}">{name}</text>')
    return y + _strip_name_height(frame)


def _bracket(
    parts: list[str], frame: _Frame, from_s: float, to_s: float, text: str, y: float, kind: str
) -> None:
    """A length and its label: beside it where there is room, on the right for choice; on a narrow picture above."""
    x = frame.x(from_s)
    end, room = max(frame.x(to_s), x + 2), len(text) * BOLD_PX + 10
    line, baseline, anchor = y + 11, y + 15, "start"
    if not frame.names_beside:
        line, baseline = y + 23, y + 13
        place = max(frame.left + 5, min(x, frame.right - room))
    elif frame.right - end >= room:
        place = end + 7
    elif x - frame.left >= room:
        place, anchor = x - 7, "end"
    else:
        place, anchor = (x + end) / 2, "middle"
    parts.append(
        f'<path class="{kind} bracket" d="M{x:.1f} {line - 5:.1f}v10M{x:.1f} {line:.1f}H{end:.1f}'
        f'M{end:.1f} {line - 5:.1f}v10"/>'
        f'<text class="label {kind}" x="{place:.1f}" y="{baseline:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _draw_axis(parts: list[str], frame: _Frame, y: float, top: float) -> float:
    step = nice_step(frame.seconds, (frame.right - frame.left) / 90)
    digits = max(0, -math.floor(math.log10(step)))
    parts.append(f'<path class="line" d="M{frame.left:.1f} {y + 2:.1f}H{frame.right:.1f}"/>')
    for number in range(math.floor(frame.seconds / step + 1e-9) + 1):
        at_s = number * step
        x = frame.x(at_s)
        anchor = "start" if number == 0 and not frame.names_beside else "middle"
        if x > frame.right - 16:
            anchor = "end"
        parts.append(f'<path class="grid" d="M{x:.1f} {top:.1f}V{y + 6:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{y + 20:.1f}" text-anchor="{anchor}">{at_s:.{digits}f} s</text>'
        )
    return y + 28


def nice_step(seconds: float, ticks_max: float) -> float:
    """1, 2 or 5 times a power of ten, so that there are at most `ticks_max` steps."""
    raw = seconds / max(ticks_max, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= raw), 10 * power)


def _placed(frame: _Frame, marks: Sequence[Mark], rows: int) -> list[_Label]:
    """Labels of one lane, to the right of their moment (to the left at the right edge), each in the first row
    where it touches no other; what fits nowhere keeps its line and loses its text."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(rows)]
    labels = []
    for mark in marks:
        text = f"{MARK_WORDS[mark.op]} {mark.at_s:.1f} s"
        width, x = len(text) * CHARACTER_PX, frame.x(mark.at_s)
        start, anchor = (x + 5, "start") if x + 5 + width <= frame.right else (x - 5 - width, "end")
        row = next(
            (
                number
                for number, others in enumerate(taken)
                if all(start + width < a or start > b for a, b in others)
            ),
            None,
        )
        if row is not None:
            taken[row].append((start, start + width))
            labels.append(_Label(text, start if anchor == "start" else x - 5, anchor, row))
    return labels


def _stacked(lane: Lane, base: Series, other: Series) -> list[int]:
    return [a + b for a, b in zip(lane.counts[base], lane.counts[other], strict=True)]


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "\u2026"
