"""The record of one document in a cluster: the winning event of each element, and the newest events that lost.

The document is computed from its record. Under the proposal's rule merging is commutative, associative and idempotent:
the same events give the same document, winners and tombstones, in any order, however often. Only the losers and the
times of application depend on the order.

A deletion leaves a tombstone: one per element, or `deleted` for the document (its latest deletion). Events older than
the tombstone have no effect, even if the document exists again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.core.metadata.event import EXISTENCE, ClockReading, SyncEvent, SyncStamp, document_of
from emulator.core.metadata.stored import decoded
from emulator.model.values import Change

LOSERS_KEPT: Final = 4
"""Number of newest losing events kept per document, to explain its value."""


class ElementState(NamedTuple):
    """The state of one element of a document."""

    stamp: SyncStamp
    """Stamp of the event that won."""
    is_deleted: bool
    value: Any
    applied_ms: int
    """Time by the wall clock of the region that applied the event; shown to users and compared by upstream's rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Decides which of two events of an element wins."""

    wins: Callable[[SyncStamp, ElementState | None, str], bool]
    """(stamp of a new event, present state of the element, this cluster): whether the new event wins."""
    has_tombstones: bool = True
    """Whether deletions of documents leave tombstones, so that an older event does not restore elements."""


def _latest(stamp: SyncStamp, present: ElementState | None, here: str) -> bool:
    return present is None or stamp.is_later_than(present.stamp)


def _upstream(stamp: SyncStamp, present: ElementState | None, here: str) -> bool:
    """Compare the event's time with the time at which the present value was applied here; for equal times, the names of
    the event's cluster and this one: the last in order wins. A deleted element loses to any event."""
    if present is None or present.is_deleted:
        return True
    return (stamp.time_ms, stamp.source) > (present.applied_ms, here)


LATEST = Rule(_latest)
"""The proposal's rule: the event with the later stamp wins. No two events are equal (`SyncStamp.is_later_than`)."""
UPSTREAM = Rule(_upstream, has_tombstones=False)
"""The rule of Pulsar's implementation, which depends on the order in which events arrive."""


class Loser(NamedTuple):
    """An event that lost, and the stamp of the event that won."""

    element: str
    stamp: SyncStamp
    value: Any
    winner: SyncStamp


class MergeOutcome(Enum):
    """The outcome of merging an event."""

    WON = "the event sets the element"
    LOST = "another event, or the deletion of the document, wins"
    KNOWN = "the event has set the element, or has lost, before"


@dataclass(slots=True)
class DocumentRecord:
    """The record of one document; EXISTENCE is an element of it."""

    path: str
    entries: dict[str, ElementState] = field(default_factory=dict)
    deleted: SyncStamp | None = None
    """The tombstone of the document's latest deletion; None: it was not deleted, or the tombstone was removed."""
    losers: list[Loser] = field(default_factory=list)
    """The newest losers in order of arrival, up to LOSERS_KEPT."""

    def merge(self, event: SyncEvent, here: str, now_ms: int, rule: Rule = LATEST) -> MergeOutcome:
        """Merge an event into the record. `here`: name of this cluster; `now_ms`: its wall-clock time."""
        assert event.path == self.path
        present = self.entries.get(event.element)
        if present is not None and present.stamp == event.stamp:
            return MergeOutcome.KNOWN
        if event.element == EXISTENCE and event.is_deleted and rule.has_tombstones:
            self._apply_deletion(event.stamp)
        elif self.deleted is not None and not event.stamp.is_later_than(self.deleted):
            return self._lost(event, self.deleted)
        if not rule.wins(event.stamp, present, here):
            assert present is not None
            return self._lost(event, present.stamp)
        if present is not None:
            self._note(Loser(event.element, present.stamp, present.value, event.stamp))
        if event.element == EXISTENCE and event.is_deleted and not rule.has_tombstones:
            self.entries.clear()
        self.entries[event.element] = ElementState(event.stamp, event.is_deleted, event.value, now_ms)
        return MergeOutcome.WON

    def _apply_deletion(self, deletion: SyncStamp) -> None:
        """Set the document's tombstone and remove older elements, unless a later deletion is known."""
        if self.deleted is None or deletion.is_later_than(self.deleted):
            self.deleted = deletion
            self.entries = {
                element: entry
                for element, entry in self.entries.items()
                if element == EXISTENCE or entry.stamp.is_later_than(deletion)
            }

    def _lost(self, event: SyncEvent, winner: SyncStamp) -> MergeOutcome:
        loser = Loser(event.element, event.stamp, event.value, winner)
        if any(one.stamp == loser.stamp for one in self.losers):
            return MergeOutcome.KNOWN
        self._note(loser)
        return MergeOutcome.LOST

    def _note(self, loser: Loser) -> None:
        self.losers = [*self.losers, loser][-LOSERS_KEPT:]

    @property
    def has_tombstones(self) -> bool:
        return self.deleted is not None or any(entry.is_deleted for entry in self.entries.values())

    def remove_tombstones(self, is_removable: Callable[[SyncStamp], bool]) -> ClockReading | None:
        """Remove the tombstones whose stamps satisfy `is_removable`. Returns the latest reading among them; None: none
        was removed."""
        removed = [
            entry.stamp for entry in self.entries.values() if entry.is_deleted and is_removable(entry.stamp)
        ]
        self.entries = {
            element: entry for element, entry in self.entries.items() if entry.stamp not in removed
        }
        if self.deleted is not None and is_removable(self.deleted):
            removed.append(self.deleted)
            self.deleted = None
        return max((stamp.reading for stamp in removed), default=None)

    def forget(self, is_gone: Callable[[SyncStamp], bool]) -> None:
        """Remove the elements and the deletion whose stamps satisfy `is_gone`."""
        self.entries = {element: entry for element, entry in self.entries.items() if not is_gone(entry.stamp)}
        if self.deleted is not None and is_gone(self.deleted):
            self.deleted = None

    def readings(self) -> list[ClockReading]:
        """Return the readings of all events in the record, except losers."""
        found = [entry.stamp.reading for entry in self.entries.values()]
        return found if self.deleted is None else [*found, self.deleted.reading]

    @property
    def exists(self) -> bool:
        entry = self.entries.get(EXISTENCE)
        return entry is not None and not entry.is_deleted

    @property
    def is_empty(self) -> bool:
        return not self.entries and self.deleted is None

    def elements(self) -> dict[str, Any]:
        """Return the values of the elements that are not deleted, even if the document does not exist."""
        return {
            element: entry.value
            for element, entry in sorted(self.entries.items())
            if element != EXISTENCE and not entry.is_deleted
        }

    def document(self) -> bytes | None:
        """Return the document; None: it does not exist."""
        return document_of(self.path, self.elements()) if self.exists else None

    def events(self) -> Iterator[SyncEvent]:
        """Yield the winning events and the latest deletion of the document."""
        if self.deleted is not None and (
            EXISTENCE not in self.entries or self.entries[EXISTENCE].stamp != self.deleted
        ):
            yield SyncEvent(self.path, EXISTENCE, None, True, self.deleted)
        for element, entry in self.entries.items():
            yield SyncEvent(self.path, element, entry.value, entry.is_deleted, entry.stamp)

    def encode(self) -> bytes:
        raw: dict[str, Any] = {
            "entries": {
                element: [*entry.stamp, entry.is_deleted, entry.value, entry.applied_ms]
                for element, entry in self.entries.items()
            }
        }
        if self.deleted is not None:
            raw["deleted"] = self.deleted
        if self.losers:
            raw["losers"] = [[one.element, one.stamp, one.value, one.winner] for one in self.losers]
        return json.dumps(raw, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, path: str, value: bytes | None) -> DocumentRecord:
        """Decode the result of `encode`. Raises ValueError for anything else."""
        if value is None:
            return cls(path)
        try:
            raw: Mapping[str, Any] = json.loads(value)
            return cls(
                path,
                {element: ElementState(_stamp(one[:5]), *one[5:]) for element, one in raw["entries"].items()},
                _stamp(raw["deleted"]) if "deleted" in raw else None,
                [Loser(one[0], _stamp(one[1]), one[2], _stamp(one[3])) for one in raw.get("losers", ())],
            )
        except (KeyError, TypeError, IndexError, AttributeError) as problem:
            raise ValueError(f"no record of {path}: {problem}") from None


def stored_record(path: str, change: Change | None) -> DocumentRecord:
    """Return the stored record of a document; an empty one if none is stored. Raises StorageDamaged."""
    return decoded(change, lambda value: DocumentRecord.decode(path, value), DocumentRecord(path))


def _stamp(raw: Any) -> SyncStamp:
    """Decode a stamp. Raises ValueError for wrong types, because later comparisons of stamps must not fail."""
    stamp = SyncStamp(*raw)
    if [type(one) for one in stamp] != _STAMP_TYPES:
        raise ValueError(f"{raw!r} is not a stamp")
    return stamp


_STAMP_TYPES = [int, int, str, int, str]
