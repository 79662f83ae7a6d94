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
    """Messages that every subscription has acknowledged may be trimmed."""
    expires_after_ms: float = NEVER_MS
    """Age at which a message may expire before its delivery; 0: at any age."""

    @property
    def expires(self) -> bool:
        return self.expires_after_ms < NEVER_MS

    def and_(self, other: Lifetime) -> Lifetime:
        """Combine two lifetimes: allowed is what either allows."""
        return Lifetime(self.trims or other.trims, min(self.expires_after_ms, other.expires_after_ms))


KEPT = Lifetime()


def lifetime_of(policies: Mapping[str, Any]) -> Lifetime:
    """Parse the policies of one namespace or topic. Raises KeyError, TypeError or ValueError for invalid ones."""
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
