"""INV-125: a fail-over redelivers at most what its plan stated, and messages acknowledged since the plan; and it skips
at most what its plan stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.checks.check import UNPROVEN, Circumstances
from spark_jobs.frames.plans import COMPARED, PlanComparison
from spark_jobs.verdict import CheckResult, Verdict, Witness
from spark_jobs.wording import count

NAME = "plans-kept"
INVARIANT = "INV-125"
TITLE = "fail-overs redeliver and skip at most what was planned"
WITNESSES_MAX = 5


def plans_kept(comparisons: Sequence[PlanComparison], circumstances: Circumstances) -> CheckResult:
    """Return the result of the check."""
    compared = [one for one in comparisons if one.outcome in COMPARED]
    others = _others_sentence(comparisons)
    if not compared:
        nothing = (
            "No fail-over plan was recorded." if not comparisons else f"No plan could be compared. {others}"
        )
        return _result("not applicable", nothing.rstrip())
    wrong = [one for one in compared if one.outcome != "kept"]
    if not wrong:
        return _result("valid", f"{_summary(compared)} {others}".rstrip())
    proven = [
        one for one in wrong if not circumstances.history_damaged and not _is_damaged(one, circumstances)
    ]
    sentences = [_wrong_sentence(one) for one in (proven or wrong)[:WITNESSES_MAX]]
    if not proven:
        sentences.append(UNPROVEN)
    witness = tuple(map(_witness, (proven or wrong)[:WITNESSES_MAX]))
    return _result("invalid" if proven else "unknown", " ".join(filter(None, [*sentences, others])), witness)


def _result(verdict: Verdict, sentence: str, witness: tuple[Witness, ...] = ()) -> CheckResult:
    return CheckResult(NAME, TITLE, INVARIANT, verdict, sentence, witness)


def _is_damaged(one: PlanComparison, circumstances: Circumstances) -> bool:
    return not circumstances.damaged_regions.isdisjoint((one.plan.source, one.plan.target))


def _summary(compared: Sequence[PlanComparison]) -> str:
    planned, redelivered = (
        sum(one.plan.redelivered for one in compared),
        sum(one.redelivered for one in compared),
    )
    exact = sum(one.is_exact for one in compared)
    half, most = over_estimates(compared)
    return (
        f"{count(len(compared), 'plan')} compared with the fail-over that followed: {planned:,} messages planned,"
        f" {redelivered:,} redelivered. {count(exact, 'plan')} had to state the exact number."
        f" Over-estimate: p50 {half:,}, p99 {most:,} messages.{_skipped_sentence(compared)}"
    )


def _skipped_sentence(compared: Sequence[PlanComparison]) -> str:
    """Return how many messages the plans stated to be skipped, and how many were; empty if none stated it."""
    stated = [one for one in compared if one.plan.skipped is not None]
    if not stated:
        return ""
    planned = sum(one.plan.skipped or 0 for one in stated)
    return f" Skipped: {planned:,} planned, {sum(one.skipped for one in stated):,} found."


def _others_sentence(comparisons: Sequence[PlanComparison]) -> str:
    reasons = {
        "not followed": "no later subscribe in the target region",
        "moved": "a client moved the subscription",
        "consumed in both": "a consumer in the target region between plan and fail-over",
    }
    numbers = {
        reason: sum(one.outcome == outcome for one in comparisons) for outcome, reason in reasons.items()
    }
    left = ", ".join(f"{reason} ({n})" for reason, n in numbers.items() if n)
    return f"Not compared: {left}." if left else ""


def _wrong_sentence(one: PlanComparison) -> str:
    plan = one.plan
    if one.outcome == "skipped":
        return (
            f"{plan.subscription} from {plan.source} to {plan.target}: the plan stated {plan.skipped:,} skipped"
            f" messages, and {plan.target} skipped {one.skipped:,}: it counts them as acknowledged, did not deliver"
            " them, and no consumer acknowledged them."
        )
    bound = "" if plan.exact else "at most "
    return (
        f"{plan.subscription} from {plan.source} to {plan.target}: the plan stated {bound}{plan.redelivered:,},"
        f" and {count(one.redelivered)} {'was' if one.redelivered == 1 else 'were'} redelivered."
    )


_KINDS = {
    "exceeded": "more than planned",
    "missed": "fewer than planned",
    "skipped": "more skipped than planned",
}


def _witness(one: PlanComparison) -> Witness:
    plan = one.plan
    skipped = {"planned_skipped": plan.skipped, "skipped": one.skipped} if one.outcome == "skipped" else {}
    return {
        "kind": _KINDS[one.outcome],
        "region": plan.target,
        "other_region": plan.source,
        "subscription": plan.subscription,
        "topic": plan.topic,
        "at_ms": plan.at_ms,
        "planned": plan.redelivered,
        "redelivered": one.redelivered,
        **skipped,
    }


def over_estimates(comparisons: Sequence[PlanComparison]) -> tuple[int, int]:
    """Return the median and the 99th percentile of the over-estimates of compared plans; there must be one."""
    ordered = sorted(one.over_estimate for one in comparisons if one.outcome in COMPARED)
    return ordered[(len(ordered) - 1) // 2], ordered[-(-99 * len(ordered) // 100) - 1]


def plan_figures(comparisons: Sequence[PlanComparison]) -> Mapping[str, Any] | None:
    """Return the figures of the report; None without plans."""
    if not comparisons:
        return None
    compared = [one for one in comparisons if one.outcome in COMPARED]
    half, most = over_estimates(compared) if compared else (None, None)
    return {
        "compared": len(compared),
        "over_estimate": {"p50": half, "p99": most},
        "plans": [one.as_json() for one in comparisons],
    }
