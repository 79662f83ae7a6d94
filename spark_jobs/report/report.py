"""The output of an evaluation: report.json for programs, report.html for people, and the text of the command line.

The size of the page depends on the number of regions, checks and witnesses, never on the number of messages: pictures
have a fixed number of slices of time, and long tables end after ROWS_MAX rows. A content security policy allows the one
script of the page by its digest, and nothing else: text of the evidence that was not escaped could not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.curves import Curve
from spark_jobs.figures.headline import ONE_RUN, explanation
from spark_jobs.figures.journeys import Journey, Origin, origin_of
from spark_jobs.figures.ownership import Contest
from spark_jobs.figures.timeline import BINS, Timeline
from spark_jobs.report.causes import causes
from spark_jobs.report.charts import (
    draw_cursors,
    draw_curves,
    draw_loads,
    legend_of,
    legend_of_cursors,
    sentences_of,
    title_of_contest,
    title_of_curve,
)
from spark_jobs.report.marker_drawing import draw_markers
from spark_jobs.report.picture import visible
from spark_jobs.report.texts import (
    curves_by_kind,
    head_rows,
    journey_lines,
    legend,
    steps_in_short,
    tiles,
    title_of_journey,
)
from spark_jobs.report.timeline_drawing import draw_timeline, full_height_count
from spark_jobs.report.topology_map import draw_map, has_map, link_rows
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count, duration_text

WIDE_PX = 1180
NARROW_PX = 356
"""Widths of the pictures on screens of 1400 and of 400 pixels."""
MAP_PX = 520
ROWS_MAX = 500
"""Maximum number of rows of a table; report.json has all of them."""
NAMES_MAX = 500
"""Maximum number of names that the filter suggests."""

EXAMPLES_MAX = 3
"""Maximum number of witnesses of a check in the output of the command line."""

_VERDICT_ORDER: Sequence[Verdict] = ("invalid", "unknown", "valid", "measured", "not applicable")
"""Order of the checks in the report: failed ones first."""


def write_report(evaluation: Evaluation, folder: Path) -> Path:
    """Write both files into `folder`, each atomically; return the path of the page. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "report.json", json.dumps(evaluation.as_json(), indent=1) + "\n")
    page = folder / "report.html"
    _replace(page, render_page(evaluation))
    return page


def render_page(evaluation: Evaluation) -> str:
    """Return the page, which loads no other file."""
    loader = PackageLoader("spark_jobs")
    templates = Environment(
        loader=loader,
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = loader.get_source(templates, "report.js")[0]
    return templates.get_template("report.html").render(
        evaluation=evaluation,
        headline=evaluation.headline,
        explanation=explanation(evaluation.verdict, evaluation.checks),
        head=head_rows(evaluation),
        tiles=tiles(evaluation.figures),
        stored=_stored_rows(evaluation.figures),
        steps=evaluation.scenario.steps,
        steps_in_short=steps_in_short(evaluation.scenario.steps),
        names=_names(evaluation),
        rows_max=ROWS_MAX,
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        duration_text=duration_text,
        **_checks_and_journeys(evaluation),
        **_pictures(evaluation),
    )


def _checks_and_journeys(evaluation: Evaluation) -> dict[str, Any]:
    timeline = evaluation.timeline
    journeys = _journeys_by_place(evaluation)
    places = {journey.origin: place for place, journey in journeys.items()}
    return {
        "reasons": [(check, _possible_causes(check, timeline)) for check in _reasons(evaluation)],
        "checks": [
            (check, _witness_table(check, places, timeline.start_ms), _possible_causes(check, timeline))
            for check in sorted(evaluation.checks, key=lambda check: _VERDICT_ORDER.index(check.verdict))
        ],
        "journeys": [
            (place, title_of_journey(one), journey_lines(one, timeline.start_ms), one in evaluation.followed)
            for place, one in journeys.items()
        ],
    }


def _pictures(evaluation: Evaluation) -> dict[str, Any]:
    """Return the pictures, each wide and narrow, and their legends. A drawing escapes every text it contains."""
    timeline, ownership = evaluation.timeline, evaluation.ownership
    names = [title_of_curve(curve) for curve in evaluation.curves]
    return {
        "links": link_rows(evaluation.links),
        "has_map": has_map(timeline),
        "map": _twice(lambda width: draw_map(timeline, evaluation.links, width), MAP_PX)
        if has_map(timeline)
        else None,
        "has_timeline": bool(timeline.lanes) and timeline.seconds > 0,
        "legend": legend(timeline),
        "timeline": _twice(lambda width: draw_timeline(timeline, width)),
        "peak": f"{round(full_height_count(timeline) * BINS / max(timeline.seconds, 0.001)):,}",
        "marks": [mark for mark in timeline.marks if mark.op != "phase"],
        "markers": _twice(lambda width: draw_markers(evaluation.markers, timeline, width, names))
        if evaluation.markers
        else None,
        "cursors": _twice(lambda width: draw_cursors(evaluation.cursors, timeline, width, names))
        if evaluation.cursors
        else None,
        "cursor_legend": legend_of_cursors(evaluation.cursors),
        "curves": [
            (heading, _twice(partial(_drawn_curves, of_kind, timeline, names)))
            for heading, of_kind in curves_by_kind(evaluation.curves)
        ],
        "ownership": [
            (
                title_of_contest(one),
                legend_of(one),
                sentences_of(one),
                _twice(partial(_drawn_loads, one, ownership)),
            )
            for one in ownership
        ],
    }


def _drawn_curves(curves: Sequence[Curve], timeline: Timeline, names: Sequence[str], width: int) -> str:
    return draw_curves(curves, timeline, width, names)


def _drawn_loads(contest: Contest, beside: Sequence[Contest], width: int) -> str:
    return draw_loads(contest, width, beside)


def _twice(draw: Callable[[int], str], wide_px: int = WIDE_PX) -> tuple[Markup, Markup]:
    """Return a picture for wide and for narrow screens."""
    return Markup(draw(wide_px)), Markup(draw(NARROW_PX))


def _visible(value: Any) -> Any:
    """Return a value for the template; Jinja escapes it afterwards, except pictures, whose text is escaped already."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _journeys_by_place(evaluation: Evaluation) -> dict[str, Journey]:
    """Return the anchor and journey of each message, once each, requested ones first."""
    messages = {one.origin: one for one in (*evaluation.followed, *evaluation.journeys)}
    return {f"journey-{number}": journey for number, journey in enumerate(messages.values(), 1)}


def _names(evaluation: Evaluation) -> list[str]:
    """Return the names that the filter suggests: of regions, actors in the timeline, and curves."""
    timeline = evaluation.timeline
    found = [lane.region for lane in timeline.lanes] + [lane.name for lane in timeline.actors]
    found += [title_of_curve(curve) for curve in evaluation.curves]
    return list(dict.fromkeys(found))[:NAMES_MAX]


def summary(evaluation: Evaluation, page: Path) -> str:
    """Return the text that the command line prints."""
    lines = [f"{evaluation.verdict.upper()}  {evaluation.run}", f"  {evaluation.headline}"]
    for check in evaluation.checks:
        if check.verdict != "not applicable":
            lines += _lines_of(check)
    inapplicable = sum(check.verdict == "not applicable" for check in evaluation.checks)
    if inapplicable:
        lines.append(
            f"  {'not applicable':<14} {count(inapplicable, 'check')} with nothing to check (listed in the report)."
        )
    if evaluation.verdict == "valid":
        lines.append(f"  {ONE_RUN}")
    for result in evaluation.limits:
        lines.append(f"  {result.outcome:<8} limit {result.limit.text}: {result.sentence}.")
    for journey in evaluation.followed:
        lines.append(f"{title_of_journey(journey)}:")
        journey_text = journey_lines(journey, evaluation.timeline.start_ms)
        lines += [f"  {at:>12}  {what}" for at, what in journey_text]
    lines.append(f"Report: {page}")
    return "\n".join(lines)


def _lines_of(check: CheckResult) -> list[str]:
    label = f"{check.invariant}  " if check.invariant.startswith("INV") else ""
    shown = check.witness[:EXAMPLES_MAX] if check.verdict in ("invalid", "unknown") else ()
    return [
        f"  {check.verdict:<14} {label}{check.title}: {check.sentence}",
        *(f"           e.g. {_one_line(witness)}" for witness in shown),
    ]


def _one_line(witness: Mapping[str, Any]) -> str:
    """Return a text such as `missing in us-west: orders-us-east 981 of us-east, there at 1:703; topic persistent://…`"""
    if "damage" in witness:
        return str(witness["damage"])
    place = f" in {witness['region']}" if "region" in witness else ""
    fields = [text.format(**witness) for name, text in _WITNESS_TEXTS if name in witness]
    line = f"{witness['kind']}{place}: {''.join(fields).removeprefix(',').lstrip()}"
    return f"{line}; topic {witness['topic']}" if "topic" in witness else line


_WITNESS_TEXTS = (
    ("producer", " {producer}"),
    ("sequence_id", " {sequence_id}"),
    ("origin_region", " of {origin_region}"),
    ("origin_position", ", there at {origin_position}"),
    ("position", ", at {position}"),
    ("other_position", ", in {other_region} at {other_position}"),
    ("owner", ", owner {owner}"),
    ("transaction_key", ", key {transaction_key}"),
    ("epoch", ", epoch {epoch}"),
    ("transaction", ", transaction {transaction}"),
)
"""Texts of the fields of a witness, in this order."""


def _reasons(evaluation: Evaluation) -> list[CheckResult]:
    """Return the checks with the verdict on the run; none if it is valid."""
    if evaluation.verdict == "valid":
        return []
    return [check for check in evaluation.checks if check.verdict == evaluation.verdict]


def _possible_causes(check: CheckResult, timeline: Timeline) -> list[str]:
    """Return the possible causes of what an invalid or unknown check found; none for other verdicts."""
    return causes(check, timeline) if check.verdict in ("invalid", "unknown") else []


def _stored_rows(figures: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    return [(region, n, figures["markers"].get(region, 0)) for region, n in figures["stored"].items()]


def _witness_table(
    check: CheckResult, places: Mapping[Origin, str], start_ms: float
) -> tuple[str, list[str], list[tuple[list[str], str]]]:
    """Return the topic that all witnesses name, or an empty text; the column names; and for each witness its cells and
    the anchor of its message's journey, empty without one. Columns without a value are left out; times are seconds
    since the start."""
    topics = {witness.get("topic") for witness in check.witness}
    shared = str(*topics) if len(topics) == 1 and None not in topics else ""
    names = [name for name in _ordered(check.witness) if name != "topic" or not shared]
    rows = []
    for witness in check.witness:
        place = places.get(origin_of(witness) or ("", "", "", 0), "")
        rows.append(([_cell(name, witness.get(name), start_ms) for name in names], place))
    return shared, [_HEADS.get(name, name.replace("_", " ")) for name in names], rows


_HEADS = {
    "kind": "what",
    "other_region": "other region",
    "at_ms": "at",
    "until_ms": "until",
    "sequence_id": "sequence id",
    "origin_region": "origin",
    "origin_position": "position there",
    "other_position": "position in the other region",
}


def _ordered(witnesses: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for witness in witnesses for name in witness))


def _cell(name: str, value: Any, start_ms: float) -> str:
    if value is None:
        return ""
    if name.endswith("_ms"):
        return f"{(value - start_ms) / 1000:.3f} s"
    return str(value)


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")  # a name may have lone surrogates
    os.replace(partial, path)
