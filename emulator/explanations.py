"""Answers to "why": one shape for every kind of thing, and the kinds there are (docs/rooms/explain.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Explanation:
        """Inverse of `to_json`. KeyError or TypeError when `raw` is anything else."""
        return cls(**{**raw, "waits_for": tuple(raw["waits_for"])})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that can be asked about."""

    words: tuple[str, ...]
    """What its name consists of."""
    doc: str


KINDS: Mapping[str, Kind] = {
    "topic": Kind(("TOPIC",), "who publishes and reads, and whether everything stored is visible"),
    "subscription": Kind(
        ("TOPIC", "SUBSCRIPTION"),
        "where its cursor is, who holds it, why its position is not carried to other regions",
    ),
    "replication": Kind(
        ("TOPIC", "REGION"), "how far that region is behind, and why the replicator does not send"
    ),
    "snapshot": Kind(
        ("TOPIC",), "the newest snapshot of replicated subscriptions, and why there is no newer one"
    ),
    "metadata": Kind(
        ("PATH",),
        "what this region knows of a path of its cluster's configuration store, and whether it is away",
    ),
    "link": Kind(("REGION", "REGION"), "whether it is established, and why not"),
    "transaction": Kind(
        ("COORDINATOR,NUMBER",),
        "whether it is open, under which key, who takes part in it, who was not told yet how it ended",
    ),
    "transaction-key": Kind(
        ("KEY",), "its epoch, the client that it was granted to last, and its transactions with their status"
    ),
}
