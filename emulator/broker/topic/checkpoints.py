"""The checkpoints of one topic: the keys that hold them, and the replay of the log after the last one.

The topic's state encodes their content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from emulator.config.compatibility import Compatibility
from emulator.config.region import RegionConfig
from emulator.core.cursor.id_set import PART_BITS
from emulator.core.topic.state import TopicState
from emulator.errors import CheckpointDamaged
from emulator.model.stored_keys import CheckpointKey, CheckpointPartKey, parse_key
from emulator.model.values import TopicName
from emulator.storage.contract import Log, Store
from emulator.wire.message_metadata import EntryInfo

logger = logging.getLogger(__name__)

REPLAY_ENTRIES = 1_000
REPLAY_BYTES = 4_194_304


class Checkpoints:
    """The checkpoints of one topic while it is loaded."""

    def __init__(self, store: Store, topic: str, ledger_id: int, state: TopicState) -> None:
        self._store = store
        self._topic = topic
        self._ledger_id = ledger_id
        self._state = state
        self.entries_since = 0
        """Number of entries stored since the last checkpoint, those replayed after it included."""
        self._pending: dict[asyncio.Future[int], None] = {}
        """Puts without an outcome."""
        self._first_kept_part = 0
        """Part number below which parts were deleted."""

    def restore(self, log_end: int | None = None) -> int:
        """Restore the stored checkpoint into the new state. Returns the id from which the log is to be replayed.
        CheckpointDamaged when it cannot be read; then the state must not be used."""
        key = CheckpointKey.text_of(self._topic)
        head = self._store.get(key)
        try:
            stored = head.value if head is not None else None
            return self._state.restore(stored, self._ledger_id, self._part, log_end=log_end)
        except CheckpointDamaged as damage:
            raise CheckpointDamaged(f"{key} or one of its parts is damaged ({damage})") from None

    def discard(self) -> asyncio.Future[None]:
        """Delete the checkpoint's head, so that the next load replays the whole log: parts without a head are
        ignored. The future completes when the deletion is durable."""
        key = CheckpointKey(self._topic).text
        self._store.get(key)
        return self._store.delete(key)

    def write(self) -> list[asyncio.Future[int]]:
        """Issue the writes of a checkpoint. Losing it only costs time after a restart, so few callers wait for it."""
        self.entries_since = 0
        visibility = self._state.visibility
        puts = [
            self._put(self._part_key(number), part, partial(visibility.outcome, number))
            for number, part in visibility.take_unwritten(self._state.readable_end).items()
        ]
        head = self._put(CheckpointKey(self._topic).text, self._state.head(self._ledger_id), None)
        return [*puts, head]

    async def write_durably(self) -> int:
        """Write a checkpoint and wait until it is durable. Returns the id below which a restart needs no entry.
        StorageError when it may not be durable."""
        end = self._state.readable_end  # a restart replays the log from here
        await asyncio.gather(*self.write())
        return end

    def forget_parts_below(self, entry_id: int) -> None:
        """Delete parts below a trimmed id, which no cursor can need. A deletion that fails is repeated later, or with
        the topic."""
        if entry_id >> PART_BITS <= self._first_kept_part:
            return
        self._first_kept_part = entry_id >> PART_BITS
        for text, _ in self._store.scan(CheckpointPartKey.prefix(self._topic)):
            key = parse_key(text)
            if isinstance(key, CheckpointPartKey) and self._is_below(key.part):
                self._store.get(text)
                self._store.delete(text).add_done_callback(lambda done: done.exception())

    def _is_below(self, part: str) -> bool:
        ledger, _, number = part.rpartition("-")
        return ledger == str(self._ledger_id) and int(number) < self._first_kept_part

    def remember_from(self, entry_id: int) -> None:
        """Load missing parts for a cursor that moves back to an id. CheckpointDamaged when one cannot be read."""
        visibility = self._state.visibility
        for number in visibility.missing_parts(entry_id):
            try:
                visibility.remember(number, self._part(number))
            except CheckpointDamaged as damage:
                raise CheckpointDamaged(f"{self._part_key(number)} is damaged ({damage})") from None

    def _part_key(self, number: int) -> str:
        return CheckpointPartKey(self._topic, f"{self._ledger_id}-{number}").text

    def _part(self, number: int) -> bytes | None:
        stored = self._store.get(self._part_key(number))
        return None if stored is None else stored.value

    def _put(self, key: str, value: bytes, report: Callable[[bool], None] | None) -> asyncio.Future[int]:
        # After a failed put the store rejects the key until it is read (S5). Failed puts need no handling here: any mix
        # of old and new parts is valid.
        self._store.get(key)

        def done(put: asyncio.Future[int]) -> None:
            self._pending.pop(put, None)
            failure = put.exception()
            if failure is not None:
                logger.warning("checkpoint of topic %s could not be written: %s", self._topic, failure)
            if report is not None:
                report(failure is None)

        put = self._store.put(key, value)
        self._pending[put] = None
        put.add_done_callback(done)
        return put

    async def settled(self) -> None:
        """After the topic was closed: wait until every pending put is durable or has failed. A row that becomes durable
        later would outlive the deletion of the topic."""
        if self._pending:
            await asyncio.wait(self._pending)


def check_is_whole(log: Log, name: TopicName, damage: CheckpointDamaged) -> None:
    """Raise CheckpointDamaged when entries of the log were trimmed: their effect is stored only in the checkpoint."""
    if log.first_entry_id > 0:
        raise CheckpointDamaged(
            f"{damage}, and the log of {name} begins at entry {log.first_entry_id}: earlier state cannot be rebuilt"
        ) from None


def drops_overlaps(config: RegionConfig) -> bool:
    """Whether batches that overlap the known sequence ids are dropped, as upstream does."""
    return Compatibility(config.compatibility).follows_upstream("overlapping_batches")


async def replay(
    config: RegionConfig,
    log: Log,
    state: TopicState,
    from_entry_id: int,
    scan: Callable[[bytes], EntryInfo],
) -> int:
    """Apply the log's entries from an id on to the state, and note where the log begins and ends. Return the number of
    these entries. `scan` returns an entry's metadata. StorageError."""
    state.begins_at(log.first_entry_id)
    state.deduplication.drops_overlaps = drops_overlaps(config)
    at, count = from_entry_id, 0
    while entries := await log.read(at, REPLAY_ENTRIES, REPLAY_BYTES):
        for entry in entries:
            state.fold(entry.entry_id, scan(entry.data))
        count += len(entries)
        at = entries[-1].entry_id + 1
    state.ends_at(log.next_entry_id)
    return count
