"""Helpers of the checks to turn findings into a verdict and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_jobs.checks.circumstances import Circumstances
from spark_jobs.checks.finding import FindingGroup
from spark_jobs.engines.frames import Column, DataFrame
from spark_jobs.frames.evidence import Evidence
from spark_jobs.verdict import CheckResult, Verdict, Witness
from spark_jobs.wording import count, hint

ON_THE_WAY_MS = 2_000
"""What was acknowledged this shortly before the logs were read may still be on its way to the other regions."""


Counted = Literal["messages", "stored", "owed", "snapshots", "updates", "cursors"]
"""A frame of the evidence, of which every row is counted."""

COUNTED_BY: Mapping[Counted, str] = {
    "messages": "origin_region",
    "stored": "region",
    "owed": "subscription",
    "snapshots": "region",
    "updates": "subscription",
    "cursors": "subscription",
}
"""The column by which its counts are grouped."""


@dataclass(frozen=True, slots=True)
class Count:
    """A count: one group of this kind for each value that the frame is grouped by."""

    kind: str
    of: Counted
    number: str | Callable[[], Column]
    """What a row adds, in SQL that every engine reads, or as a column; a condition adds one where it holds."""


@dataclass(frozen=True, slots=True)
class Check:
    """One guarantee and how to check it."""

    name: str
    """For programs, and in docs/INVARIANTS.md."""
    title: str
    """For people."""
    invariant: str
    counts: Sequence[Count]
    """How much is checked. All counts of a frame, of all checks, are computed in one pass."""
    find: Callable[[Evidence], DataFrame | None] | None
    """What is wrong, in the shape of `finding`; runs inside Spark. None: nothing can be, so no plan is made of it."""
    conclude: Callable[[Sequence[FindingGroup], Circumstances], CheckResult]
    """Runs afterwards, on what was found."""

    def result(self, verdict: Verdict, sentence: str, witness: tuple[Witness, ...] = ()) -> CheckResult:
        return CheckResult(self.name, self.title, self.invariant, verdict, sentence, witness)


def total(found: Iterable[FindingGroup], *kinds: str) -> int:
    return sum(one.n for one in found if one.kind in kinds)


def of_kind(found: Iterable[FindingGroup], *kinds: str) -> list[FindingGroup]:
    return [one for one in found if one.kind in kinds and one.n]


def examples(found: Iterable[FindingGroup]) -> tuple[Witness, ...]:
    return tuple(example for one in found for example in one.examples)


def per_region(found: Iterable[FindingGroup]) -> str:
    """`eu-west 3, us-west 1`."""
    sums: dict[str, int] = {}
    for one in found:
        sums[one.region or "?"] = sums.get(one.region or "?", 0) + one.n
    return ", ".join(f"{region} {n:,}" for region, n in sorted(sums.items()))


def why_unproven(absent: FindingGroup, circumstances: Circumstances) -> str | None:
    """Why copies that are absent are not proven lost; None when they are."""
    region, origin = absent.region or "", absent.origin_region or ""
    if region in circumstances.damaged_regions:
        return hint("log-unread", region=region)
    if absent.kind != "behind":
        return None
    for end in (region, origin):
        if end in circumstances.away:
            return hint("down-at-the-end", region=end)
    if (origin, region) in circumstances.cut:
        return hint("link-down-at-the-end", origin=origin, region=region)
    if absent.last_ms is not None and absent.last_ms > circumstances.read_at_ms - ON_THE_WAY_MS:
        return hint("on-the-way", origin=origin, region=region)
    return None


def absence_verdict(
    absent: Sequence[FindingGroup], circumstances: Circumstances
) -> tuple[Verdict, list[FindingGroup], str]:
    """Lost, not proven lost, or nothing absent: the verdict, the findings that prove it, and the reasons."""
    absent, _ = explained_by_loss(absent, circumstances)
    judged = [(one, why_unproven(one, circumstances)) for one in absent]
    lost = [one for one, reason in judged if reason is None]
    if lost:
        return "invalid", lost, ""
    reasons = sorted({reason for _, reason in judged if reason})
    return ("unknown" if reasons else "valid"), [one for one, _ in judged], "; ".join(reasons)


def judged_or_not(verdict: Verdict, judged: int) -> Verdict:
    """Return "not applicable" instead of "valid" when nothing was checked."""
    return "not applicable" if verdict == "valid" and not judged else verdict


def explained_by_loss(
    absent: Sequence[FindingGroup], circumstances: Circumstances
) -> tuple[list[FindingGroup], list[FindingGroup]]:
    """Those that the loss of a region does not explain, and those that it does: copies owed to a lost region, and
    copies of its messages that had not arrived where they were to go. A hole in front of something that did arrive is
    a defect all the same."""
    explained = [one for one in absent if _went_with_a_region(one, circumstances)]
    return [one for one in absent if one not in explained], explained


def _went_with_a_region(absent: FindingGroup, circumstances: Circumstances) -> bool:
    lost = circumstances.lost
    if absent.region == absent.origin_region:
        # Its own log, if it can still be read, must hold what it acknowledged.
        return absent.region in lost and absent.region in circumstances.damaged_regions
    return absent.region in lost or (absent.kind == "behind" and absent.origin_region in lost)


def loss_remark(absent: Sequence[FindingGroup], circumstances: Circumstances) -> str:
    _, explained = explained_by_loss(absent, circumstances)
    n = sum(one.n for one in explained)
    if not n:
        return ""
    regions = " and ".join(sorted(circumstances.lost))
    copies = count(n, "copy").replace("copys", "copies")
    return f" Not checked: {copies} missing because of the loss of {regions} (see loss of a region)."


def trimmed_remark(found: Sequence[FindingGroup]) -> str:
    trimmed = total(found, "trimmed")
    if not trimmed:
        return ""
    return f" Not checked: {count(trimmed, 'copy').replace('copys', 'copies')} that retention removed."
