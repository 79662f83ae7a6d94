"""What a step of a growing run reports; `output.py` writes it as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.verdict import CheckResult, Witness


@dataclass(frozen=True, slots=True)
class FollowedLink:
    """How far replication over one link is. Only acknowledged messages count."""

    source: str
    target: str
    acknowledged: int
    """Messages of `source` that `target` must store."""
    stored: int
    """Those that it stores."""
    lag_s: float
    """Seconds since the oldest message that is not stored yet was acknowledged; 0: all are stored."""
    lag_max_s: float
    """Highest `lag_s` of all steps."""

    @property
    def missing(self) -> int:
        return self.acknowledged - self.stored

    def as_json(self) -> dict[str, Any]:
        return {
            "from": self.source,
            "to": self.target,
            "acknowledged": self.acknowledged,
            "stored": self.stored,
            "missing": self.missing,
            "lag_s": self.lag_s,
            "lag_max_s": self.lag_max_s,
        }


@dataclass(frozen=True, slots=True)
class LiveViolation:
    """The first findings of a check that became invalid."""

    at_s: float
    """Seconds from the start of the history until it was found."""
    result: CheckResult

    @property
    def witness(self) -> Witness:
        return self.result.witness[0] if self.result.witness else {}

    def as_json(self) -> dict[str, Any]:
        check = self.result
        return {
            "check": check.name,
            "invariant": check.invariant,
            "title": check.title,
            "sentence": check.sentence,
            "witness": [dict(one) for one in check.witness],
            "at_s": self.at_s,
        }


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The state of a run after a step."""

    at_s: float
    """Seconds since the start of the history."""
    published: int
    """Publish requests."""
    acknowledged: int
    """Receipts."""
    stored: Mapping[str, int]
    """Region -> number of stored messages."""
    links: tuple[FollowedLink, ...]
    """Sorted by source and target."""
    open: int
    """Messages in the window."""
    left: int
    """Messages that are checked only at the end."""
    violations: tuple[LiveViolation, ...]

    @property
    def has_converged(self) -> bool:
        return all(link.missing == 0 for link in self.links)

    @property
    def worst(self) -> FollowedLink | None:
        """The link with the highest lag; None without links."""
        return max(self.links, key=lambda link: (link.lag_s, link.missing), default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "at_s": self.at_s,
            "published": self.published,
            "acknowledged": self.acknowledged,
            "stored": dict(self.stored),
            "converged": self.has_converged,
            "links": [link.as_json() for link in self.links],
            "open": self.open,
            "left": self.left,
            "violations": len(self.violations),
        }
