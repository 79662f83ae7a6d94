"""Elements of the report's pictures: the time scale, names, brackets with labels, and the time axis.

Pictures are drawn twice, once wide and once narrow, instead of scaled: text keeps its size. Colours are CSS classes,
which the page's style sheet defines. All text is escaped here; class names are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from spark_jobs.frames.faults import Interval
from spark_jobs.wording import duration_text

CHARACTER_PX = 6.6
"""Upper estimate of a character's width in a label, which has 12 px."""
BOLD_PX = 7.4
"""Upper estimate of the width of a bold character."""
LABEL_PX = 17
"""Height of one row of labels."""
NAME_MAX = 26
"""Maximum number of characters of a name."""
NARROW_BELOW_PX = 700
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Control characters, and characters that reorder or hide the text around them."""


@dataclass(frozen=True, slots=True)
class PlotArea:
    """Dimensions of a picture, in pixels, and the duration that it shows."""

    width: float
    left: float
    """Position of the first moment. Names are to the left of it if there is room."""
    right: float
    """Position of the last moment."""
    seconds: float
    names_beside: bool
    """Whether names are to the left of the objects, and not above them."""

    def x(self, at_s: float) -> float:
        """Return the x position of a moment; moments outside of the period are at its edges."""
        return self.left + (self.right - self.left) * min(max(at_s / self.seconds, 0.0), 1.0)

    @property
    def name_height(self) -> float:
        """Height of a name above the object that it names; 0 if names are to the left."""
        return 0.0 if self.names_beside else float(LABEL_PX)


@dataclass(slots=True)
class LabelRow:
    """A row of labels that do not touch each other."""

    reserved: list[tuple[float, float]] = field(default_factory=list)

    def reserve(self, start: float, end: float) -> bool:
        """Reserve a range if it is free. Returns whether it was."""
        free = all(end < a or start > b for a, b in self.reserved)
        if free:
            self.reserved.append((start, end))
        return free

    def reserve_near(self, start: float, width: float, shift_max: float) -> float | None:
        """Reserve room for a label as near to the right of `start` as possible. Returns its position; None: no room."""
        for position in sorted([start, *(end + 4 for _, end in self.reserved)]):
            if start <= position <= start + shift_max and self.reserve(position, position + width):
                return position
        return None


def frame_for(
    width: float, seconds: float, names: Iterable[str], small_names: Iterable[str] = ()
) -> PlotArea:
    """Return a plot area. Wide ones have a margin for the names."""
    beside = width >= NARROW_BELOW_PX
    gutter = 16 + max(
        max((len(shortened(name)) * (BOLD_PX + 0.6) for name in names), default=0),
        max((len(shortened(name)) * CHARACTER_PX for name in small_names), default=0),
    )
    return PlotArea(width, gutter if beside else 8.0, width - 14.0, max(seconds, 0.001), beside)


def svg(
    parts: Iterable[str], width: float, height: float, title: str, kind: str = "timeline", more: str = ""
) -> str:
    """Return a picture. `more`: further attributes, each with a space before it."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" role="img"'
        f' aria-label="{escaped(title)}"{more}>{"".join(parts)}</svg>'
    )


def time_scale(frame: PlotArea) -> str:
    """Return the attributes of a picture from which the page's script computes the x position of a moment."""
    return f' data-left="{frame.left:.1f}" data-right="{frame.right:.1f}" data-seconds="{frame.seconds:g}"'


def named_row(names: str, height: float, parts: Iterable[str]) -> str:
    """Return a row of a picture that the page's script hides unless a filter matches its `names`."""
    return f'<g class="row" data-f="{escaped(names)}" data-h="{height:.1f}">{"".join(parts)}</g>'


def rect(kind: str, x: float, y: float, width: float, height: float, more: str = "") -> str:
    """Return a rectangle. `more`: further attributes, each with a space before it."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"{more}/>'


def path(kind: str, moves: str) -> str:
    return f'<path class="{kind}" d="{moves}"/>'


def period_rect(
    frame: PlotArea, kind: str, from_s: float, to_s: float, y: float, height: float, least_px: float = 1
) -> str:
    """Return a rectangle that covers a period, at least `least_px` wide."""
    x = frame.x(from_s)
    return rect(kind, x, y, max(frame.x(to_s) - x, least_px), height)


def distinct_periods(frame: PlotArea, periods: Iterable[Interval]) -> list[Interval]:
    """Return the periods of which each covers other pixels than the ones before: a picture has room for no more."""
    covered: dict[tuple[int, int], Interval] = {}
    for one in periods:
        covered.setdefault((round(frame.x(one.from_s) / 2), round(frame.x(one.to_s) / 2)), one)
    return list(covered.values())


def covered(frame: PlotArea, kind: str, periods: Iterable[Interval], y: float, height: float) -> str:
    """Return the area that periods cover as one path, each at least 1 px wide; empty without periods. The length of
    the path depends on the width of the picture, not on the number of periods."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted((frame.x(one.from_s), frame.x(one.to_s)) for one in periods):
        if spans and start <= spans[-1][1] + 0.5:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((start, max(end, start + 1)))
    moves = (f"M{start:.1f} {y:.1f}H{end:.1f}v{height:.1f}H{start:.1f}z" for start, end in spans)
    return path(kind, "".join(moves)) if spans else ""


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(words)}</text>'


def name_of(frame: PlotArea, name: str, y: float, below: str = "") -> str:
    """Return a name in the left margin, or inside of the plot area if there is no margin. `y`: baseline of the name.
    `below`: a second, smaller text, below the name in the margin and else beside it."""
    name, below = shortened(name), shortened(below)
    if frame.names_beside:
        x = frame.left - 12
        return text(x, y, name, "region", "end") + (text(x, y + 15, below, "cluster", "end") if below else "")
    room = (frame.right - frame.left - len(name) * BOLD_PX) / CHARACTER_PX
    below = shortened(below, max(int(room) - 2, 2)) if below else ""
    small = f' <tspan class="cluster">{escaped(below)}</tspan>' if below else ""
    return f'<text class="region" x="{frame.left + 5:.1f}" y="{y:.1f}">{escaped(name)}{small}</text>'


def bracket(frame: PlotArea, from_s: float, to_s: float, line: float, kind: str) -> str:
    """Return a bracket that covers a period, at least 2 px wide, with its line at the y position `line`."""
    x = frame.x(from_s)
    end = max(frame.x(to_s), x + 2)
    ends = f"M{x:.1f} {line - 5:.1f}v10", f"M{end:.1f} {line - 5:.1f}v10"
    return path(f"{kind} bracket", f"{ends[0]}M{x:.1f} {line:.1f}H{end:.1f}{ends[1]}")


def label_beside(
    frame: PlotArea, from_s: float, to_s: float, words: str, y: float, kind: str, row: LabelRow
) -> str | None:
    """Return a label right of a period, left of it, or on it, where the row has room; None if it has no room."""
    x, end, width = frame.x(from_s), frame.x(to_s), len(words) * BOLD_PX
    middle = min(max((x + end - width) / 2, frame.left), max(frame.right - width, frame.left))
    for start in (end + 7, x - 7 - width, middle):
        if start >= frame.left and start + width <= frame.right + 4 and row.reserve(start, start + width):
            return text(start, y, words, kind)
    return None


def moment_label(
    frame: PlotArea,
    at_s: float,
    words: str,
    y: float,
    kind: str,
    row: LabelRow,
    shift_max: float = 0.0,
    character_px: float = CHARACTER_PX,
) -> str | None:
    """Return a label right of a moment, or left of it at the right edge; None if there is no room. `shift_max`: maximum
    distance from the moment, in pixels."""
    x, width = frame.x(at_s), len(words) * character_px
    room = frame.right - (x + 5) - width
    if room < 0:
        fits = x - 5 - width >= frame.left and row.reserve(x - 5 - width, x - 5)
        return text(x - 5, y, words, kind, "end") if fits else None
    start = row.reserve_near(x + 5, width, min(shift_max, room))
    return None if start is None else text(start, y, words, kind)


def bars(frame: PlotArea, sizes: Sequence[float], base: float, direction: int, kind: str) -> str:
    """Return the bars of a series as one path, empty without bars: fewer nodes than a rectangle per slice, no gaps."""
    if not any(sizes):
        return ""
    # On a narrow screen several slices share a bar, which shows the tallest of them.
    step = max(1, round(len(sizes) * 2.5 / (frame.right - frame.left)))
    merged = [max(sizes[start : start + step]) for start in range(0, len(sizes), step)]
    width = (frame.right - frame.left) * step / len(sizes)
    moves = "".join(f"V{base + direction * size:.1f}h{width:.2f}" for size in merged)
    return path(kind, f"M{frame.left:.1f} {base:.1f}{moves}V{base:.1f}Z")


def bar_px(count: int, highest: int, tallest_px: float) -> float:
    """Return the height of a bar, 0 without messages, else at least 2 px; the square root makes low rates visible next
    to high ones."""
    return max(2.0, math.sqrt(min(count / highest, 1.0)) * tallest_px) if count else 0.0


def grid(frame: PlotArea, top: float, bottom: float) -> str:
    """Return the grid lines of the time axis in one row."""
    return path("grid", "".join(f"M{frame.x(at_s):.1f} {top:.1f}V{bottom:.1f}" for at_s in _ticks(frame)[0]))


def axis(frame: PlotArea, y: float) -> tuple[str, float]:
    """Return the time axis, with ticks at `y`, and the y position below it."""
    ticks, digits = _ticks(frame)
    parts = [path("line", f"M{frame.left:.1f} {y + 2:.1f}H{frame.right:.1f}")]
    for number, at_s in enumerate(ticks):
        x = frame.x(at_s)
        anchor = "start" if number == 0 and not frame.names_beside else "middle"
        if x > frame.right - 16:
            anchor = "end"
        parts.append(path("grid", f"M{x:.1f} {y + 2:.1f}V{y + 6:.1f}"))
        parts.append(text(x, y + 20, f"{at_s:.{digits}f} s", "tick", anchor))
    return f'<g class="foot">{"".join(parts)}</g>', y + 28


def _ticks(frame: PlotArea) -> tuple[list[float], int]:
    """Return the moments of the ticks, and the number of decimal places of their labels."""
    step = nice_step(frame.seconds, (frame.right - frame.left) / 90)
    ticks = [number * step for number in range(math.floor(frame.seconds / step + 1e-9) + 1)]
    return ticks, max(0, -math.floor(math.log10(step)))


def nice_step(seconds: float, ticks_max: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that there are at most `ticks_max` steps."""
    raw = seconds / max(ticks_max, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= raw), 10 * power)


def visible(words: str) -> str:
    """Return a text of the evidence with escapes in place of characters that reorder or hide others."""
    return _UNSEEN.sub(lambda one: f"\\u{ord(one[0]):04x}", words)


def escaped(words: str) -> str:
    """Return a text of the evidence for the page."""
    return escape(visible(words))


def shortened(words: str, length: int = NAME_MAX) -> str:
    return words if len(words) <= length else words[: length - 1] + "\u2026"


def length_text(seconds: float, ended: bool) -> str:
    return duration_text(seconds) if ended else f"{duration_text(seconds)}, until the end"
