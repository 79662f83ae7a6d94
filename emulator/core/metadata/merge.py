"""One transaction of a cluster's configuration store: a local change, or events of other clusters.

The document, its record and the cluster's own clock are written atomically. The record is the outbox, too: it contains
each change of the cluster, with its sequence number, until another event supersedes it. A tombstone stays until every
cluster has it. So an acknowledged change does not depend on the region that publishes it (INV-47).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from emulator.core.metadata.event import (
    BEGINNING,
    EXISTENCE,
    ClockReading,
    SyncEvent,
    SyncStamp,
    elements_of,
    is_implied,
    latest_reading,
    tick,
)
from emulator.core.metadata.record import LATEST, DocumentRecord, MergeOutcome, Rule, stored_record
from emulator.core.metadata.stored import StoreTransaction, decoded
from emulator.core.metadata.version_vector import (
    OwnClock,
    Vector,
    add_pending,
    bounded,
    covers,
    read_pending,
    remove_pending,
    vector_of,
)
from emulator.errors import StorageError
from emulator.model.stored_keys import SYNC_APPLIED_PATH, SYNC_CLOCK_PATH, SYNC_PENDING_PATH, SyncRecordPath

CLOCK_AHEAD_MS_MAX: Final = 300_000
"""Default of the maximum time that an event may be ahead of the local clock; Kerberos has the same."""


class Overruled(StorageError):
    """A local change would lose at once to an event with a later time. The transaction must not be committed."""

    def __init__(self, event: SyncEvent, by: SyncStamp) -> None:
        behind_ms = by.time_ms - event.stamp.time_ms
        super().__init__(
            f"{event.full_path} was changed by cluster {by.source}, whose clock was {behind_ms} ms ahead of this "
            f"cluster's clock: this change would be older and would lose. Correct the clocks, or retry later",
            definite=True,
        )


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The name of the local cluster and its rules of metadata sync."""

    cluster: str
    rule: Rule = LATEST
    is_hybrid: bool = False
    """Whether the times of events are those of hybrid logical clocks, which respect causality."""
    clock_ahead_ms_max: int = CLOCK_AHEAD_MS_MAX
    """An event that is further ahead of the local clock is from the far future. It is merged as any other, but it moves
    no clock, and clusters that have it can still change the element (INV-81)."""


@dataclass(slots=True)
class MergeCounts:
    """Numbers of events by their outcome (`MergeOutcome`), and the events that need attention."""

    won: int = 0
    lost: int = 0
    known: int = 0
    """Events that had been applied before, also if a removed tombstone superseded them."""
    from_the_future: list[SyncEvent] = field(default_factory=list)
    """Events from the far future (`LocalCluster.clock_ahead_ms_max`)."""
    replaced: list[tuple[SyncEvent, SyncStamp]] = field(default_factory=list)
    """Events of other clusters that replaced a change of this cluster, not a seed, with the stamp of that change."""


class MetadataTransaction:
    """The changes of one transaction of the store; `finish` is its last step."""

    def __init__(self, rows: StoreTransaction, here: LocalCluster, now_ms: int, new_incarnation: str) -> None:
        """`new_incarnation`: random id, used if the store has none yet. Raises StorageDamaged."""
        self._rows = rows
        self._here = here
        self._now_ms = now_ms
        stored = rows.get(SYNC_CLOCK_PATH.text)
        known = decoded(stored, OwnClock.decode, None)
        self._stored_clock = known
        self._clock = known or OwnClock(new_incarnation)
        self._known: Callable[[SyncStamp], bool] = lambda stamp: False
        self._latest_future = BEGINNING
        """The latest far-future reading in the document that is being changed; its changes get later ones."""

    # Local changes.

    def change(self, path: str, value: bytes | None, *, is_seed: bool, touched: Iterable[str] = ()) -> None:
        """Set a document, or delete it if `value` is None. `is_seed`: the document is from the topology, and its events
        have the lowest time. `touched`: elements that get an event even if unchanged. Raises Overruled, or ValueError
        for an invalid document."""
        self.apply_own(path, self.prepare(path, value, is_seed=is_seed, touched=touched))

    def prepare(
        self, path: str, value: bytes | None, *, is_seed: bool, touched: Iterable[str] = ()
    ) -> list[SyncEvent]:
        """Assign sequence numbers to the events of a change and return them, without applying them."""
        record = self._record(path)
        self._latest_future = max(filter(self._is_too_far_ahead, record.readings()), default=BEGINNING)
        return self._events_of_change(record, value, is_seed, frozenset(touched))

    def apply_own(self, path: str, events: Iterable[SyncEvent]) -> None:
        """Apply events that `prepare` returned. Raises Overruled."""
        events = list(events)
        if events:
            self._write(self._merged_into_record(path, events))

    def _merged_into_record(self, path: str, events: Iterable[SyncEvent]) -> DocumentRecord:
        """Return the record with own events merged into it, without writing it. Raises Overruled."""
        record = self._record(path)
        for event in events:
            before = record.entries.get(event.element)
            outcome = record.merge(event, self._here.cluster, self._now_ms, self._local_rule)
            if outcome is MergeOutcome.LOST:
                by = before.stamp if before is not None else record.deleted
                assert by is not None
                raise Overruled(event, by)
        return record

    def store_prepared(
        self, path: str, value: bytes | None, *, touched: Iterable[str] = ()
    ) -> list[SyncEvent]:
        """Prepare a change and store its events as pending: from then on they may be published (INV-78). Raises
        Overruled for events older than those that this cluster has, because a cluster that reported a tombstone must
        publish no older event."""
        events = self.prepare(path, value, is_seed=False, touched=touched)
        self._merged_into_record(path, events)
        add_pending(self._rows, events)
        return events

    def apply_prepared(self, path: str, events: Sequence[SyncEvent]) -> None:
        """Apply events of `store_prepared` and remove them from the pending changes."""
        self.apply_own(path, events)
        self.withdraw(events)

    def withdraw(self, events: Iterable[SyncEvent]) -> None:
        """Remove events from the pending changes, because they are applied or will never be published."""
        remove_pending(self._rows, [event.stamp for event in events])

    @property
    def _local_rule(self) -> Rule:
        """The rule for local changes. By upstream's rule every local change wins."""
        here = self._here.rule
        return here if here.has_tombstones else replace(here, wins=lambda stamp, present, cluster: True)

    def _events_of_change(
        self, record: DocumentRecord, value: bytes | None, is_seed: bool, touched: frozenset[str]
    ) -> list[SyncEvent]:
        path = record.path
        if value is None:
            return (
                [SyncEvent(path, EXISTENCE, None, True, self._next_stamp(is_seed))] if record.exists else []
            )
        events: list[SyncEvent] = []
        wanted, present = elements_of(path, value), record.elements() if record.exists else {}
        if not record.exists:
            events.append(SyncEvent(path, EXISTENCE, None, False, self._next_stamp(is_seed)))
        for element, one in wanted.items():
            if element not in present or present[element] != one or element in touched:
                events.append(SyncEvent(path, element, one, False, self._next_stamp(is_seed)))
        deleted_elements = [
            element
            for element, one in record.elements().items()
            if element not in wanted and not is_implied(element, one, wanted)
        ]
        events += [
            SyncEvent(path, element, None, True, self._next_stamp(is_seed)) for element in deleted_elements
        ]
        return events

    def _next_stamp(self, is_seed: bool) -> SyncStamp:
        clock = self._clock
        reading = clock.reading
        if not is_seed:
            known = BEGINNING if self._is_too_far_ahead(reading) else reading
            reading = tick(known, self._now_ms) if self._here.is_hybrid else _not_before(known, self._now_ms)
        self._clock = OwnClock(clock.incarnation, clock.sequence + 1, reading)
        stamped = BEGINNING if is_seed else _later_than(reading, self._latest_future)
        return SyncStamp(*stamped, self._here.cluster, clock.sequence + 1, clock.incarnation)

    def _is_too_far_ahead(self, reading: ClockReading) -> bool:
        return reading.time_ms > self._now_ms + self._here.clock_ahead_ms_max

    # Events of other clusters.

    def apply(self, events: Iterable[SyncEvent]) -> MergeCounts:
        """Merge received events and write the documents that change. Own events are no longer pending afterwards."""
        tally = MergeCounts()
        by_path: dict[str, list[SyncEvent]] = {}
        for event in events:
            by_path.setdefault(event.path, []).append(event)
        self._known = self._known_already()
        for path, its_events in by_path.items():
            record = self._record(path)
            before = record.encode()
            for event in its_events:
                self._apply(record, event, tally)
            if record.encode() != before:
                self._write(record)
            self.withdraw(event for event in its_events if event.stamp.origin == self._own_origin)
        return tally

    def _known_already(self) -> Callable[[SyncStamp], bool]:
        """Return a predicate for events that this cluster has applied. If the record does not contain such an event, an
        event superseded it whose tombstone was removed after every cluster had it. Of the cluster's own events, all but
        the pending ones are applied."""
        applied, own, newest = self.applied(), self._own_origin, self._clock.sequence
        waiting = read_pending(self._rows.get(SYNC_PENDING_PATH.text))

        def is_known(stamp: SyncStamp) -> bool:
            if stamp.origin != own:
                return covers(applied, stamp)
            return stamp.sequence <= newest and stamp.sequence not in waiting

        return is_known

    def _apply(self, record: DocumentRecord, event: SyncEvent, tally: MergeCounts) -> None:
        if self._is_too_far_ahead(event.stamp.reading):
            tally.from_the_future.append(event)
        elif self._here.is_hybrid:
            self._receive_reading(event.stamp)
        present = record.entries.get(event.element)
        is_own = event.stamp.source == self._here.cluster
        if present is None and self._here.rule.has_tombstones and self._known(event.stamp):
            tally.known += 1
            return
        match record.merge(event, self._here.cluster, self._now_ms, self._here.rule):
            case MergeOutcome.WON:
                tally.won += 1
                if (
                    present is not None
                    and not is_own
                    and present.stamp.source == self._here.cluster
                    and present.stamp.time_ms
                ):
                    tally.replaced.append((event, present.stamp))
            case MergeOutcome.LOST:
                tally.lost += 1
            case MergeOutcome.KNOWN:
                tally.known += 1

    def _receive_reading(self, stamp: SyncStamp) -> None:
        reading = latest_reading(self._clock.reading, stamp.reading)
        self._clock = replace(self._clock, reading=reading)

    def adopt(self, path: str) -> None:
        """Create the record of a document that has none: the document counts as a seed."""
        self._write(self._record(path))

    def remove_tombstones(self, path: str, is_removable: Callable[[SyncStamp], bool]) -> None:
        """Remove the tombstones of a document that satisfy `is_removable`. Other clusters may still have theirs, so the
        cluster's clock advances past the removed ones: later local changes get later times."""
        record = self._record(path)
        latest = record.remove_tombstones(is_removable)
        if latest is not None:
            after = ClockReading(latest.time_ms + 1, 0)
            self._clock = replace(self._clock, reading=latest_reading(self._clock.reading, after))
            self._write(record)

    def reconcile(self, path: str, kept: Collection[SyncStamp], has: Vector) -> None:
        """Reconcile a document with a cluster that has all events up to `has`; its record contains those in `kept`.

        Other events up to `has` are removed here: that cluster deleted their elements and removed the tombstones. Local
        changes that it never received get a new stamp with the present time, except seeds (INV-82)."""
        record = self._record(path)
        before = record.encode()
        record.forget(lambda stamp: covers(has, stamp) and stamp not in kept)
        self._latest_future = max(filter(self._is_too_far_ahead, record.readings()), default=BEGINNING)
        for event in list(record.events()):
            stamp = event.stamp
            if stamp.origin == self._own_origin and stamp.time_ms and not covers(has, stamp):
                renewed = replace(event, stamp=self._next_stamp(is_seed=False))
                record.merge(renewed, self._here.cluster, self._now_ms, self._local_rule)
        if record.encode() != before:
            self._write(record)

    # Writing.

    def applied(self) -> dict[str, int]:
        """Return this cluster's version vector, including its own events."""
        stored = self._rows.get(SYNC_APPLIED_PATH.text)
        return vector_of(stored, self._clock, self._here.cluster)

    def advance(self, reached: Vector) -> None:
        """Note that all events up to `reached` are applied."""
        before = self.applied()
        after = bounded(before, reached)
        after.pop(self._own_origin, None)
        before.pop(self._own_origin, None)
        if after != before:
            self._rows.put(SYNC_APPLIED_PATH.text, json.dumps(after, sort_keys=True).encode())

    def finish(self) -> None:
        """Write the cluster's own clock, if it changed."""
        if self._clock != self._stored_clock:
            self._rows.put(SYNC_CLOCK_PATH.text, self._clock.encode())

    @property
    def _own_origin(self) -> str:
        return f"{self._here.cluster}:{self._clock.incarnation}"

    def _record(self, path: str) -> DocumentRecord:
        stored = self._rows.get(SyncRecordPath(path).text)
        if stored is not None:
            return stored_record(path, stored)
        record = DocumentRecord(path)
        present = self._rows.get(path)
        if present is not None:
            for event in self._events_of_change(record, present.value, True, frozenset()):
                record.merge(event, self._here.cluster, self._now_ms)
        return record

    def _write(self, record: DocumentRecord) -> None:
        self._rows.put(SyncRecordPath(record.path).text, None if record.is_empty else record.encode())
        present = self._rows.get(record.path)
        document = record.document()
        if document != (None if present is None else present.value):
            self._rows.put(record.path, document)


def _not_before(reading: ClockReading, now_ms: int) -> ClockReading:
    """Return the present time, or the time of `reading` if it is later: a clock that was set back must not reorder the
    cluster's own events."""
    return ClockReading(max(reading.time_ms, now_ms), 0)


def _later_than(reading: ClockReading, other: ClockReading) -> ClockReading:
    """Return `reading`, or the next reading after `other` if `reading` is not later than `other`."""
    return reading if reading > other else ClockReading(other.time_ms, other.counter + 1)
