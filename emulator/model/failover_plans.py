"""What is known of another region before consumers continue there: the plan of a fail-over, and positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What happens to one subscription if its consumers stop in `source` and continue in `target`. Numbers of messages
    are those at the time of the plan."""

    topic: str
    subscription: str
    source: str
    target: str
    redelivered_messages: int
    """Messages that are acknowledged in `source` and that `target` would deliver."""
    exact: bool
    """Whether `redelivered_messages` is exact; otherwise it is an upper bound."""
    quiet: bool
    """Whether the condition `quiet` held in all regions before and after the plan was computed, and nothing changed
    meanwhile: only an action of a client can change the plan. False in the response of a region."""
    begun_at_ms: int = 0
    """Time before the first region was queried, in milliseconds since 1970: later acknowledgements may not be in the
    plan. 0 in the response of a region."""
    complete: bool = True
    """Whether all logs were read as far as necessary. Otherwise no bound is known, and `redelivered_messages` counts
    only what was read."""
    resume: str | None = None
    """Position `ledger:entry` of the first message that a consumer in `target` would receive; None: there is none."""
    oldest_redelivered_age_ms: int | None = None
    """Age of the oldest redelivered message, by its publish time; None: there is none, or it is unknown."""
    skipped_messages: int | None = None
    """Messages that are not acknowledged in `source` and that `target` would never deliver; None: `source` did not
    respond."""
    skipped_because: tuple[str, ...] = ()
    """Why these messages are skipped, one sentence per reason."""
    missing_messages: int | None = None
    """Messages that are stored in `source` and not in `target` yet; None: `source` did not respond."""
    information_age_ms: int | None = None
    """Age of the newest information about `source`: 0 if it contributed to the plan; otherwise the time since `target`
    applied its newest update of the subscription. None: `target` applied none."""
    wait_for: tuple[str, ...] = ()
    """Events that make a later fail-over redeliver less; empty: none is expected."""
    why: tuple[str, ...] = ()
    """The reasons, one sentence each (docs/reference/reasons.md)."""
    causes: tuple[str, ...] = ()
    """Codes of the reasons."""
    source_mark_delete: str | None = None
    """Mark-delete position of the subscription in `source`, `ledger:entry`; None: `source` did not respond."""
    source_acknowledged: tuple[tuple[int, int], ...] = ()
    """Ranges of entries that are acknowledged in `source` beyond it: (first, last), both included. Bounded; of many
    ranges the last ones are omitted."""
    target_last: str | None = None
    """Position of the last readable entry in the log of `target`; None: `target` does not have the topic."""

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = asdict(self)
        raw["source_acknowledged"] = [list(one) for one in self.source_acknowledged]
        return {name: [*value] if isinstance(value, tuple) else value for name, value in raw.items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> FailoverPlan:
        """Create a plan from the result of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        known = {one.name: raw[one.name] for one in fields(cls)}
        for name in ("skipped_because", "wait_for", "why", "causes"):
            known[name] = tuple(known[name])
        known["source_acknowledged"] = tuple((first, last) for first, last in known["source_acknowledged"])
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedPlan(FailoverPlan):
    """The plans of all partitions of a topic. The inherited fields are their sums or worst values; no positions."""

    partitions: tuple[FailoverPlan, ...]
    """The plans, at least one, by the index of the partition."""

    @classmethod
    def of(cls, topic: str, parts: tuple[FailoverPlan, ...]) -> PartitionedPlan:
        """Return the plan of a topic from the plans of its partitions. A sum is None if a number is unknown."""
        ages = [one.oldest_redelivered_age_ms for one in parts if one.oldest_redelivered_age_ms is not None]
        informed = [one.information_age_ms for one in parts if one.information_age_ms is not None]
        return cls(
            topic=topic,
            subscription=parts[0].subscription,
            source=parts[0].source,
            target=parts[0].target,
            redelivered_messages=sum(one.redelivered_messages for one in parts),
            exact=all(one.exact for one in parts),
            quiet=all(one.quiet for one in parts),
            begun_at_ms=min(one.begun_at_ms for one in parts),
            complete=all(one.complete for one in parts),
            oldest_redelivered_age_ms=max(ages, default=None),
            skipped_messages=_sum(one.skipped_messages for one in parts),
            skipped_because=_distinct(one.skipped_because for one in parts),
            missing_messages=_sum(one.missing_messages for one in parts),
            information_age_ms=max(informed) if len(informed) == len(parts) else None,
            wait_for=_distinct(one.wait_for for one in parts),
            why=_distinct(one.why for one in parts),
            causes=_distinct(one.causes for one in parts),
            partitions=parts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the inherited fields, and `partitions`: the plans."""
        return {**FailoverPlan.to_json(self), "partitions": [one.to_json() for one in self.partitions]}


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [*numbers]
    return None if None in known else sum(one for one in known if one is not None)


def _distinct(sentences: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for some in sentences for one in some))


@dataclass(frozen=True, slots=True)
class Translation:
    """What is known of the place of one entry of `source` in the log of `target`. Positions are `ledger:entry`."""

    topic: str
    position: str
    """Position in `source`."""
    source: str
    target: str
    exact: str | None = None
    """Position of the same entry in `target`; None: it is not stored there, or unknown."""
    after: str | None = None
    """The place of the entry in `target` is after this position; None: unknown."""
    upto: str | None = None
    """The place of the entry in `target` is at or before this position; None: unknown, or after all stored entries."""
    origin: str | None = None
    """Region and position where the entry was published, `region:ledger:entry`; None: unknown."""
    basis: str = ""
    """What the bounds rest on, one sentence."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Translation:
        """Create a translation from the result of `to_json`. Raises KeyError or TypeError for anything else."""
        return cls(**{one.name: raw[one.name] for one in fields(cls)})
