"""A check: a guarantee, the query that finds violations, and how findings become a verdict and a sentence.

What findings prove depends on the circumstances in which a run ended: damaged evidence, regions down, links cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from emulator.run.history_events import latency_in
from spark_jobs.checks.finding import FindingGroup
from spark_jobs.engines.frames import Column, DataFrame
from spark_jobs.frames.evidence import Evidence
from spark_jobs.frames.faults import regions_lost
from spark_jobs.frames.summary import DOWN, HistorySummary
from spark_jobs.sources.policies import Namespace
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder
from spark_jobs.verdict import CheckResult, Verdict, Witness
from spark_jobs.wording import count, hint

ON_THE_WAY_MS = 2_000
"""Messages acknowledged less than this before the logs were read may not have been replicated yet."""
_LINK_OPS = ("cut", "hold", "flap", "heal")
CHECKED = "checked"
"""Kind of the groups that contain the number of checked objects."""
UNPROVEN = "Not proven wrong, because a part of the logs or of the history is missing."
UNPROVEN_BY_HISTORY = "Not proven wrong, because a part of the history is missing."

EvidenceKind = Literal["logs", "histories"]
LOGS: frozenset[EvidenceKind] = frozenset({"logs"})
HISTORIES: frozenset[EvidenceKind] = frozenset({"histories"})
NEVER_READ: Mapping[EvidenceKind, str] = {
    "logs": "the log of no region could be read",
    "histories": "no operation of a client is in the histories",
}

Counted = Literal["messages", "stored", "subscription_messages", "snapshots", "updates", "cursors"]
"""Name of a frame of the evidence whose rows are counted."""

COUNTED_BY: Mapping[Counted, str] = {
    "messages": "origin_region",
    "stored": "region",
    "subscription_messages": "subscription",
    "snapshots": "region",
    "updates": "subscription",
    "cursors": "subscription",
}
"""Column by which the counts of each frame are grouped."""


@dataclass(frozen=True, slots=True)
class Count:
    """A count of checked objects: one group of this kind for each value of the frame's `COUNTED_BY` column."""

    kind: str
    of: Counted
    number: str | Callable[[], Column]
    """Number that a row adds, as SQL that every engine accepts or as a column; a condition adds 1 where it is true."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """State of the run and its evidence, which decides what findings prove."""

    namespaces: Mapping[str, Namespace]
    damaged_regions: frozenset[str] = frozenset()
    """Regions with incomplete logs: a copy that is absent there is not proven lost."""
    history_damaged: bool = False
    """Whether the history may lack requests, responses or received messages."""
    down: frozenset[str] = frozenset()
    """Regions that were down when the history ended; a stop after the last operation of a client does not count."""
    lost: frozenset[str] = frozenset()
    """Regions that were lost and never started again. Messages lost with them are a figure, never a violation."""
    cut: frozenset[tuple[str, str]] = frozenset()
    """Links (from, to) that were cut or held when the history ended, also by a link over which they are routed."""
    absent: frozenset[EvidenceKind] = frozenset()
    """Evidence of which the run has nothing."""
    read_at_ms: float = float("inf")
    """Time at which the logs had been read, minus twice the longest latency of the run, in milliseconds."""

    def deduplicates(self, namespace: str | None) -> bool:
        policy = self.namespaces.get(namespace or "")
        return policy is not None and policy.deduplication


def circumstances_of(
    folder: RunFolder, history: HistorySummary, damages: Collection[EvidenceDamage], read_at_ms: float
) -> Circumstances:
    down: dict[str, bool] = {}
    cut: set[tuple[str, str]] = set()
    latency_ms_max = folder.latency_ms_max
    for fact in history.facts:
        op, region, other = fact["op"], fact["region"], fact["other_region"]
        # A run ends by stopping all regions. Only a stop before the last client event explains an absent copy.
        if op in DOWN and not (op == "stop" and fact["at_ms"] > history.last_client_ms):
            down[region] = DOWN[op]
        elif op in ("latency", "profile"):
            elsewhere = folder.latency_ms_max if folder.routes else 0  # a route may have other hops
            latency_ms_max = max(latency_ms_max, latency_in(fact["detail"]) + elsewhere)
        elif op in _LINK_OPS:
            ways = {(region, other)} | (set() if "one way" in (fact["detail"] or "") else {(other, region)})
            if op != "heal":
                cut |= ways
            elif region is None:
                cut.clear()
            else:
                cut -= ways
    damaged_regions = frozenset(damage.region for damage in damages if damage.region)
    history_damaged = any(damage.region is None for damage in damages)
    has_no_operation = history_damaged and not history.last_client_ms
    absent = (LOGS if damaged_regions.issuperset(folder.regions) else frozenset()) | (
        HISTORIES if has_no_operation else frozenset()
    )
    return Circumstances(
        namespaces=folder.namespaces,
        absent=absent,
        damaged_regions=damaged_regions,
        history_damaged=history_damaged,
        down=frozenset(region for region, is_down in down.items() if is_down),
        lost=frozenset(regions_lost(history.facts)),
        cut=frozenset(cut | {link for link, hops in folder.routes.items() if not cut.isdisjoint(hops)}),
        read_at_ms=read_at_ms - 2 * latency_ms_max,
    )


@dataclass(frozen=True, slots=True)
class Check:
    """One guarantee and how to check it."""

    name: str
    """Identifier, as in report.json and docs/reference/invariants.md."""
    title: str
    """Title, as in report.html."""
    invariant: str
    counts: Sequence[Count]
    """Counts of the checked objects. All counts of a frame, of all checks, are computed in one pass."""
    find: Callable[[Evidence], DataFrame | None] | None
    """Query for violations, in the schema of `finding`; it may return None if there is nothing to check. None: no
    query."""
    conclude: Callable[[Sequence[FindingGroup], Circumstances], CheckResult]
    """Function that computes the result from the collected findings."""
    evidence: frozenset[EvidenceKind] = LOGS | HISTORIES
    """Evidence without which nothing is proven."""

    def conclude_on_evidence(
        self, found: Sequence[FindingGroup], circumstances: Circumstances
    ) -> CheckResult:
        """Return the result, which is not valid without the evidence of the check."""
        result, absent = self.conclude(found, circumstances), self.evidence & circumstances.absent
        if result.verdict != "valid" or not absent:
            return result
        reasons = " and ".join(NEVER_READ[kind] for kind in sorted(absent))
        return self.result("unknown", f"Not checked: {reasons}.")

    def result(self, verdict: Verdict, sentence: str, witness: tuple[Witness, ...] = ()) -> CheckResult:
        return CheckResult(self.name, self.title, self.invariant, verdict, sentence, witness)


def total(found: Iterable[FindingGroup], *kinds: str) -> int:
    return sum(one.n for one in found if one.kind in kinds)


def of_kind(found: Iterable[FindingGroup], *kinds: str) -> list[FindingGroup]:
    return [one for one in found if one.kind in kinds and one.n]


def examples(found: Iterable[FindingGroup]) -> tuple[Witness, ...]:
    return tuple(example for one in found for example in one.examples)


def per_region(found: Iterable[FindingGroup]) -> str:
    """Return the number of findings in each region: `eu-west 3, us-west 1`."""
    sums: dict[str, int] = {}
    for one in found:
        sums[one.region or "?"] = sums.get(one.region or "?", 0) + one.n
    return ", ".join(f"{region} {n:,}" for region, n in sorted(sums.items()))


def violations(
    found: Iterable[FindingGroup], kinds: Mapping[str, tuple[str, str]], *, by_region: bool = True
) -> tuple[list[FindingGroup], list[str]]:
    """Return the findings of these kinds, and a sentence for each kind that was found. `kinds`: the noun and the
    description of each kind of violation."""
    wrong, sentences = of_kind(found, *kinds), []
    for kind, (noun, text) in kinds.items():
        if n := total(wrong, kind):
            regions = f" ({per_region(of_kind(wrong, kind))})" if by_region else ""
            sentences.append(f"{count(n, noun)} {text}{regions}.")
    return wrong, sentences


def conclude_violations(
    check: Check,
    found: Sequence[FindingGroup],
    kinds: Mapping[str, tuple[str, str]],
    is_proven: Callable[[FindingGroup], bool],
    *,
    valid: str,
    nothing: str,
    unproven: str = UNPROVEN,
) -> CheckResult:
    """Return the result of a check whose findings are violations of these kinds and `checked` groups: invalid if any
    violation is proven, else unknown. Sentences: `valid` without violations, `nothing` when nothing was checked,
    `unproven` when no violation is proven."""
    wrong, sentences = violations(found, kinds)
    proven = [one for one in wrong if is_proven(one)]
    if not wrong:
        is_checked = total(found, CHECKED) > 0
        return check.result("valid", valid) if is_checked else check.result("not applicable", nothing)
    if not proven:
        sentences.append(unproven)
    others = [one for one in wrong if one not in proven]
    return check.result("invalid" if proven else "unknown", " ".join(sentences), examples([*proven, *others]))


def why_unproven(absent: FindingGroup, circumstances: Circumstances) -> str | None:
    """Return why absent copies are not proven lost; None if they are proven lost."""
    region, origin = absent.region or "", absent.origin_region or ""
    if region in circumstances.damaged_regions:
        return hint("log-unread", region=region)
    if absent.kind != "behind":
        return None
    for end in (region, origin):
        if end in circumstances.down:
            return hint("down-at-the-end", region=end)
    if (origin, region) in circumstances.cut:
        return hint("link-down-at-the-end", origin=origin, region=region)
    if absent.last_ms is not None and absent.last_ms > circumstances.read_at_ms - ON_THE_WAY_MS:
        return hint("on-the-way", origin=origin, region=region)
    return None


def absence_verdict(
    absent: Sequence[FindingGroup], circumstances: Circumstances
) -> tuple[Verdict, list[FindingGroup], str]:
    """Return the verdict on absent copies, its findings, and the reasons why copies are not proven lost."""
    absent, _ = explained_by_loss(absent, circumstances)
    checked = [(one, why_unproven(one, circumstances)) for one in absent]
    lost = [one for one, reason in checked if reason is None]
    if lost:
        return "invalid", lost, ""
    reasons = sorted({reason for _, reason in checked if reason})
    return ("unknown" if reasons else "valid"), [one for one, _ in checked], "; ".join(reasons)


def unless_unchecked(verdict: Verdict, checked: int) -> Verdict:
    """Return "not applicable" instead of "valid" when nothing was checked."""
    return "not applicable" if verdict == "valid" and not checked else verdict


def explained_by_loss(
    absent: Sequence[FindingGroup], circumstances: Circumstances
) -> tuple[list[FindingGroup], list[FindingGroup]]:
    """Split absent copies into those that the loss of a region does not explain, and those that it explains: copies
    expected in a lost region, and messages of that region that were not replicated yet. A missing copy before a later
    copy that arrived is a violation nevertheless."""
    explained = [one for one in absent if _is_explained_by_loss(one, circumstances)]
    return [one for one in absent if one not in explained], explained


def _is_explained_by_loss(absent: FindingGroup, circumstances: Circumstances) -> bool:
    lost = circumstances.lost
    if absent.region == absent.origin_region:
        # The region's own log, if readable, must contain the messages that the region acknowledged.
        return absent.region in lost and absent.region in circumstances.damaged_regions
    return absent.region in lost or (absent.kind == "behind" and absent.origin_region in lost)


def loss_remark(absent: Sequence[FindingGroup], circumstances: Circumstances) -> str:
    _, explained = explained_by_loss(absent, circumstances)
    n = sum(one.n for one in explained)
    if not n:
        return ""
    regions = " and ".join(sorted(circumstances.lost))
    return (
        f" Not checked: {count(n, 'copy')} missing because of the loss of {regions} (see loss of a region)."
    )


def trimmed_remark(found: Sequence[FindingGroup]) -> str:
    trimmed = total(found, "trimmed")
    if not trimmed:
        return ""
    return f" Not checked: {count(trimmed, 'copy')} that retention removed."
