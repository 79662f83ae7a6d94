"""What policies removed during a run: trimmed messages are neither lost nor a proof, and expired ones need not be
delivered.

Every policy that was in force at any time in any region counts, even if it was removed later: regions apply a change
at different times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

EVICTION = "consumer_backlog_eviction"
NEVER_MS = 1e300


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Of a namespace's messages, or of a topic's."""

    trims: bool = False
    """What everybody has acknowledged may go from a log."""
    expires_after_ms: float = NEVER_MS
    """So old a message may pass a subscription without being given to it; 0: at any age."""

    @property
    def expires(self) -> bool:
        return self.expires_after_ms < NEVER_MS

    def and_(self, other: Lifetime) -> Lifetime:
        """Whatever one of them allows."""
        return Lifetime(self.trims or other.trims, min(self.expires_after_ms, other.expires_after_ms))


KEPT = Lifetime()


def lifetime_of(policies: Mapping[str, Any]) -> Lifetime:
    """What the policies of one place say. KeyError, TypeError, ValueError for what no region wrote."""
    retention = policies.get("retention")
    trims = retention is not None and (
        int(retention["retentionTimeInMinutes"]) >= 0 or int(retention["retentionSizeInMB"]) >= 0
    )
    ends = [NEVER_MS]
    if ttl_seconds := int(policies.get("message_ttl") or 0):
        ends.append(ttl_seconds * 1000.0)
    for kind, quota in (policies.get("backlog_quotas") or {}).items():
        if quota["policy"] == EVICTION:
            ends.append(int(quota["limitTime"]) * 1000.0 if kind == "message_age" else 0.0)
    return Lifetime(trims, min(ends))


def lifetime_over(told: Iterable[Mapping[str, Any]]) -> Lifetime:
    """Of everything that a place ever said."""
    found = KEPT
    for policies in told:
        found = found.and_(lifetime_of(policies))
    return found
