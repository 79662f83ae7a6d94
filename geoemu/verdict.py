"""The verdict of `geoemu verify`, as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["valid", "invalid", "unknown", "not applicable", "measured"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    """Name of the check, such as `acknowledged-stored`."""
    invariant: str
    """`INV-n` (docs/INVARIANTS.md), or `info` for a figure and for the check of the evidence's completeness."""
    outcome: Outcome
    sentence: str
    witness: tuple[Mapping[str, Any], ...]
    """The first few messages or positions that prove a violation."""

    def __str__(self) -> str:
        return f"{self.outcome} {self.invariant} {self.name}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run; only `is_valid` means success."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    figures: Mapping[str, Any]
    """Measured values, as in report.json (docs/COMMAND_LINE.md)."""
    limits: tuple[Mapping[str, Any], ...]
    """Each limit with its outcome, as in report.json."""
    limits_kept: bool
    """False if the outcome is `valid` and a limit was missed; `limits` has the details for every outcome."""
    report: Path
    """Path of the HTML report."""

    @property
    def is_valid(self) -> bool:
        """Whether the outcome is `valid` and every limit was kept."""
        return self.outcome == "valid" and self.limits_kept

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings that are invalid or unknown."""
        return tuple(one for one in self.findings if one.outcome in ("invalid", "unknown"))

    def finding(self, name_or_invariant: str) -> Finding:
        """Return the first finding with this name or invariant. Raises KeyError if there is none."""
        for one in self.findings:
            if name_or_invariant in (one.name, one.invariant):
                return one
        raise KeyError(name_or_invariant)

    def __str__(self) -> str:
        return "\n".join([f"{self.outcome}: {self.report}", *(f"  {one}" for one in self.findings)])


def verdict_from(output: Mapping[str, Any], exit_code: int, report: Path) -> Verdict:
    """Create a Verdict from the JSON output and the exit code of `geoemu verify --json`."""
    findings = tuple(
        Finding(
            name=check["name"],
            invariant=check["invariant"],
            outcome=check["verdict"],
            sentence=check["sentence"],
            witness=tuple(check["witness"]),
        )
        for check in output["checks"]
    )
    limits_kept = exit_code == 0 or output["verdict"] != "valid"
    return Verdict(
        outcome=output["verdict"],
        findings=findings,
        figures=output["figures"],
        limits=tuple(output["limits"]),
        limits_kept=limits_kept,
        report=report,
    )
