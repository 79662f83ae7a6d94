"""A cluster's own changes that are not published yet, read from its records.

Only the last published sequence is kept: a region that takes over reads the rest from the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from emulator.core.metadata.event import SyncStamp
from emulator.core.metadata.messages import PACK_CHARACTERS, Events, portions
from emulator.core.metadata.record import DocumentRecord


class EventOutbox:
    """Of the region that carries the events."""

    def __init__(self, cluster: str, incarnation: str, published: int) -> None:
        self._cluster = cluster
        self.incarnation = incarnation
        self.published = published
        """Up to this sequence of the cluster."""
        self._paths: dict[str, None] = {}
        """Documents with unpublished changes."""

    def begins_with(self, record: DocumentRecord) -> None:
        """A record was so when this region began to carry."""
        self.noted(record)

    def noted(self, record: DocumentRecord) -> None:
        """A record has changed."""
        if any(self._is_due(event.stamp) for event in record.events()):
            self._paths[record.path] = None

    def _is_due(self, stamp: SyncStamp) -> bool:
        return stamp.origin == f"{self._cluster}:{self.incarnation}" and stamp.sequence > self.published

    @property
    def due(self) -> Sequence[str]:
        """Paths whose records are wanted by `packs`."""
        return list(self._paths)

    def packs(
        self,
        records: Iterable[DocumentRecord],
        settled: int,
        characters_max: int = PACK_CHARACTERS,
        seen_to: Mapping[str, int] | None = None,
    ) -> list[Events]:
        """Return all due events as packs. `records` and `settled` are read at one moment: each own number up to
        `settled` is applied, or never will be. The last pack reaches `settled` even if no event up to there still
        counts, so that a copy that any region published before is old from then on (INV-78)."""
        due = (event for record in records for event in record.events() if self._is_due(event.stamp))
        events = [event for event in due if event.stamp.sequence <= settled]
        events.sort(key=lambda event: event.stamp.sequence)
        made: list[Events] = []
        after = self.published
        portioned = list(portions(events, characters_max)) or [()]
        for number, portion in enumerate(portioned):
            upto = settled if number == len(portioned) - 1 else portion[-1].stamp.sequence
            made.append(Events(self._cluster, self.incarnation, after, upto, portion, seen_to or {}))
            after = upto
        return made if settled > self.published else []

    def heard(self, pack: Events) -> None:
        """A pack of this cluster arrived by the event topic: the region that made the change published it."""
        if pack.incarnation == self.incarnation and pack.after <= self.published:
            self.published = max(self.published, pack.upto)

    def sent(self, packs: Sequence[Events], records: Iterable[DocumentRecord]) -> None:
        """They are durable in the event topic. `records`: those that were due, as they are now. What was changed while
        the packs were under way is due again."""
        if packs:
            self.published = max(self.published, packs[-1].upto)
        for record in records:
            self._paths.pop(record.path, None)
            self.noted(record)
