"""Curves of latency and lag, a panel each: the median, the 99th percentile and the maximum of each slice of time.

The scale is logarithmic: a stall of a second and a median of five milliseconds are both seen. Behind it are the times
when a region was down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from spark_jobs.figures.curves import POINTS, Curve, Point
from spark_jobs.figures.timeline import Timeline
from spark_jobs.frames.faults import Interval
from spark_jobs.report.picture import PlotArea, axis, frame_for, name_of, svg, text
from spark_jobs.wording import duration_text

PANEL_PX = 84
LEAST_SECONDS = 0.001
"""What is quicker is drawn as this."""


def draw_curves(curves: Sequence[Curve], timeline: Timeline, width: int, names: Iterable[str] = ()) -> str:
    """An `<svg>` element with a panel for each, all on one scale. All text in it is escaped. `names`: those of other
    pictures that time is to run in step with."""
    titles = [*names, *map(title_of, curves)]
    frame = frame_for(width, timeline.seconds, titles, ["p99 100.000 s"])
    highest = math.ceil(math.log10(max([LEAST_SECONDS * 10, *(curve.whole.max for curve in curves)])))
    parts: list[str] = []
    y = 4.0
    for curve in curves:
        parts += _panel(frame, curve, timeline.down, y, highest)
        y += PANEL_PX + frame.name_height + 8
    grid, end = axis(frame, y - 6, 4.0)
    return svg([grid, *parts], width, end, f"{len(curves)} curves of latency and lag")


def title_of(curve: Curve) -> str:
    return curve.name.replace(" > ", " → ") if curve.what == "lag" else curve.name


def _panel(frame: PlotArea, curve: Curve, down: Iterable[Interval], y: float, highest: int) -> list[str]:
    p99 = f"p99 {duration_text(curve.whole.p99)}"
    parts = [name_of(frame, title_of(curve), y + (36 if frame.names_beside else 13), p99)]
    y += frame.name_height
    parts += [
        f'<rect class="down" x="{frame.x(one.from_s):.1f}" y="{y:.1f}"'
        f' width="{max(frame.x(one.to_s) - frame.x(one.from_s), 1):.1f}" height="{PANEL_PX}"/>'
        for one in down
    ]
    lowest = round(math.log10(LEAST_SECONDS))
    for power in range(lowest, highest + 1):
        line = _y(10.0**power, y, highest)
        parts.append(f'<path class="grid" d="M{frame.left:.1f} {line:.1f}H{frame.right:.1f}"/>')
        if power < highest:
            parts.append(text(frame.right, line - 2, _power_text(power), "tick", "end"))
    for name in ("max", "p99", "p50"):
        parts.append(_line(frame, curve.points, name, y, highest))
    return parts


def _line(frame: PlotArea, points: Sequence[Point], name: str, y: float, highest: int) -> str:
    """Broken where a slice has no message; a slice alone is a short dash."""
    path, last = [], None
    half = frame.seconds / POINTS / 2
    for point in points:
        at_s = frame.seconds * (point.slice + 0.5) / POINTS
        level = _y(getattr(point, name), y, highest)
        if last is None or point.slice != last + 1:
            path.append(f"M{frame.x(at_s - half):.1f} {level:.1f}")
        path.append(f"L{frame.x(at_s):.1f} {level:.1f}")
        last = point.slice
    return f'<path class="curve {name}" d="{"".join(path)}"/>' if path else ""


def _y(seconds: float, top: float, highest: int) -> float:
    lowest = math.log10(LEAST_SECONDS)
    share = (math.log10(max(seconds, LEAST_SECONDS)) - lowest) / (highest - lowest)
    return top + PANEL_PX * (1 - min(share, 1.0))


def _power_text(power: int) -> str:
    return f"{10.0**power:g} s" if power >= 0 else f"{10.0 ** (power + 3):g} ms"
