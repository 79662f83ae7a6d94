"""The output of an evaluation: report.json for programs, report.html for people, and the text of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs.evaluation import Evaluation
from spark_jobs.figures.headline import ONE_RUN, explanation
from spark_jobs.figures.journeys import Journey, Origin, origin_of
from spark_jobs.figures.timeline import BINS, Timeline
from spark_jobs.report.causes import causes
from spark_jobs.report.charts import (
    draw_curves,
    draw_loads,
    legend_of,
    sentences_of,
    title_of_contest,
    title_of_curve,
)
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
from spark_jobs.verdict import CheckResult, Verdict
from spark_jobs.wording import count, duration_text

WIDE_PX = 1180
NARROW_PX = 356
"""Widths of the pictures on screens of 1400 and of 400 pixels."""

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
    """Return the page, which contains no scripts and loads no other file."""
    templates = Environment(
        loader=PackageLoader("spark_jobs"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    timeline = evaluation.timeline
    journeys = {journey.origin: journey for journey in evaluation.journeys}
    names = [title_of_curve(curve) for curve in evaluation.curves]
    return templates.get_template("report.html").render(
        evaluation=evaluation,
        headline=evaluation.headline,
        explanation=explanation(evaluation.verdict, evaluation.checks),
        head=head_rows(evaluation),
        reasons=[(check, _possible_causes(check, timeline)) for check in _reasons(evaluation)],
        tiles=tiles(evaluation.figures),
        stored=_stored_rows(evaluation.figures),
        steps=evaluation.scenario.steps,
        steps_in_short=steps_in_short(evaluation.scenario.steps),
        checks=[
            (check, _witness_table(check, journeys, timeline.start_ms), _possible_causes(check, timeline))
            for check in sorted(evaluation.checks, key=lambda check: _VERDICT_ORDER.index(check.verdict))
        ],
        legend=legend(timeline),
        followed=[
            (title_of_journey(journey), journey_lines(journey, timeline.start_ms))
            for journey in evaluation.followed
        ],
        curves=[
            (
                heading,
                *(Markup(draw_curves(of_kind, timeline, width, names)) for width in (WIDE_PX, NARROW_PX)),
            )
            for heading, of_kind in curves_by_kind(evaluation.curves)
        ],
        ownership=[
            (
                title_of_contest(contest),
                legend_of(contest),
                sentences_of(contest),
                *(Markup(draw_loads(contest, width, evaluation.ownership)) for width in (WIDE_PX, NARROW_PX)),
            )
            for contest in evaluation.ownership
        ],
        # The drawing escapes every text it contains.
        wide=Markup(draw_timeline(timeline, WIDE_PX)),
        narrow=Markup(draw_timeline(timeline, NARROW_PX)),
        has_timeline=bool(timeline.lanes) and timeline.seconds > 0,
        peak=f"{round(full_height_count(timeline) * BINS / max(timeline.seconds, 0.001)):,}",
        marks=[mark for mark in timeline.marks if mark.op != "phase"],
        duration_text=duration_text,
    )


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
    check: CheckResult, journeys: Mapping[Origin, Journey], start_ms: float
) -> tuple[str, list[str], list[tuple[list[str], list[tuple[str, str]]]]]:
    """Return the topic that all witnesses name, or an empty text; the column names; and for each witness its cells and
    the lines of its message's journey. Columns without a value are left out; times are seconds since the start."""
    topics = {witness.get("topic") for witness in check.witness}
    shared = str(*topics) if len(topics) == 1 and None not in topics else ""
    names = [name for name in _ordered(check.witness) if name != "topic" or not shared]
    rows = []
    for witness in check.witness:
        journey = journeys.get(origin_of(witness) or ("", "", "", 0))
        lines = journey_lines(journey, start_ms) if journey is not None else []
        rows.append(([_cell(name, witness.get(name), start_ms) for name in names], lines))
    return shared, [_HEADS.get(name, name.replace("_", " ")) for name in names], rows


_HEADS = {
    "kind": "what",
    "other_region": "other region",
    "at_ms": "at",
    "until_ms": "until",
    "sequence_id": "sequence id",
    "origin_region": "origin",
    "origin_position": "position there",
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
