"""Reports of an evaluation for continuous integration: JUnit XML for programs, Markdown for people.

A check or limit is a test case. Invalid and missed are failures, unknown is an error, a check with nothing to check is
skipped. A figure is a property of the suite in JUnit, and a row without a sign in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from xml.etree import ElementTree

from spark_jobs.evaluation import Evaluation

Case = Literal["passed", "failure", "error", "skipped", "measured"]
_CASE_OF: Mapping[str, Case] = {
    "valid": "passed",
    "kept": "passed",
    "invalid": "failure",
    "missed": "failure",
    "unknown": "error",
    "not applicable": "skipped",
    "measured": "measured",
}
_SIGNS: Mapping[Case, str] = {"passed": "✅", "failure": "❌", "error": "❔", "skipped": "–", "measured": ""}


def _rows(evaluation: Evaluation) -> list[tuple[str, str, Case, str, str]]:
    """Return (group, name, case, outcome, sentence) of each check and limit."""
    checks = [
        (check.invariant, check.title, _CASE_OF[check.verdict], check.verdict, check.sentence)
        for check in evaluation.checks
    ]
    limits = [
        ("limit", result.limit.text, _CASE_OF[result.outcome], result.outcome, result.sentence)
        for result in evaluation.limits
    ]
    return [*checks, *limits]


def junit(evaluation: Evaluation) -> str:
    """Return one test suite. Control characters and lone surrogates, which XML cannot contain, are removed."""
    figures = [row for row in _rows(evaluation) if row[2] == "measured"]
    rows = [row for row in _rows(evaluation) if row[2] != "measured"]
    cases = [case for _, _, case, _, _ in rows]
    suite = ElementTree.Element(
        "testsuite",
        name=f"geoemu {_clean(evaluation.run)}",
        tests=str(len(rows)),
        failures=str(cases.count("failure")),
        errors=str(cases.count("error")),
        skipped=str(cases.count("skipped")),
        time=f"{evaluation.figures['duration_seconds']:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in (("headline", evaluation.headline), *((row[1], row[4]) for row in figures)):
        ElementTree.SubElement(properties, "property", name=_clean(name), value=_clean(text))
    for group, name, case, outcome, sentence in rows:
        element = ElementTree.SubElement(suite, "testcase", classname=f"geoemu.{group}", name=_clean(name))
        if case != "passed":
            ElementTree.SubElement(element, case, message=_clean(f"{outcome}: {sentence}"))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def markdown(evaluation: Evaluation) -> str:
    """Return a heading with the verdict, the headline, and a table of checks and limits."""
    lines = [
        f"## geoemu: {evaluation.verdict}",
        "",
        _cell(evaluation.headline),
        "",
        "| | check | |",
        "|---|---|---|",
    ]
    for group, name, case, outcome, sentence in _rows(evaluation):
        label = "" if group == "info" else f"{group} "
        lines.append(f"| {f'{_SIGNS[case]} {outcome}'.strip()} | {label}{_cell(name)} | {_cell(sentence)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _clean(text: str) -> str:
    return "".join(
        one
        for one in text
        if one in "\t\n" or (one >= " " and one not in "\ufffe\uffff" and not "\ud800" <= one <= "\udfff")
    )
