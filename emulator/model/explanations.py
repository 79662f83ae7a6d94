"""Answers to "why": one shape for every kind of thing, and the kinds there are (docs/components/explain.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.model.reasons import Cause, Reason


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one region says about one thing."""

    region: str
    kind: str
    name: str
    """In full, its words separated by spaces."""
    what: str
    """How it is, one sentence."""
    since_ms: int | None = None
    """Since when, by the region's own clock; None when it does not know."""
    why: str = ""
    """Why it is like that; empty when it is as it should be."""
    waits_for: tuple[str, ...] = ()
    """What has to happen before it changes, a sentence each."""
    causes: tuple[str, ...] = ()
    """The rows of `emulator.model.reasons` that `why` was made from."""
    replicates_to: tuple[str, ...] | None = None
    """Of a subscription: regions that its position is sent to. None: it is not replicated."""
    not_applied: tuple[str, ...] = ()
    """Of a subscription that is not replicated: regions that sent a position, which is not applied."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Explanation:
        """Inverse of `to_json`. KeyError or TypeError when `raw` is anything else."""
        lists = {name: tuple(raw[name]) for name in ("waits_for", "causes", "not_applied")}
        remotes = raw["replicates_to"]
        return cls(**{**raw, **lists, "replicates_to": None if remotes is None else tuple(remotes)})


def explained(
    region: str, kind: str, name: str, what: str, since_ms: int | None, reasons: Iterable[Reason]
) -> Explanation:
    """Make an explanation from reasons of the table; empty ones are left out."""
    given = [reason for reason in reasons if reason]
    return Explanation(
        region,
        kind,
        name,
        what,
        since_ms,
        why="; ".join(given),
        waits_for=tuple(end for reason in given for end in reason.ends),
        causes=tuple(reason.code for reason in given),
    )


def with_conflicts(said: Sequence[Explanation]) -> list[Explanation]:
    """Add what no region can know by itself: that one of them sends a subscription's position to another one where the
    subscription is not replicated. Both sides are given a reason; links between the regions are not needed."""
    return [_with_reasons(one, list(_conflicts(one, said))) for one in said]


def _with_reasons(one: Explanation, conflicts: Sequence[Reason]) -> Explanation:
    ends = (end for reason in conflicts for end in reason.ends)
    return replace(
        one,
        why="; ".join(filter(None, [one.why, *conflicts])),
        waits_for=(*one.waits_for, *ends),
        causes=(*one.causes, *(reason.code for reason in conflicts)),
    )


def _conflicts(one: Explanation, said: Sequence[Explanation]) -> Iterator[Reason]:
    """Of one region's subscription."""
    others = [other for other in said if (one.kind, one.name) == ("subscription", other.name)]
    for other in others:
        if _does_not_apply(other, one):
            yield Cause.POSITION_NOT_APPLIED_THERE(region=other.region)
    sources = [other.region for other in others if _does_not_apply(one, other)]
    if sources and not one.not_applied:
        yield Cause.POSITION_NOT_APPLIED_HERE(regions=", ".join(sources), here=one.region)


def _does_not_apply(target: Explanation, source: Explanation) -> bool:
    return target.replicates_to is None and target.region in (source.replicates_to or ())


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that can be asked about."""

    words: tuple[str, ...]
    """What its name consists of."""
    doc: str


KINDS: Mapping[str, Kind] = {
    "topic": Kind(
        ("TOPIC",), "its producers, subscriptions and owner, and whether all stored messages are visible"
    ),
    "subscription": Kind(
        ("TOPIC", "SUBSCRIPTION"),
        "its cursor, what it waits for, and why its position is not sent to other regions",
    ),
    "replication": Kind(
        ("TOPIC", "REGION"), "the backlog of the replicator to a region, and why it does not send"
    ),
    "snapshot": Kind(
        ("TOPIC",), "the newest snapshot of replicated subscriptions, and why there is no newer one"
    ),
    "metadata": Kind(
        ("PATH",),
        "the value and origin of a path of the configuration store, and whether the store is available",
    ),
    "link": Kind(("REGION", "REGION"), "whether it is established, and why not"),
    "transaction": Kind(
        ("COORDINATOR,NUMBER",),
        "its state, key and participants, and which participants have not stored its outcome",
    ),
    "transaction-key": Kind(
        ("KEY",), "its epoch, the client that used it last, and its transactions with their status"
    ),
}
