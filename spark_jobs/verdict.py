"""Valid, invalid or unknown, with the smallest proof and a sentence a person can check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["valid", "invalid", "unknown", "not applicable", "measured"]
"""not applicable: there was nothing to check; a run without anything to check is unknown. measured: a figure without a
guarantee."""

EXIT_CODES: Mapping[Verdict, int] = {"valid": 0, "invalid": 1, "unknown": 2, "not applicable": 2}

INFORMATION = "info"
"""Invariant of a figure, and of the check that the evidence is whole."""

Witness = Mapping[str, Any]
"""One offending message or place, smallest that proves the point. Keys as in the history where they mean the same."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    """For programs."""
    title: str
    """For people."""
    invariant: str
    """`INV-n`, or INFORMATION."""
    verdict: Verdict
    sentence: str
    witness: tuple[Witness, ...] = ()
    """The first few; the sentence contains the total."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "invariant": self.invariant,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "witness": [dict(one) for one in self.witness],
        }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """A proven violation outweighs doubt, doubt outweighs good news; nothing at all is doubt. What does not apply and
    what is only measured have no weight."""
    present = set(verdicts) - {"not applicable", "measured"}
    if "invalid" in present:
        return "invalid"
    return "valid" if present == {"valid"} else "unknown"


def overall(checks: Iterable[CheckResult]) -> Verdict:
    """Of a run. Evidence with holes makes it unknown; whole evidence proves nothing yet."""
    return worst(
        check.verdict for check in checks if check.invariant != INFORMATION or check.verdict != "valid"
    )
