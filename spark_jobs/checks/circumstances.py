"""How a run ended, as far as it decides what a finding proves: damaged evidence, regions down, links cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from emulator.run.history_events import latency_in
from spark_jobs.frames.faults import regions_lost
from spark_jobs.frames.summary import DOWN, HistorySummary
from spark_jobs.sources.run_folder import EvidenceDamage, Namespace, RunFolder

_LINK_OPS = ("cut", "hold", "heal")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a check must know beside its findings."""

    namespaces: Mapping[str, Namespace]
    damaged_regions: frozenset[str] = frozenset()
    """Their logs are incomplete: what is absent there is not proven lost."""
    history_damaged: bool = False
    """Something was asked, history or received that we do not know of."""
    away: frozenset[str] = frozenset()
    """Regions that were down when the history ended."""
    lost: frozenset[str] = frozenset()
    """Regions that were lost and did not come back. What that cost is a figure, never a defect."""
    cut: frozenset[tuple[str, str]] = frozenset()
    """Links (from, to) that passed nothing when the history ended."""
    read_at_ms: float = float("inf")
    """When the logs were read, on the history's clock."""

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
        # Stopping everything is how a run ends; only before the last word of a client does it explain anything.
        if op in DOWN and not (op == "stop" and fact["at_ms"] > history.last_client_ms):
            down[region] = DOWN[op]
        elif op == "latency":
            latency_ms_max = max(latency_ms_max, latency_in(fact["detail"]))
        elif op in _LINK_OPS:
            ways = {(region, other)} | ({(other, region)} if fact["detail"] != "one way" else set())
            if op != "heal":
                cut |= ways
            elif region is None:
                cut.clear()
            else:
                cut -= ways
    return Circumstances(
        namespaces=folder.namespaces,
        damaged_regions=frozenset(damage.region for damage in damages if damage.region),
        history_damaged=any(damage.region is None for damage in damages),
        away=frozenset(region for region, is_down in down.items() if is_down),
        lost=frozenset(regions_lost(history.facts)),
        cut=frozenset(cut),
        read_at_ms=read_at_ms - 2 * latency_ms_max,
    )
