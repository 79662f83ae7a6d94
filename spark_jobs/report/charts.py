"""The charts of the report besides the timeline: curves of latency and lag, and the loads of hosts.

A panel for each curve shows the median, the 99th percentile and the maximum of each slice of time. The scale is
logarithmic, so that a stall of a second and a median of five milliseconds are both visible. The background shows the
outages of regions.

A panel for each replicated subscription shows how far its position in each region is behind the end of the log there.

The loads are the numbers of topics of each host: a row for each host, in it a bar for the time before the first fault
of a host and one for the time after each moment of faults, all on one scale.

checker-1  ░░░░░░░░            8 → 0
checker-2  ░░░░░░░░            8 → 16
           ████████████████
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.figures.cursors import SLICES, CursorCurve
from spark_jobs.figures.curves import POINTS, Curve, Point
from spark_jobs.figures.ownership import Contest, Moment
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.picture import (
    BOLD_PX,
    CHARACTER_PX,
    NAME_MAX,
    NARROW_BELOW_PX,
    PlotArea,
    axis,
    covered,
    frame_for,
    grid,
    name_of,
    named_row,
    path,
    rect,
    shortened,
    svg,
    text,
    time_scale,
)
from spark_jobs.wording import count, duration_text

PANEL_PX = 84
LEAST_SECONDS = 0.001
"""Lower end of the scale; shorter times are drawn as this one."""
BAR_PX = 8
GAP_PX = 9
NARROW_NAME_MAX = 16
REGION_COLOURS = 6
"""Number of colours of regions in the style sheet."""
COLOURS = ("soft", "published", "gap", "wait")
"""Names of colours in the style sheet: of the bar before the first moment, and of the bar after each moment."""


def draw_curves(curves: Sequence[Curve], timeline: Timeline, width: int, names: Iterable[str] = ()) -> str:
    """Return an `<svg>` element with a panel for each curve, all on one scale. Its text is escaped. `names`: further
    names for which the margin is wide enough, so that the time axes of several pictures are aligned."""
    frame = frame_for(width, timeline.seconds, [*names, *map(title_of_curve, curves)], ["p99 100.000 s"])
    highest = math.ceil(math.log10(max([LEAST_SECONDS * 10, *(curve.whole.max for curve in curves)])))
    parts: list[str] = []
    y = 4.0
    height = PANEL_PX + frame.name_height + 8
    for curve in curves:
        names = title_of_curve(curve)
        parts.append(named_row(names, height, _panel(frame, curve, timeline.down, y, highest)))
        y += height
    ticks, end = axis(frame, y - 6)
    title = f"{len(curves)} curves of latency and lag"
    return svg([*parts, ticks], width, end, title, more=time_scale(frame))


def title_of_curve(curve: Curve) -> str:
    return curve.name.replace(" > ", " → ") if curve.what == "lag" else curve.name


def _panel(frame: PlotArea, curve: Curve, down: Iterable[Interval], y: float, highest: int) -> list[str]:
    p99 = f"p99 {duration_text(curve.whole.p99)}"
    parts = [name_of(frame, title_of_curve(curve), y + (36 if frame.names_beside else 13), p99)]
    y += frame.name_height
    parts.append(covered(frame, "down", down, y, PANEL_PX))
    parts.append(grid(frame, y, y + PANEL_PX))
    lowest = round(math.log10(LEAST_SECONDS))
    for power in range(lowest, highest + 1):
        line = _y(10.0**power, y, highest)
        parts.append(path("grid", f"M{frame.left:.1f} {line:.1f}H{frame.right:.1f}"))
        if power < highest:
            parts.append(text(frame.right, line - 2, _power_text(power), "tick", "end"))
    return [*parts, *(_line(frame, curve.points, name, y, highest) for name in ("max", "p99", "p50"))]


def _line(frame: PlotArea, points: Sequence[Point], name: str, y: float, highest: int) -> str:
    """Return the line of one statistic, broken at slices without a message; an isolated slice is a short dash."""
    moves, last = [], None
    half = frame.seconds / POINTS / 2
    for point in points:
        at_s = frame.seconds * (point.slice + 0.5) / POINTS
        level = _y(getattr(point, name), y, highest)
        if last is None or point.slice != last + 1:
            moves.append(f"M{frame.x(at_s - half):.1f} {level:.1f}")
        moves.append(f"L{frame.x(at_s):.1f} {level:.1f}")
        last = point.slice
    return path(f"curve {name}", "".join(moves)) if moves else ""


def _y(seconds: float, top: float, highest: int) -> float:
    lowest = math.log10(LEAST_SECONDS)
    share = (math.log10(max(seconds, LEAST_SECONDS)) - lowest) / (highest - lowest)
    return top + PANEL_PX * (1 - min(share, 1.0))


def _power_text(power: int) -> str:
    return f"{10.0**power:g} s" if power >= 0 else f"{10.0 ** (power + 3):g} ms"


def draw_cursors(
    curves: Sequence[CursorCurve], timeline: Timeline, width: int, names: Iterable[str] = ()
) -> str:
    """Return an `<svg>` element with a panel for each subscription, each on its own linear scale, and a line for each
    region (`legend_of_cursors`). Its text is escaped. `names`: see `draw_curves`."""
    regions = [region for _, region in legend_of_cursors(curves)]
    by_subscription: dict[str, list[CursorCurve]] = {}
    for curve in curves:
        by_subscription.setdefault(curve.subscription, []).append(curve)
    frame = frame_for(width, timeline.seconds, [*names, *by_subscription], ["up to 100,000 entries"])
    parts, y = [], 4.0
    height = PANEL_PX + frame.name_height + 8
    for name, of_name in by_subscription.items():
        most = max(max(curve.behind) for curve in of_name)
        panel = [
            name_of(frame, name, y + (36 if frame.names_beside else 13), f"up to {count(most, 'entry')}")
        ]
        top = y + frame.name_height
        panel.append(covered(frame, "down", timeline.down, top, PANEL_PX))
        panel.append(grid(frame, top, top + PANEL_PX))
        panel.append(path("line", f"M{frame.left:.1f} {top + PANEL_PX}H{frame.right:.1f}"))
        panel += [
            _cursor_line(frame, curve, top, max(most, 1), regions.index(curve.region)) for curve in of_name
        ]
        parts.append(named_row(name, height, panel))
        y += height
    ticks, end = axis(frame, y - 6)
    title = f"Positions of {len(by_subscription)} replicated subscriptions"
    return svg([*parts, ticks], width, end, title, more=time_scale(frame))


def _cursor_line(frame: PlotArea, curve: CursorCurve, top: float, most: int, number: int) -> str:
    points = (
        f"{frame.x(frame.seconds * (slice + 1) / SLICES):.1f} {top + PANEL_PX * (1 - behind / most):.1f}"
        for slice, behind in enumerate(curve.behind)
    )
    return path(f"curve region-{number % REGION_COLOURS}", f"M{'L'.join(points)}")


def legend_of_cursors(curves: Iterable[CursorCurve]) -> list[tuple[str, str]]:
    """Return (name of a colour in the style sheet, region) of each line; colours repeat after REGION_COLOURS."""
    regions = sorted({curve.region for curve in curves})
    return [(f"region-{number % REGION_COLOURS}", region) for number, region in enumerate(regions)]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Start and scale of the bars, equal in all pictures of one width."""

    name_max: int
    left: float
    px_per_topic: float


def draw_loads(contest: Contest, width: int, beside: Sequence[Contest]) -> str:
    """Return an `<svg>` element with the loads of a contest. Its text is escaped. `beside`: all contests of the
    page, which have one scale."""
    scale = _scale(beside, width)
    row_px = (len(contest.moments) + 1) * BAR_PX
    parts, y = [], 4.0
    for host in sorted(contest.loads, key=_host_order):
        loads = contest.loads[host]
        middle = y + row_px / 2 + 4
        parts.append(text(scale.left - 8, middle, shortened(host, scale.name_max), "region", "end"))
        parts += [
            rect(
                f"load-{COLOURS[number]}",
                scale.left,
                y + number * BAR_PX,
                scale.px_per_topic * load,
                BAR_PX - 1,
            )
            for number, load in enumerate(loads)
        ]
        longest = scale.px_per_topic * max(loads)
        parts.append(text(scale.left + longest + 7, middle, _label(loads), "label"))
        y += row_px + GAP_PX
    line = path("line", f"M{scale.left:.1f} 0V{y - GAP_PX + 4:.1f}")
    return svg([*parts, line], width, y - GAP_PX + 6, f"load of each host of {contest.name}")


def _scale(contests: Sequence[Contest], width: int) -> _Scale:
    rows = [one for contest in contests for one in contest.loads.items()]
    name_max = NAME_MAX if width >= NARROW_BELOW_PX else NARROW_NAME_MAX
    left = 16 + max(len(shortened(host, name_max)) for host, _ in rows) * (BOLD_PX + 0.6)
    room = width - left - max(len(_label(loads)) for _, loads in rows) * CHARACTER_PX - 14
    return _Scale(name_max, left, room / max(1, *(load for _, loads in rows for load in loads)))


def _label(loads: Sequence[int]) -> str:
    return " \u2192 ".join(map(str, loads))


def _host_order(host: str) -> tuple[str, int]:
    """Return a sort key that places `checker-10` after `checker-9`."""
    base, _, number = host.rpartition("-")
    return (base, int(number)) if number.isdecimal() else (host, 0)


def title_of_contest(contest: Contest) -> str:
    return f"{contest.name}: {len(contest.loads)} hosts, {contest.topics:,} topics"


def legend_of(contest: Contest) -> list[tuple[str, str]]:
    """Return (name of a colour in the style sheet, meaning) of each bar."""
    words = ["before", *(moment.words for moment in contest.moments)]
    return list(zip(COLOURS, words, strict=False))


def sentences_of(contest: Contest) -> list[str]:
    """Return a sentence for each moment: how many topics lost their owner, and for how long they had none."""
    return [_sentence(moment) for moment in contest.moments]


def _sentence(moment: Moment) -> str:
    if not moment.orphaned:
        return f"{moment.words}: no topic lost its owner."
    sentence = f"{moment.words}: {moment.orphaned:,} topics lost their owner"
    if moment.without_owner_p50 is not None and moment.without_owner_max is not None:
        taken_over = moment.orphaned - moment.still_without
        those = f"the {taken_over:,} that got a new owner" if moment.still_without else "them"
        sentence += (
            f"; half of {those} had none for {duration_text(moment.without_owner_p50)} or less,"
            f" the slowest for {duration_text(moment.without_owner_max)}"
        )
    return sentence + (f"; {moment.still_without:,} got no new owner." if moment.still_without else ".")
