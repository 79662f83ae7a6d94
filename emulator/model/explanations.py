"""Explanations: one type for the state of every kind of object, and the table of kinds (docs/components/explain.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from emulator.model.reasons import Cause, Reason
from emulator.model.subscription_details import SubscriptionDetails


@dataclass(frozen=True, slots=True)
class Explanation:
    """One region's explanation of the state of one object."""

    region: str
    kind: str
    name: str
    """Full name of the object; its parts are separated by spaces."""
    what: str
    """The state, as one sentence."""
    since_ms: int | None = None
    """Time at which the state began, by the region's wall clock; None: unknown."""
    why: str = ""
    """The reasons of the state, separated by semicolons; empty in the normal state."""
    waits_for: tuple[str, ...] = ()
    """Events that end the state, one sentence each."""
    causes: tuple[str, ...] = ()
    """Codes of the reasons in `why` (rows of `emulator.model.reasons`)."""
    replicates_to: tuple[str, ...] | None = None
    """For a subscription: regions to which its position is sent. None: it is not replicated."""
    not_applied: tuple[str, ...] = ()
    """For a subscription that is not replicated: regions that sent a position, which was not applied."""
    subscription: SubscriptionDetails | None = None
    """For a subscription: its position, its snapshots, and what other regions know of it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Explanation:
        """Create an explanation from the result of `to_json`. Raises KeyError or TypeError for anything else."""
        lists = {name: tuple(raw[name]) for name in ("waits_for", "causes", "not_applied")}
        remotes, details = raw["replicates_to"], raw.get("subscription")
        return cls(
            **{
                **raw,
                **lists,
                "replicates_to": None if remotes is None else tuple(remotes),
                "subscription": None if details is None else SubscriptionDetails.from_json(details),
            }
        )


def explained(
    region: str, kind: str, name: str, what: str, since_ms: int | None, reasons: Iterable[Reason]
) -> Explanation:
    """Return an explanation with these reasons; empty ones are omitted."""
    present = [reason for reason in reasons if reason]
    return Explanation(
        region,
        kind,
        name,
        what,
        since_ms,
        why="; ".join(present),
        waits_for=tuple(end for reason in present for end in reason.ends),
        causes=tuple(reason.code for reason in present),
    )


def with_conflicts(explanations: Sequence[Explanation]) -> list[Explanation]:
    """Return explanations with the conflicts added that no region can detect alone: a region sends a subscription's
    position to another region, where the subscription is not replicated. Both regions' explanations get a reason."""
    return [_with_reasons(one, list(_conflicts(one, explanations))) for one in explanations]


def _with_reasons(one: Explanation, conflicts: Sequence[Reason]) -> Explanation:
    ends = (end for reason in conflicts for end in reason.ends)
    return replace(
        one,
        why="; ".join(filter(None, [one.why, *conflicts])),
        waits_for=(*one.waits_for, *ends),
        causes=(*one.causes, *(reason.code for reason in conflicts)),
    )


def _conflicts(one: Explanation, explanations: Sequence[Explanation]) -> Iterator[Reason]:
    """Yield the conflicts of one region's subscription with other regions."""
    others = [other for other in explanations if (one.kind, one.name) == ("subscription", other.name)]
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
    """A kind of object that `geoemu explain` describes."""

    words: tuple[str, ...]
    """Placeholders for the parts of the object's name."""
    doc: str


KINDS: Mapping[str, Kind] = {
    "topic": Kind(
        ("TOPIC",), "its producers, subscriptions and owner, and whether all stored messages are visible"
    ),
    "subscription": Kind(
        ("TOPIC", "SUBSCRIPTION"),
        "its cursor, its snapshots, what was sent to and applied from other regions, and why its position is not sent",
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
