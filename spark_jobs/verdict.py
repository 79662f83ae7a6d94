"""The result of a check: a verdict, a sentence that a person can verify, and the violations that prove it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["valid", "invalid", "unknown", "not applicable", "measured"]
"""`not applicable`: there was nothing to check. A run without any applicable check is `unknown`. `measured`: a figure
without a guarantee."""

EXIT_CODES: Mapping[Verdict, int] = {"valid": 0, "invalid": 1, "unknown": 2, "not applicable": 2}

_WORST_FIRST: Sequence[int] = (1, 2, 0)
"""Order of exit codes."""


def worst_first(exit_code: int, failed_checks: int) -> tuple[int, int]:
    """Return the sort key of a verdict among those of other runs: invalid ones and those with a missed limit are first,
    then unknown ones; of these, the one with the most failed checks."""
    return _WORST_FIRST.index(exit_code), -failed_checks


INFORMATION = "info"
"""Value of `CheckResult.invariant` for figures, and for the check that the evidence is complete."""

Witness = Mapping[str, Any]
"""One finding, such as a violation: the message or log position that proves it. Keys with the meaning of a history
field have its name."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    name: str
    """Identifier, as in report.json."""
    title: str
    """Title, as in report.html."""
    invariant: str
    """`INV-n`, or INFORMATION."""
    verdict: Verdict
    sentence: str
    witness: tuple[Witness, ...] = ()
    """The first few findings that prove or explain the verdict; `sentence` contains their number."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "invariant": self.invariant,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "witness": [dict(one) for one in self.witness],
        }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return invalid if any verdict is invalid, valid if all are valid, else unknown. Not applicable and measured
    verdicts are ignored; without any other verdict the result is unknown."""
    present = set(verdicts) - {"not applicable", "measured"}
    if "invalid" in present:
        return "invalid"
    return "valid" if present == {"valid"} else "unknown"


def overall(checks: Iterable[CheckResult]) -> Verdict:
    """Return the verdict on a run. Incomplete evidence makes it unknown unless a check is invalid; complete evidence
    alone proves nothing."""
    return worst(
        check.verdict for check in checks if check.invariant != INFORMATION or check.verdict != "valid"
    )
