"""The fail-over plans that a history records (docs/HISTORY.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.evidence.positions import LEDGER, is_entry, is_place, place_number

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan of a fail-over of one subscription. Positions are numbers, as `place_number` returns them."""

    topic: str
    subscription: str
    source: str
    target: str
    at_ms: float
    """Time after its computation."""
    redelivered: int
    skipped: int | None
    """Messages that the source region had not acknowledged and that the target region would never deliver; None: not
    stated."""
    exact: bool
    quiet: bool
    mark_delete: int | None
    """Mark-delete position in the source region; None: the region did not respond."""
    acknowledged: tuple[Range, ...]
    """Further entries that the source region has acknowledged, first and last, ascending and disjoint."""
    target_last: int | None
    """Last position in the target region."""

    @property
    def reach(self) -> int | None:
        """The highest position that the source region has acknowledged."""
        return self.acknowledged[-1][1] if self.acknowledged else self.mark_delete


def recorded_plans(facts: Iterable[Mapping[str, Any]]) -> tuple[RecordedPlan, ...]:
    """Return the plans among the facts of a history, in their order."""
    return tuple(_plan_of(fact, json.loads(fact["plan"])) for fact in facts if fact["op"] == "failover_plan")


def is_possible_plan(plan: Mapping[str, Any]) -> bool:
    """Return whether logs can have the positions of a valid plan."""
    texts = (plan[name] for name in ("resume", "source_mark_delete", "target_last") if name in plan)
    places = (map(int, text.split(":")) for text in texts)
    ids = (entry for one in plan.get("source_acknowledged", ()) for entry in one)
    return all(is_place(*place) for place in places) and all(map(is_entry, ids))


def _plan_of(fact: Mapping[str, Any], plan: Mapping[str, Any]) -> RecordedPlan:
    mark_delete = _number(plan.get("source_mark_delete"))
    ranges = [] if mark_delete is None else plan.get("source_acknowledged", [])
    first_of_ledger = 0 if mark_delete is None else (mark_delete + 1) // LEDGER * LEDGER
    return RecordedPlan(
        topic=fact["topic"],
        subscription=fact["subscription"],
        source=fact["region"],
        target=fact["other_region"],
        at_ms=fact["at_ms"],
        redelivered=plan["redelivered_messages"],
        skipped=plan.get("skipped_messages"),
        exact=plan["exact"],
        quiet=plan["quiet"],
        mark_delete=mark_delete,
        acknowledged=_disjoint((first_of_ledger + first, first_of_ledger + last) for first, last in ranges),
        target_last=_number(plan.get("target_last")),
    )


def _number(position: str | None) -> int | None:
    """Return a position as one number; one before the first entry of its ledger is 1 less than that entry."""
    if position is None:
        return None
    ledger, entry = map(int, position.split(":"))
    return place_number(ledger, entry)


def _disjoint(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort ranges and merge those that overlap; a range that ends before its first entry is empty."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        elif first <= last:
            joined.append((first, last))
    return tuple(joined)


def topics_of(plans: Sequence[RecordedPlan]) -> list[str]:
    """Return the topics of the plans, each once."""
    return sorted({plan.topic for plan in plans})
