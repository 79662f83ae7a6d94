"""State derived from one topic's log: admission, folding, checkpoints (docs/components/topic-state.md, TS1 to TS3).

    claimed ──check──▶ admitted ──append──▶ durable ──fold──▶ stored_end ─▶ readable_end, replicable_end
                       `admit`                       `fold`

`admit` compares a new entry with all admitted ones, durable or not. Admission is never undone: when an append fails,
the whole state is discarded and folded again from the stored log. `fold` is the same code for new entries and for the
replay after a start. Folding an entry twice changes nothing, so a replay may begin too early, but never too late.

A checkpoint has a head and parts. S1 promises no order across keys, so a reader may find any mix of old and new ones.
Each part records the id below which it is complete; the head records the end of the log when each part last changed.
Replay begins at the lowest position that all parts cover (TS3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from emulator.core.admission import Peer, Publisher
from emulator.core.cursor.cursor import Cursor
from emulator.core.cursor.id_set import PART_BITS, IdSet
from emulator.core.replication.subscription_updates import Applied, apply_update, never_reaches
from emulator.core.topic.deduplication import (
    ChunkTracker,
    ProducerDeduplication,
    PublishVerdict,
    SourceWatermarks,
    last_sequence_id,
)
from emulator.core.topic.entry_facts import EntryFacts, chunk_of, is_inner_chunk
from emulator.core.topic.entry_origins import EntryOrigins, OriginRange
from emulator.core.topic.visibility import Visibility
from emulator.core.transactions.buffer import TransactionBuffer
from emulator.errors import CheckpointDamaged
from emulator.model.markers import TXN_ABORT, TXN_COMMIT
from emulator.model.transaction_names import TxnId
from emulator.model.values import Position

FORMAT_VERSION = 2
"""Format of the head. An unknown format is not an error: everything is folded again from the log."""


class LastData(NamedTuple):
    """The newest entry that a consumer may see."""

    entry_id: int
    messages: int
    """Number of messages of a batch; -1: a single message; `UNKNOWN_MESSAGES`: the entry must be read."""


UNKNOWN_MESSAGES: Final = 0
"""`LastData.messages` of an entry that became readable only at the end of a transaction."""


_new_tuple: Final = tuple.__new__
"""Creates a NamedTuple in half the time of its constructor, from values in the order of the fields."""
_ACCEPT: Final = PublishVerdict.ACCEPT


class TopicState:
    """The state derived from the log of one topic, which owns it."""

    def __init__(
        self,
        region: str,
        *,
        deduplicates: bool,
        deduplication: type[ProducerDeduplication] = ProducerDeduplication,
        watermarks: type[SourceWatermarks] = SourceWatermarks,
    ) -> None:
        self.region = region
        self.deduplicates = deduplicates
        """Whether the sequence ids of client producers are checked."""
        self._deduplication_type, self._watermarks_type = deduplication, watermarks
        self.deduplication = deduplication()
        self._chunk_tracker: ChunkTracker | None = None
        self.admitted_watermarks = watermarks()
        """Newest admitted position of each source region, durable or not, with which new entries are compared."""
        self.watermarks = watermarks()
        """Newest durable position of each source region, for checkpoints."""
        self.visibility = Visibility()
        self.buffer = TransactionBuffer()
        self.last_data: LastData | None = None
        self.last_of: dict[str, int] = {}
        """Other region -> id of the newest message that was replicated from it."""
        self._origins: EntryOrigins | None = None
        self.stored_end = 0
        """Exclusive end of the durable and folded entries. Only grows."""

    @property
    def chunk_tracker(self) -> ChunkTracker:
        """The chunks of incomplete messages. Created at the first use: most topics have no chunks."""
        if self._chunk_tracker is None:
            self._chunk_tracker = ChunkTracker()
        return self._chunk_tracker

    @property
    def origins(self) -> EntryOrigins:
        """Origins of entries of regions that updates did not name; not stored. Created at the first use."""
        if self._origins is None:
            self._origins = EntryOrigins()
        return self._origins

    @property
    def readable_end(self) -> int:
        """Exclusive end of the entries that may be dispatched: `stored_end`, or the first message of an open
        transaction (INV-63)."""
        open_from = self.buffer.open_from
        return self.stored_end if open_from is None else open_from

    @property
    def replicable_end(self) -> int:
        """Exclusive end of the entries that may be replicated: the same as `readable_end`."""
        open_from = self.buffer.open_from
        return self.stored_end if open_from is None else open_from

    # Admitting.

    def lacks(self, region: str, position: tuple[int, int]) -> bool:
        """Whether the entry at this (ledger, entry) of another region's log, which was sent here, was never
        admitted."""
        return self.admitted_watermarks.lacks(region, position)

    def highest_received(self, region: str) -> Position:
        """Return the highest position of another region's log that was admitted here; BEFORE_EVERYTHING: none was."""
        return self.admitted_watermarks.highest(region)

    def admit(self, publisher: Publisher, facts: EntryFacts) -> bool:
        """Admit an entry that passed `core.admission.check`. Returns False when it was admitted before: the caller does
        not store it, and acknowledges it after all earlier appends."""
        if isinstance(publisher, Peer):
            assert facts.source_position is not None, "`check` requires it"
            return self.admitted_watermarks.advance(publisher.region, facts.source_position)
        if not self.deduplicates:
            return facts.num_chunks <= 1 or self._admit_chunk(facts)
        sequence_id = facts.sequence_id
        if facts.num_messages == 1 and facts.num_chunks <= 1 and facts.highest_sequence_id <= sequence_id:
            return self.deduplication.admit(facts.producer_name, sequence_id, sequence_id) is _ACCEPT
        last = last_sequence_id(sequence_id, facts.highest_sequence_id, facts.num_messages)
        verdict = self.deduplication.admit(
            facts.producer_name, sequence_id, last, is_chunk_not_last=is_inner_chunk(facts)
        )
        return verdict is _ACCEPT and (facts.num_chunks <= 1 or self._admit_chunk(facts))

    def highest_admitted(self, producer_name: str) -> int:
        """Return the sequence id above which no message of a client's producer is a duplicate."""
        return self.deduplication.highest_admitted(producer_name) if self.deduplicates else -1

    def admit_group(self, producer_name: str, last_sequence_id: int) -> None:
        """Admit plain messages of a client's producer. Their sequence ids ascend to this one and are all above
        `highest_admitted`; so the last one alone is recorded."""
        if self.deduplicates:
            verdict = self.deduplication.admit(producer_name, last_sequence_id, last_sequence_id)
            assert verdict is _ACCEPT

    def admit_replicas(self, source_region: str, last: Position) -> None:
        """Admit plain messages of another region. Their positions ascend to this one and are all above the highest
        admitted one; so the last one alone is recorded."""
        advanced = self.admitted_watermarks.advance(source_region, last)
        assert advanced

    def _admit_chunk(self, facts: EntryFacts) -> bool:
        """Admit a chunk; False: it was admitted before. Applies whether or not the topic deduplicates (INV-92)."""
        chunk = chunk_of(facts)
        return chunk is None or self.chunk_tracker.admit(facts.producer_name, chunk)

    # Folding.

    def fold(self, entry_id: int, facts: EntryFacts) -> None:
        """Fold a durable entry into the state. Skipped ids are hidden, because they never have an entry: an external
        log uses some ids for its own records."""
        if entry_id >= self.stored_end:
            if entry_id > self.stored_end:
                self.visibility.hide_range(self.stored_end, entry_id - 1)
            self.stored_end = entry_id + 1
        source, position = facts.replicated_from, facts.source_position
        if source is not None and position is not None:
            self.watermarks.advance(source, position)
            self.admitted_watermarks.advance(source, position)
        if facts.marker_type is not None:
            self.visibility.hide(entry_id)
            if facts.txn is not None and source is None:
                self._fold_end(entry_id, facts.marker_type, facts.txn)
            return
        if facts.replicate_to:
            self.visibility.restrict(entry_id, (source or self.region, facts.replicate_to))
        if source is not None and entry_id > self.last_of.get(source, -1):
            self.last_of[source] = entry_id
        if facts.txn is not None or self.buffer.open_from is not None:
            self._fold_unreadable(entry_id, facts)
        else:
            self.last_data = _new_tuple(LastData, (entry_id, facts.num_messages if facts.is_batch else -1))
        if source is not None:
            return
        if self.deduplicates and (facts.num_chunks <= 1 or not is_inner_chunk(facts)):
            last = facts.sequence_id
            if facts.num_messages != 1 or facts.highest_sequence_id > last:
                last = last_sequence_id(last, facts.highest_sequence_id, facts.num_messages)
            self.deduplication.persisted(facts.producer_name, last)
        if facts.num_chunks > 1:
            chunk = chunk_of(facts)
            if chunk is not None:
                self.chunk_tracker.stored(facts.producer_name, chunk)

    def fold_group(
        self, first_entry_id: int, last_entry_id: int, producer_name: str, last_sequence_id: int
    ) -> None:
        """Fold durable plain messages of a client's producer, as `fold` does one by one. Unlike there, their ids were
        never folded before."""
        self._fold_plain(first_entry_id, last_entry_id)
        if self.deduplicates:
            self.deduplication.persisted(producer_name, last_sequence_id)

    def fold_replicas(
        self, first_entry_id: int, last_entry_id: int, source_region: str, last: Position
    ) -> None:
        """Fold durable plain messages of another region, of which the last one has the source position `last`."""
        self._fold_plain(first_entry_id, last_entry_id)
        self.watermarks.advance(source_region, last)
        self.admitted_watermarks.advance(source_region, last)
        self.last_of[source_region] = last_entry_id

    def _fold_plain(self, first_entry_id: int, last_entry_id: int) -> None:
        if first_entry_id > self.stored_end:
            self.visibility.hide_range(self.stored_end, first_entry_id - 1)
        self.stored_end = last_entry_id + 1
        if self.buffer.open_from is None:
            self.last_data = LastData(last_entry_id, -1)

    def _fold_unreadable(self, entry_id: int, facts: EntryFacts) -> None:
        """Fold an entry of a transaction, or one after the first message of an open transaction. A replicated entry
        belongs to no transaction here."""
        if facts.txn is None or facts.replicated_from is not None:
            if self.buffer.open_from is None:
                self.last_data = LastData(entry_id, facts.num_messages if facts.is_batch else -1)
            return
        self.buffer.stored(
            facts.txn,
            entry_id,
            at_ms=facts.publish_time_ms,
            producer_name=facts.producer_name,
            messages=facts.num_messages,
        )

    def _fold_end(self, entry_id: int, marker_type: int, txn: TxnId) -> None:
        """Fold a marker that ends a transaction: entries that the transaction held back become readable, or hidden."""
        if marker_type not in (TXN_COMMIT, TXN_ABORT):
            return
        before = self.readable_end
        ended = self.buffer.ended(txn, entry_id, committed=marker_type == TXN_COMMIT)
        if ended is None:
            return
        if marker_type == TXN_ABORT:
            for first, last in ended.runs:
                self.visibility.hide_aborted(first, last, entry_id)
        if self.readable_end > before:
            self.visibility.mark_unwritten_from(before)
            newest = self.visibility.hidden.last_absent(before, self.readable_end - 1)
            if newest >= 0:
                self.last_data = LastData(newest, UNKNOWN_MESSAGES)

    def ends_at(self, next_entry_id: int) -> None:
        """Note the end of the log after a replay; the last ids before it may have no entry."""
        if next_entry_id > self.stored_end:
            self.visibility.hide_range(self.stored_end, next_entry_id - 1)
            self.stored_end = next_entry_id

    def begins_at(self, first_entry_id: int) -> None:
        """Note that all entries below this id were trimmed."""
        self.stored_end = max(self.stored_end, first_entry_id)

    def forget_producers(self) -> None:
        """Forget all sequence ids and check none until `deduplicates` is set: deduplication is turned on or off."""
        drops_overlaps = self.deduplication.drops_overlaps
        self.deduplicates = False
        self.deduplication = self._deduplication_type()
        self.deduplication.drops_overlaps = drops_overlaps

    # Queries.

    def last_sequence_id(self, producer_name: str) -> int:
        """Return the highest durable sequence id of a producer, after which its client continues; -1: unknown."""
        return self.deduplication.last_sequence_id(producer_name) if self.deduplicates else -1

    def unseen_by(
        self, region: str, upto: int, *, first: int = 0, never: Callable[..., bool] = never_reaches
    ) -> Iterator[int]:
        """Yield the ids in first..upto, both included, of messages that never reach `region`, because their producers
        named other regions."""
        restricted = self.visibility.restricted
        audiences = [one for one in restricted if never(region, origin=one[0], replicate_to=one[1])]
        return self.visibility.restricted_to(audiences, first, min(upto, self.stored_end - 1))

    # Following other regions (PIP-33).

    def follow(
        self,
        cursor: Cursor,
        source: str,
        own_entry_id: int,
        *,
        named: Collection[str] = (),
        never: Callable[..., bool] = never_reaches,
        apply: Callable[[Cursor, int, int, Iterable[int]], Applied] = apply_update,
        passes_markers: bool = True,
    ) -> Applied:
        """Apply an update of region `source` to a subscription's cursor: acknowledge the entries up to `own_entry_id`
        that reached the sender (INV-5), and with `passes_markers` the markers that directly follow. `named`: regions
        whose positions the update contains."""
        first = cursor.mark_delete + 1
        unseen = self.possibly_unseen(first, own_entry_id, {source, *named})
        unseen.update(self.unseen_by(source, own_entry_id, first=first, never=never))
        applied = apply(cursor, own_entry_id, self.readable_end - 1, unseen)
        if applied is Applied.MOVED and passes_markers:
            cursor.ack_hidden(self.visibility.hidden)
        return applied

    def possibly_unseen(self, first: int, own_entry_id: int, named: Collection[str]) -> IdSet:
        """Return the ids of first..own_entry_id of messages that originate, or may originate, in a region that the
        update does not name. That region did not take part in the snapshot, so its messages may not have reached the
        sender of the update (INV-5)."""
        found = IdSet()
        for region, last in self._unnamed(own_entry_id, named):
            self.origins.add_possibly_of(found, region, first, last)
        found.subtract(self.visibility.hidden)
        return found

    def unread_origins(self, first: int, own_entry_id: int, named: Collection[str]) -> list[OriginRange]:
        """Return the ranges whose origins must be read from the log, so that `possibly_unseen` yields only messages of
        regions that the update does not name."""
        ranges = [
            self.origins.unread(region, first, last) for region, last in self._unnamed(own_entry_id, named)
        ]
        return [one for one in ranges if one is not None]

    def _unnamed(self, own_entry_id: int, named: Collection[str]) -> Iterator[tuple[str, int]]:
        """Yield each region that an update does not name, with the id of its newest message up to the update's
        position."""
        for region, last in self.last_of.items():
            if region not in named:
                yield region, min(last, own_entry_id)

    # Checkpoints.

    def head(self, ledger_id: int) -> bytes:
        """Return the head of a checkpoint. It contains durable state only, so it may be written at any time. It covers
        only readable entries: later ones may still become hidden (INV-62)."""
        state = {
            "format": FORMAT_VERSION,
            "ledger_id": ledger_id,
            "next_entry_id": self.readable_end,
            "deduplicates": self.deduplicates,
            "deduplication": self.deduplication.to_json(),
            "unfinished": {} if self._chunk_tracker is None else self._chunk_tracker.to_json(),
            "watermarks": self.watermarks.to_json(),
            "last_data": self.last_data,
            "last_of": self.last_of,
            "known_from": self.visibility.known_from,
            "last_aborted": self.visibility.last_aborted,
            "parts": self.visibility.changed,
        }
        return json.dumps(state).encode()

    def restore(
        self,
        head: bytes | None,
        ledger_id: int,
        part: Callable[[int], bytes | None],
        *,
        log_end: int | None = None,
    ) -> int:
        """Restore a checkpoint, before any entry was folded. Returns the id from which the log must be folded.

        `part` returns the stored bytes of a part, None when there are none. `log_end`: exclusive end of the log. Raises
        CheckpointDamaged when the head or a part cannot be decoded, or covers entries that the log does not have; this
        object must then be discarded."""
        try:
            return self._restore(head, ledger_id, part, log_end)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise CheckpointDamaged(
                f"the checkpoint's head cannot be read: {type(problem).__name__}: {problem}"
            ) from None

    def _restore(
        self, head: bytes | None, ledger_id: int, part: Callable[[int], bytes | None], log_end: int | None
    ) -> int:
        state: dict[str, Any] = json.loads(head) if head is not None else {}
        if state.get("format") != FORMAT_VERSION or state["ledger_id"] != ledger_id:
            return 0
        if self.deduplicates and state.get("deduplicates", True):
            self.deduplication = self._deduplication_type.from_json(state["deduplication"])
        # Older checkpoints lack this field: a chunk may then be stored twice.
        self._chunk_tracker = ChunkTracker.from_json(state.get("unfinished", {}))
        self.watermarks = self._watermarks_type.from_json(state["watermarks"])
        self.admitted_watermarks = self._watermarks_type.from_json(state["watermarks"])
        self.last_data = LastData(*map(int, state["last_data"])) if state["last_data"] else None
        self.visibility.known_from = int(state["known_from"])
        self.visibility.last_aborted = int(state.get("last_aborted", -1))
        replay_from = end = int(state["next_entry_id"])
        # Older checkpoints lack this field: then the newest entry may be the last message of any region.
        last_of = state.get("last_of", dict.fromkeys(state["watermarks"], end - 1))
        self.last_of = {region: int(last) for region, last in last_of.items()}
        if log_end is not None and end > log_end:
            raise ValueError(f"it covers entries below {end}, but the log ends at {log_end}")
        for text, changed in state["parts"].items():
            number = int(text)
            stored = part(number)
            true_below = number << PART_BITS if stored is None else self.visibility.load_part(number, stored)
            if true_below < changed:
                replay_from = min(replay_from, true_below)
            else:
                self.visibility.restored(number, changed)
        self.stored_end = replay_from
        return replay_from
