"""The load of each host before and after others died: a row for each host, a bar for each moment, all on one scale.

checker-1  ░░░░░░░░            8 → 0
checker-2  ░░░░░░░░            8 → 16
           ████████████████
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.figures.ownership import Contest, Moment
from spark_jobs.report.picture import BOLD_PX, CHARACTER_PX, NAME_MAX, NARROW_BELOW_PX, shortened, svg, text
from spark_jobs.wording import duration_text

BAR_PX = 8
GAP_PX = 9
NARROW_NAME_MAX = 16
COLOURS = ("soft", "published", "gap", "wait")
"""Before, and after each moment."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where bars begin and how long they are, in all pictures of a page."""

    name_max: int
    left: float
    px_per_topic: float


def draw_loads(contest: Contest, width: int, beside: Sequence[Contest]) -> str:
    """An `<svg>` element. All text in it is escaped. `beside`: all contests of the page, this one too."""
    scale = _scale(beside, width)
    row_px = (len(contest.moments) + 1) * BAR_PX
    parts, y = [], 4.0
    for host in sorted(contest.loads, key=_in_order):
        loads = contest.loads[host]
        middle = y + row_px / 2 + 4
        parts.append(text(scale.left - 8, middle, shortened(host, scale.name_max), "region", "end"))
        parts += [
            f'<rect class="load-{COLOURS[number]}" x="{scale.left:.1f}" y="{y + number * BAR_PX:.1f}"'
            f' width="{scale.px_per_topic * load:.1f}" height="{BAR_PX - 1}"/>'
            for number, load in enumerate(loads)
        ]
        longest = scale.px_per_topic * max(loads)
        parts.append(text(scale.left + longest + 7, middle, _label(loads), "label"))
        y += row_px + GAP_PX
    line = f'<path class="line" d="M{scale.left:.1f} 0V{y - GAP_PX + 4:.1f}"/>'
    return svg([*parts, line], width, y - GAP_PX + 6, f"load of each host of {contest.name}")


def _scale(contests: Sequence[Contest], width: int) -> _Scale:
    told = [one for contest in contests for one in contest.loads.items()]
    name_max = NAME_MAX if width >= NARROW_BELOW_PX else NARROW_NAME_MAX
    left = 16 + max(len(shortened(host, name_max)) for host, _ in told) * (BOLD_PX + 0.6)
    room = width - left - max(len(_label(loads)) for _, loads in told) * CHARACTER_PX - 14
    return _Scale(name_max, left, room / max(1, *(load for _, loads in told for load in loads)))


def _label(loads: Sequence[int]) -> str:
    return " \u2192 ".join(map(str, loads))


def _in_order(host: str) -> tuple[str, int]:
    """`checker-10` behind `checker-9`."""
    base, _, number = host.rpartition("-")
    return (base, int(number)) if number.isdecimal() else (host, 0)


def title_of_contest(contest: Contest) -> str:
    return f"{contest.name}: {len(contest.loads)} hosts, {contest.topics:,} topics"


def legend_of(contest: Contest) -> list[tuple[str, str]]:
    """(colour, meaning) of the bars."""
    words = ["before", *(moment.words for moment in contest.moments)]
    return list(zip(COLOURS, words, strict=False))


def sentences_of(contest: Contest) -> list[str]:
    """How long topics had no owner."""
    return [_sentence(moment) for moment in contest.moments]


def _sentence(moment: Moment) -> str:
    if not moment.orphaned:
        return f"{moment.words}: no topic lost its owner."
    told = f"{moment.words}: {moment.orphaned:,} topics lost their owner"
    if moment.without_owner_p50 is not None and moment.without_owner_max is not None:
        told += (
            f"; half of them had no owner for {duration_text(moment.without_owner_p50)} or less,"
            f" the slowest for {duration_text(moment.without_owner_max)}"
        )
    return told + (f"; {moment.still_without:,} got no new owner." if moment.still_without else ".")
