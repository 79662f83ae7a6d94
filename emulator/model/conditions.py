"""Conditions of a whole run that programs, commands and tests wait for, and one region's part of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

CONDITIONS: Final[Mapping[str, str]] = {
    "quiet": "nothing changes any more without an action of a client or operator: every entry is stored and replicated,"
    " and no snapshot, update, delivery, transaction or metadata event is pending",
    "replicated": "every message that a region stores when the wait begins is stored in all regions that it is meant "
    "for; with SUBSCRIPTION, no message acknowledged by then is delivered again in another region",
    "snapshot": "in each region with a replicated subscription of the topic, a snapshot that was started after the wait"
    " began is complete",
}
"""Name -> definition. Regions that were declared lost are left out of all conditions."""


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One region's part of a condition."""

    region: str
    topics: tuple[str, ...]
    """Full names of the topics that the condition is about and that the region has."""
    has_subscription: bool
    """Whether one of the topics has the subscription, if the condition names one."""
    missing: tuple[str, ...]
    """Why the condition does not hold in this region: one sentence each. Empty: it holds."""
    goal: Mapping[str, Any] = field(default_factory=dict)
    """What the region waits for. The caller passes it back unchanged with the next request."""
    activity: int = 0
    """Number that changes with every stored entry and acknowledgement of the topics."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ConditionState:
        """Return the value whose `to_json` is `raw`. Raises KeyError or TypeError for anything else."""
        return cls(**{**raw, "topics": tuple(raw["topics"]), "missing": tuple(raw["missing"])})
