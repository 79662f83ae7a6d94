"""How the verdict of a run follows from its checks."""

from __future__ import annotations

import pytest

from spark_jobs.verdict import INFORMATION, CheckResult, Verdict, overall


def result(invariant: str, verdict: Verdict) -> CheckResult:
    return CheckResult("name", "title", invariant, verdict, "A sentence.")


@pytest.mark.parametrize(
    ("claims", "evidence", "verdict"),
    [
        (["valid", "valid"], "valid", "valid"),
        (["valid", "not applicable"], "valid", "valid"),
        (["valid", "unknown", "invalid"], "valid", "invalid"),
        (["valid"], "unknown", "unknown"),
        (["invalid"], "unknown", "invalid"),
        # Complete files of a run without any event prove nothing.
        (["not applicable", "not applicable"], "valid", "unknown"),
    ],
)
def test_the_gravest_counts_and_figures_prove_nothing(
    claims: list[Verdict], evidence: Verdict, verdict: Verdict
) -> None:
    checks = [result(f"INV-{number}", one) for number, one in enumerate(claims, 1)]
    assert overall([result(INFORMATION, evidence), result(INFORMATION, "measured"), *checks]) == verdict
