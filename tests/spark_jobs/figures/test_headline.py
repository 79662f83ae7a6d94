"""The headline matches the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator.run.limits import parse_limits
from spark_jobs.figures.headline import ONE_RUN, explanation, headline
from spark_jobs.figures.limits import LimitResult
from spark_jobs.report.ci_report import junit, markdown
from spark_jobs.report.report import render_page, summary
from spark_jobs.report.texts import tiles
from spark_jobs.verdict import INFORMATION, CheckResult, Verdict, overall
from tests.spark_jobs.report.test_report import evaluation


def checks(
    *verdicts: Verdict, evidence: Verdict = "valid", said: str = "It is.", damages: int = 0
) -> list[CheckResult]:
    witness = ({"damage": "a file is gone"},) * damages
    return [
        CheckResult("evidence-complete", "the evidence is complete", INFORMATION, evidence, said, witness),
        *(CheckResult(f"c{n}", f"check {n}", f"INV-{n}", one, "So.") for n, one in enumerate(verdicts, 1)),
        CheckResult("failover-gap", "fail-over gap", INFORMATION, "measured", "0.84 s."),
    ]


def lost(*regions: str, unrecovered: int) -> Mapping[str, Any]:
    return {"loss": {"regions": list(regions), "unrecovered": unrecovered}}


def missed(*texts: str) -> list[LimitResult]:
    return [LimitResult(parse_limits(text)[0], "missed", "it was more") for text in texts]


@pytest.mark.parametrize(
    ("found", "figures", "limits", "text"),
    [
        (checks("valid"), {}, [], "Valid: no guarantee was broken."),
        (
            checks("valid"),
            lost("us-east", unrecovered=873),
            [],
            "Valid: no guarantee was broken. 873 acknowledged messages were lost with us-east.",
        ),
        (
            checks("valid"),
            lost("us-east", "us-west", unrecovered=1),
            [],
            "Valid: no guarantee was broken. 1 acknowledged message was lost with us-east and us-west.",
        ),
        (
            checks("valid"),
            lost("us-east", unrecovered=0),
            missed("gap<=2s"),
            "Valid: no guarantee was broken. No acknowledged message was lost with us-east. Limits missed: gap<=2s.",
        ),
        (
            checks("valid", "invalid"),
            lost("us-east", unrecovered=2),
            [],
            "Invalid: 1 guarantee was broken (INV-2 check 2). 2 acknowledged messages were lost with us-east.",
        ),
        (
            checks("invalid", "unknown", "invalid"),
            {},
            [],
            "Invalid: 2 guarantees were broken (INV-1 check 1, INV-3 check 3).",
        ),
        (
            checks("valid", evidence="unknown", said="Evidence is missing: a file.", damages=1),
            {},
            [],
            "Unknown: evidence is missing.",
        ),
        (
            checks(
                "valid",
                "unknown",
                evidence="unknown",
                said="The scenario failed: step 2 (wait: 1s): shop ended.",
            ),
            {},
            [],
            "Unknown: the scenario failed and 1 check could not be decided (INV-2 check 2).",
        ),
        (
            checks("valid", "unknown"),
            lost("us-east", unrecovered=2),
            [],
            "Unknown: 1 check could not be decided (INV-2 check 2). 2 acknowledged messages were lost with us-east.",
        ),
        (checks("not applicable"), {}, [], "Unknown: no check had anything to check."),
    ],
)
def test_a_headline_is_derived_from_checks_and_figures(
    found: list[CheckResult], figures: Mapping[str, Any], limits: list[LimitResult], text: str
) -> None:
    assert headline(overall(found), found, figures, limits) == text


def test_the_explanation_counts_what_was_checked() -> None:
    found = checks("valid", "not applicable", "valid")
    assert explanation("valid", found) == f"2 checks of 3 had something to check: 2 valid. {ONE_RUN}"
    found = checks("valid", "unknown")
    assert explanation("unknown", found) == (
        "2 checks of 2 had something to check: 1 valid, 1 unknown. Do not read this as a pass."
    )


def test_page_terminal_and_data_have_the_same_headline() -> None:
    told = replace(evaluation("valid"), figures={**evaluation().figures, **LOSS})
    said = "Valid: no guarantee was broken. 873 acknowledged messages were lost with us-east."
    assert told.as_json()["headline"] == told.headline == said
    assert said in render_page(told)
    assert said in summary(told, Path("x"))
    assert said in markdown(told)
    assert said in junit(told)
    assert ONE_RUN in render_page(told)
    assert ONE_RUN in summary(told, Path("x"))


LOSS = {"loss": {**lost("us-east", unrecovered=873)["loss"], "recovery_point_seconds": 1.0}}


def test_a_figure_is_valid_nowhere() -> None:
    told = replace(evaluation("invalid"), checks=tuple(checks("invalid")[1:]))
    (line,) = [line for line in summary(told, Path("x")).splitlines() if "fail-over gap" in line]
    assert line.split()[0] == "measured"
    page = render_page(told)
    assert 'article class="check measured"' in page
    assert 'article class="check valid"' not in page
    assert "| measured | fail-over gap |" in markdown(told)
    assert 'name="fail-over gap" value="0.84 s."' in junit(told)
    assert 'testcase classname="geoemu.info"' not in junit(told)


def test_checks_that_are_not_applicable_are_one_line() -> None:
    told = replace(evaluation("unknown"), checks=tuple(checks(*["not applicable"] * 12, evidence="unknown")))
    text = summary(told, Path("x"))
    assert len(text.splitlines()) == 6
    assert "  not applicable 12 checks with nothing to check (listed in the report).\n" in text


@pytest.mark.parametrize(
    ("gap", "gaps", "tile"),
    [
        (None, {}, ("\u2013", "fail-over gap", "no consumer lost its region")),
        (
            0.84,
            {"billing": 0.84},
            ("0.840 s", "fail-over gap", "from the loss of the region to the next message"),
        ),
        (None, {"billing": None}, ("endless", "fail-over gap", "billing received no further message")),
        (
            0.84,
            {"billing": 0.84, "audit": None},
            ("endless", "fail-over gap", "audit received no further message"),
        ),
    ],
)
def test_a_subscription_that_never_went_on_is_no_subscription_that_lost_nothing(
    gap: float | None, gaps: Mapping[str, float | None], tile: tuple[str, str, str]
) -> None:
    figures = {**evaluation().figures, "failover_gap_seconds": gap, "gaps": gaps}
    assert tile in tiles(figures)
