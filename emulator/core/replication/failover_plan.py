"""Compares the log and cursor of the source of a fail-over with the delivery state that its target states.

The source reads its log backwards. Messages of each origin ascend in every log, so once it has read an entry of an
origin that is below the lowest one that the target lacks or has not acknowledged, earlier entries of that origin cannot
matter:

    source    ●  ●  ○  ●  ●  ○  ●  ●   ◀── read backwards      ●  acknowledged by the source's cursor
    target    ●  ○  ○  ●  ●  ●  ○  -                           ○  not acknowledged     -  not stored yet
                 ▲           ▲  ▲  ▲
                 redelivered │  │  missing, and redelivered when it arrives
                       skipped  redelivered

Guarantee: the number of messages that the source acknowledged and the target delivers is at most
`redelivered_messages` plus those that the source acknowledges after the comparison (INV-125).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_BITS, IdSet
from emulator.core.replication.delivery_state import SCAN_ENTRIES_MAX, DeliveryState, ScannedEntry
from emulator.core.replication.origins import Origin, OriginLedger, OriginSet
from emulator.model.reasons import Cause, Reason
from emulator.model.values import AFTER_EVERYTHING, BEFORE_EVERYTHING, Position


class Acknowledged(NamedTuple):
    """The acknowledgements of a cursor at one moment."""

    mark_delete: int
    ids: IdSet
    """Acknowledged ids; those up to mark-delete may be missing."""
    open_bits: Mapping[int, int]
    """Entry id -> messages of a batch that are not acknowledged, one bit each."""

    @classmethod
    def of(cls, cursor: Cursor) -> Acknowledged:
        return cls(cursor.mark_delete, cursor.copy_acked(), dict(cursor.open_bits))

    def first_ranges(self, ranges_max: int) -> list[tuple[int, int]]:
        """Return the first runs of acknowledged ids beyond mark-delete, both ends included, at most `ranges_max`."""
        ids, count = IdSet(), 0
        for number in sorted(self.ids.parts):
            if count <= ranges_max and (number + 1) << PART_BITS > self.mark_delete:
                bits = ids.parts[number] = self.ids.parts[number]
                count += (bits & ~(bits << 1)).bit_count()
        return [run for run in ids.runs() if run[0] > self.mark_delete][:ranges_max]

    def open_in(self, entry_id: int, messages: int) -> int:
        """Return the messages of an entry that are not acknowledged, one bit each."""
        if entry_id <= self.mark_delete or entry_id in self.ids:
            return 0
        return self.open_bits.get(entry_id, (1 << messages) - 1)


@dataclass(slots=True)
class SourceLog:
    """The log of the source at one moment."""

    region: str
    ledger_id: int
    first_entry_id: int
    """Id of the first entry that is not trimmed."""
    end: int
    """Exclusive end of the readable entries."""
    newest: Mapping[str, Position]
    """Other region -> highest position in its log that is stored here."""

    def newest_of(self, region: str) -> Position:
        """Return the highest position of an origin region that is stored here; BEFORE_EVERYTHING: none is."""
        own = Position(self.ledger_id, self.end - 1)
        return own if region == self.region else self.newest.get(region, BEFORE_EVERYTHING)


@dataclass(slots=True)
class PlannedFigures:
    """Numbers of messages of a plan."""

    redelivered: int = 0
    missing: int = 0
    skipped: int = 0
    not_addressed: int = 0
    """Messages that are not acknowledged here and never reach the target, because their producers named other regions
    or the topic is not replicated there."""
    oldest_publish_ms: int | None = None
    """Earliest publish time of a redelivered message."""
    exact: bool = True
    complete: bool = True
    """Whether the numbers are bounds at all: everything that matters was read."""


class SourceComparison:
    """One comparison. The caller passes entries of the log, newest first, until `is_done`, and reads the figures."""

    def __init__(self, log: SourceLog, acked: Acknowledged, target: DeliveryState) -> None:
        self._log = log
        self._acked = acked
        self._target = target
        self._figures = PlannedFigures(exact=target.exact and target.exists)
        self._not_met = target.unacknowledged.union(OriginSet())
        """Entries that the target has not acknowledged and that were not read here yet."""
        regions = {log.region, *log.newest, *target.stored, *target.unacknowledged.regions}
        self._floors = {region: floor for region in regions if (floor := self._floor(region)) is not None}
        """Origin region -> lowest position from which on entries matter; regions without such entries are left out."""
        self._lacking = {
            region: first
            for region in log.newest
            if region != log.region and (first := self._first_missing(region)) is not None
        }
        """Other origin region -> lowest position that the target may lack; removed when an entry at or below it was
        read. Own entries that the target lacks are not trimmed (INV-36)."""
        self._read_from = log.end

    def _first_missing(self, region: str) -> Position | None:
        stored = self._target.stored.get(region, BEFORE_EVERYTHING)
        return Position(stored.ledger, stored.entry + 1) if self._log.newest_of(region) > stored else None

    def _floor(self, region: str) -> Position | None:
        stored = self._target.stored.get(region, BEFORE_EVERYTHING)
        floor = Position(stored.ledger, stored.entry + 1)
        lowest = self._target.unacknowledged.lowest(region)
        if lowest is not None:
            floor = min(floor, lowest)
        return floor if self._log.newest_of(region) >= floor else None

    @property
    def is_done(self) -> bool:
        """Whether earlier entries cannot change the figures."""
        if self._read_from <= self._log.first_entry_id:
            return True
        return not self._floors and self._read_from <= self._acked.mark_delete + 1

    def add(self, entry: ScannedEntry, *, reaches_target: bool) -> None:
        """Compare one entry; within a chunk in any order."""
        if entry.messages:
            self._compare(entry, reaches_target)

    def chunk_read(self, first_entry_id: int, lowest: Mapping[str, Position]) -> None:
        """Note that all entries from `first_entry_id` on were added. `lowest`: origin region -> lowest position among
        all entries of the newest chunk, markers included."""
        self._read_from = first_entry_id
        own = Position(self._log.ledger_id, first_entry_id)
        for floors in (self._floors, self._lacking):
            for region, position in {**lowest, self._log.region: own}.items():
                if region in floors and position <= floors[region]:
                    del floors[region]

    def _compare(self, entry: ScannedEntry, reaches_target: bool) -> None:
        figures, origin = self._figures, entry.origin
        every = (1 << entry.messages) - 1
        here = self._acked.open_in(entry.entry_id, entry.messages)
        if origin is None:
            figures.exact = False
        elif origin.position > self._target.stored.get(origin.region, BEFORE_EVERYTHING):
            if reaches_target:
                figures.missing += entry.messages
                self._redeliver(entry, (every & ~here).bit_count(), is_certain=False)
            else:
                figures.not_addressed += here.bit_count()
        elif not reaches_target:
            figures.not_addressed += here.bit_count()
        else:
            there = self._open_there(origin, every)
            self._redeliver(entry, (there & ~here).bit_count())
            figures.skipped += (here & ~there).bit_count()

    def _open_there(self, origin: Origin, every: int) -> int:
        """Return the messages of an entry that the target has not acknowledged, one bit each."""
        if not self._not_met.discard(origin):
            return 0
        partial = self._target.partial.get(origin)
        return every if partial is None else partial.open & every

    def _redeliver(self, entry: ScannedEntry, messages: int, *, is_certain: bool = True) -> None:
        if messages:
            self._figures.redelivered += messages
            self._note_age(entry.publish_ms)
            self._figures.exact &= is_certain

    def _note_age(self, publish_ms: int | None) -> None:
        known = self._figures.oldest_publish_ms
        if publish_ms is not None:
            self._figures.oldest_publish_ms = publish_ms if known is None else min(known, publish_ms)

    def result(self) -> PlannedFigures:
        """Return the figures. Entries that the target has not acknowledged and that were not met here count as
        acknowledged here: they were trimmed, or are earlier than the entries that were read."""
        figures, target = self._figures, self._target
        if not self.is_done or (self._lacking and self._log.first_entry_id):
            figures.exact = figures.complete = False
        rest = self._possibly_acknowledged()
        if rest:
            figures.redelivered += target.messages_in(rest)
            self._note_age(target.oldest_publish_ms)
            figures.exact &= self._are_trimmed(rest)
            figures.complete &= target.complete
        if target.without_origin:
            figures.redelivered += target.without_origin
            figures.exact = False
            self._note_age(target.oldest_publish_ms)
        return figures

    def _possibly_acknowledged(self) -> OriginSet:
        """Return the entries that were not met and that reached this region, as far as it knows: the others are newer
        than all it has of their origin."""
        found = OriginSet()
        for ledger, ids in self._not_met.ids.items():
            newest = self._log.newest_of(ledger.region)
            last = newest.entry if ledger.ledger == newest.ledger else AFTER_EVERYTHING.entry
            if ledger.ledger <= newest.ledger:
                for first, end in ids.runs():
                    found.add_range(*ledger, first, min(end, last))
        return found

    def _are_trimmed(self, entries: OriginSet) -> bool:
        """Whether these entries were certainly in this log and are trimmed, so that the cursor has passed them."""
        if not self.is_done or not self._log.first_entry_id:
            return False
        return all(self._is_known(ledger) for ledger in entries.ids)

    def _is_known(self, ledger: OriginLedger) -> bool:
        return ledger.ledger == self._log.newest_of(ledger.region).ledger


def reasons_of(target: DeliveryState, figures: PlannedFigures) -> Iterator[Reason]:
    """Yield what the figures and the state of the target show of a plan, in the order of the table of reasons."""
    if target.last is None:
        yield Cause.TOPIC_MISSING_THERE(region=target.region)
    elif not target.exists:
        yield Cause.SUBSCRIPTION_MISSING_THERE(region=target.region)
    if figures.missing:
        yield Cause.MESSAGES_MISSING_THERE(count=figures.missing, region=target.region)
    if not figures.complete:
        yield Cause.PLAN_INCOMPLETE(entries=SCAN_ENTRIES_MAX)


def skip_reasons_of(target: DeliveryState, figures: PlannedFigures) -> Iterator[Reason]:
    """Yield why consumers in the target would not receive messages that are not acknowledged in the source."""
    if figures.skipped:
        yield Cause.MESSAGES_SKIPPED_THERE(count=figures.skipped, region=target.region)
    if figures.not_addressed:
        yield Cause.MESSAGES_NOT_ADDRESSED(count=figures.not_addressed, region=target.region)
