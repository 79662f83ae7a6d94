"""The metadata that results from a set of events, in any order (PIP-136, docs/components/metadata-sync.md).

Implemented independently of the regions' code, and of the verdict's queries: tests compare all three. The latest event
of an element wins: at equal times that of the cluster whose name sorts first, within a cluster the one with the higher
sequence. Events not later than the latest deletion of their document have no effect. The number of partitions of a
topic is the largest of all its events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_jobs.evidence.metadata_events import EXISTENCE, PARTITIONS, Document, EventStamp, MetadataEvent


def _beats(one: EventStamp, other: EventStamp) -> bool:
    """Return whether an event wins over another event of the same element."""
    if one[:2] != other[:2]:
        return one[:2] > other[:2]
    if one.source != other.source:
        return one.source < other.source
    return one[3:] > other[3:]


@dataclass(slots=True)
class Folded:
    """The events that determine one document."""

    winners: dict[str, MetadataEvent] = field(default_factory=dict)
    """Winning event of each element."""
    deletion: MetadataEvent | None = None
    """Latest deletion of the whole document."""

    def take(self, event: MetadataEvent) -> None:
        winner = self.winners.get(event.element)
        if winner is None or _beats(event.stamp, winner.stamp):
            self.winners[event.element] = event
        is_whole = event.element == EXISTENCE and event.is_deletion
        if is_whole and (self.deletion is None or _beats(event.stamp, self.deletion.stamp)):
            self.deletion = event

    def document(self) -> Document:
        """Return the document; empty if it does not exist."""
        counting = {name: one for name, one in self.winners.items() if self._counts(one)}
        if EXISTENCE not in counting:
            return {}
        elements = {name: True if name == EXISTENCE else one.value for name, one in counting.items()}
        numbers = [elements.pop(name) for name in list(elements) if name.startswith(f"{PARTITIONS}/")]
        return elements | {PARTITIONS: max(numbers)} if numbers else elements

    def _counts(self, event: MetadataEvent) -> bool:
        return not event.is_deletion and (self.deletion is None or _beats(event.stamp, self.deletion.stamp))


def fold(events: Iterable[MetadataEvent]) -> dict[str, Folded]:
    """Fold the events of each path."""
    folded: dict[str, Folded] = {}
    for event in events:
        folded.setdefault(event.path, Folded()).take(event)
    return folded
