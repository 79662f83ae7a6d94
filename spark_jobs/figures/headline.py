"""The first sentence of a report, on the page and on the terminal: derived from verdict, checks, figures and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.figures.limits import LimitResult
from spark_jobs.verdict import INFORMATION, CheckResult, Verdict
from spark_jobs.wording import count

EVIDENCE = "evidence-complete"
"""Name of the check that logs and history are complete, and that no step of the scenario failed."""
SCENARIO_FAILED = "The scenario failed: "

ONE_RUN = (
    "One valid run proves only this run: repeat it and kill at other moments before you rely on it"
    " (docs/OWN_SERVICE.md)."
)


def headline(
    verdict: Verdict,
    checks: Sequence[CheckResult],
    figures: Mapping[str, Any],
    limits: Sequence[LimitResult],
) -> str:
    """Return for example `Valid: no guarantee was broken. 873 acknowledged messages were lost with us-east.`"""
    sentences = [
        _verdict_sentence(verdict, checks),
        loss_sentence(figures.get("loss")),
        limits_sentence(limits),
    ]
    return " ".join(filter(None, sentences))


def explanation(verdict: Verdict, checks: Iterable[CheckResult]) -> str:
    """Return how many checks had something to check, and what the verdict proves or does not prove."""
    checks = [check for check in checks if check.invariant != INFORMATION]
    verdicts = [check.verdict for check in checks]
    checked = len(verdicts) - verdicts.count("not applicable")
    numbers = [f"{verdicts.count(one)} {one}" for one in ("valid", "invalid", "unknown") if one in verdicts]
    summary = f"{count(checked, 'check')} of {len(checks)} had something to check: {', '.join(numbers)}."
    sentences = [summary if checked else f"None of {len(checks)} checks had anything to check."]
    sentences += {
        "valid": [ONE_RUN],
        "invalid": ["The messages below prove it."],
    }.get(verdict, ["Do not read this as a pass."])
    return " ".join(sentences)


def _verdict_sentence(verdict: Verdict, checks: Sequence[CheckResult]) -> str:
    found = [check for check in checks if check.verdict == verdict]
    why = [reason for check in found if check.name == EVIDENCE for reason in _doubts(check)]
    found = [check for check in found if check.name != EVIDENCE]
    names = ", ".join(_name(check) for check in found)
    match verdict:
        case "valid":
            return "Valid: no guarantee was broken."
        case "invalid":
            were = "was" if len(found) == 1 else "were"
            return f"Invalid: {count(len(found), 'guarantee')} {were} broken ({names})."
    if found:
        why.append(f"{count(len(found), 'check')} could not be decided ({names})")
    return f"Unknown: {' and '.join(why) or 'no check had anything to check'}."


def _doubts(evidence: CheckResult) -> list[str]:
    """Return why the evidence makes a run unknown, independently of the other checks."""
    is_missing = "evidence is missing" if evidence.witness else ""
    return list(
        filter(None, [is_missing, "the scenario failed" if SCENARIO_FAILED in evidence.sentence else ""])
    )


def _name(check: CheckResult) -> str:
    return f"{check.invariant} {check.title}"


def loss_sentence(loss: Mapping[str, Any] | None) -> str:
    """Return the sentence on the loss; empty when no region was lost for good. `loss`: as in report.json."""
    if loss is None:
        return ""
    regions, lost = " and ".join(loss["regions"]), loss["unrecovered"]
    if not lost:
        return f"No acknowledged message was lost with {regions}."
    return f"{count(lost, 'acknowledged message')} {'was' if lost == 1 else 'were'} lost with {regions}."


def limits_sentence(limits: Sequence[LimitResult]) -> str:
    """Return the missed and the unknown limits; empty when there are none."""
    missed = [result.limit.text for result in limits if result.outcome == "missed"]
    unknown = [result.limit.text for result in limits if result.outcome == "unknown"]
    parts = [f"missed: {', '.join(missed)}"] * bool(missed) + [f"unknown: {', '.join(unknown)}"] * bool(
        unknown
    )
    return f"Limits {'; '.join(parts)}." if parts else ""
