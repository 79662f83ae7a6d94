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


def verdict_from(said: Mapping[str, Any], exit_code: int, report: Path) -> Verdict:
    """Create a Verdict from the JSON output and the exit code of `geoemu verify --json`."""
    findings = tuple(
        Finding(
            name=check["name"],
            invariant=check["invariant"],
            outcome=check["verdict"],
            sentence=check["sentence"],
            witness=tuple(check["witness"]),
        )
        for check in said["checks"]
    )
    kept = exit_code == 0 or said["verdict"] != "valid"
    return Verdict(
        outcome=said["verdict"],
        findings=findings,
        figures=said["figures"],
        limits=tuple(said["limits"]),
        limits_kept=kept,
        report=report,
    )
