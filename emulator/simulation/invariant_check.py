"""What a check of an invariant is, and how checks run on the evidence of a simulated run.

A check is a generator of violations. Its result is a verdict with the first violation and its witness. `unknown`: the
check does not apply to the evidence. While faults are active, only safety is checked. Checks with `only_healed`
(liveness) run after the repair, when the regions have had time to converge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from emulator.simulation.evidence import RunEvidence
from emulator.simulation.stored_messages import StoredMessage

E = TypeVar("E", bound=RunEvidence, contravariant=True)


class Violation(NamedTuple):
    """One violation of an invariant."""

    invariant: str
    check: str
    sentence: str
    witness: dict[str, str]


class InvariantResult(NamedTuple):
    check: str
    invariant: str
    verdict: Literal["valid", "invalid", "unknown"]
    violation: Violation | None = None


Found = Iterator[tuple[str, dict[str, str]]]
"""Iterator over (sentence, witness) of the violations that a check found; only the first one is reported."""


class InvariantCheck(NamedTuple, Generic[E]):
    name: str
    invariant: str
    find: Callable[[E], Found]
    only_healed: bool = False
    applies: Callable[[E], bool] = lambda evidence: bool(evidence.published)


def witness_of(stored: StoredMessage) -> dict[str, str]:
    return {
        "message": str(stored.origin),
        "text": stored.text,
        "region": stored.region,
        "at": stored.message_id,
    }


def run_checks(evidence: E, checks: Sequence[InvariantCheck[E]]) -> list[InvariantResult]:
    """Run the checks on the evidence and return their results; before healing, without checks of liveness."""
    return [_run_check(check, evidence) for check in checks if evidence.healed or not check.only_healed]


def _run_check(check: InvariantCheck[E], evidence: E) -> InvariantResult:
    if not check.applies(evidence):
        return InvariantResult(check.name, check.invariant, "unknown")
    for sentence, witness in check.find(evidence):
        violation = Violation(check.invariant, check.name, sentence, witness)
        return InvariantResult(check.name, check.invariant, "invalid", violation)
    return InvariantResult(check.name, check.invariant, "valid")


def first_violation(check_results: list[InvariantResult]) -> Violation | None:
    """Return the first violation of these results, or None."""
    return next((one.violation for one in check_results if one.violation is not None), None)
