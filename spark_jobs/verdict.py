"""Valid, invalid or unknown, with the smallest proof and a sentence a person can check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["valid", "invalid", "unknown"]

EXIT_CODES: Mapping[Verdict, int] = {"valid": 0, "invalid": 1, "unknown": 2}

INFORMATION = "info"
"""Invariant of a check that only measures."""

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
    """The first few; the sentence says how many there are."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "invariant": self.invariant,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "witness": [dict(one) for one in self.witness],
        }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """A proven violation outweighs doubt, doubt outweighs good news; nothing at all is doubt."""
    present = set(verdicts)
    if "invalid" in present:
        return "invalid"
    return "valid" if present == {"valid"} else "unknown"
