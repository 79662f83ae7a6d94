"""Compacts one topic, on request or when its log has grown, in a crash-safe order of writes.

log of the next generation ──▶ all its entries ──▶ the row that names it ──▶ readers ──▶ the former log is deleted
                      each step durable before the next begins (docs/components/compaction.md)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from emulator.broker.compaction.compacted_log import (
    CompactedReading,
    CompactedRow,
    CompactedView,
    encode_record,
    log_name,
    log_names_near,
    read_row,
)
from emulator.broker.topic.stored_entry import StoredEntry
from emulator.broker.topic.view import TopicView
from emulator.core.topic.compaction import LatestOfKeys, TooManyKeys
from emulator.core.topic.retention import LogHold
from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.model.stored_keys import CompactionKey
from emulator.storage.contract import Log
from emulator.wire.payloads import last_index, read_keys, with_messages

logger = logging.getLogger(__name__)

READ_ENTRIES: Final = 500
READ_BYTES: Final = 4_194_304


class CompactionStatus(Enum):
    """Status of the last compaction since the topic was loaded, with Pulsar's names."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class _Unloaded(Exception):
    """The topic was unloaded during a compaction."""


class _Written(NamedTuple):
    """Figures of a compacted log whose entries are durable."""

    entries: int
    size_bytes: int
    last: StoredEntry | None
    read: int
    """Number of entries that were read."""


class Compaction:
    """Compacts one topic, which owns this object."""

    def __init__(self, topic: TopicView) -> None:
        self._topic = topic
        self._store = topic.region.store
        self.reading = CompactedReading(topic.reading)
        """Source of messages for consumers that read the compacted topic."""
        self.status = CompactionStatus.NOT_RUN
        self.last_error = ""
        self.threshold_bytes = 0
        """Growth of the log, in bytes, after which it is compacted again; 0: only on request. Growth counts from the
        start of the last compaction."""
        self._grown_from = 0
        """Id of the first entry that counts as growth."""
        self._grown_bytes = 0
        """Growth; known only while there is a threshold."""
        self._serves = False
        self._generation = 0
        """Generation of the stored row; 0: there is none."""
        self._running: asyncio.Future[None] | None = None
        self._deleting: dict[asyncio.Future[None], None] = {}

    # Loading.

    async def load(self) -> None:
        """Read the stored row and open the log that it names. StorageDamaged when the row cannot be read;
        StorageError."""
        topic, log = self._topic, None
        row = read_row(self._store, topic.full_name)
        if row is not None:
            log = await self._store.open_log(log_name(topic.name, row.generation), create=False)
        self._generation = 0 if row is None else row.generation
        if row is not None and row.ledger_id == topic.ledger_id:
            if log is not None:
                self.reading.view = CompactedView(log, row)
            else:  # the topic was being deleted
                logger.error("%s: its compacted log is missing; the topic's own log is read", topic.full_name)
        self._grown_from = self.reading.horizon

    @property
    def view(self) -> CompactedView | None:
        return self.reading.view

    # Interface for the topic.

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def needed_from(self) -> int | None:
        """Id of the first entry that trimming must keep, because no durable compacted log includes it (INV-32). None:
        the topic has no compacted log, no threshold and no running compaction."""
        if self.is_running or self.threshold_bytes > 0 or self.view is not None:
            return self.reading.horizon
        return None

    def holds(self) -> list[LogHold]:
        """Return `needed_from` as a hold for the trimmer."""
        return [] if self.needed_from is None else [LogHold(self.needed_from, "compaction")]

    def begin(self) -> None:
        """Start a compaction in the background. ProtocolError when one is running."""
        if self.is_running:
            raise ProtocolError(
                ServerError.ConsumerBusy, f"Compaction already in progress: {self._topic.full_name}"
            )
        self._running = asyncio.get_running_loop().create_future()
        self.status = CompactionStatus.RUNNING
        self._grown_from, self._grown_bytes = self._topic.state.readable_end, 0
        self._topic.region.spawn(self._run(self._running))

    def set_threshold(self, threshold_bytes: int) -> None:
        """Set `threshold_bytes`, and start a compaction if the log has grown by more since the last one."""
        if not self.threshold_bytes:
            self._grown_bytes = self._estimate_growth()
        self.threshold_bytes = threshold_bytes
        self._begin_if_grown()

    def _estimate_growth(self) -> int:
        """Return the estimated growth, from the average size of the stored entries: without a threshold it is not
        counted."""
        log = self._topic.log
        first, end = log.first_entry_id, log.next_entry_id
        grown = self._topic.state.stored_end - max(first, self._grown_from)
        return log.size_bytes * max(0, grown) // (end - first) if end > first else 0

    def bytes_stored(self, size_bytes: int) -> None:
        """Count the size of stored entries, and start a compaction above the threshold. Called only while there is
        one."""
        self._grown_bytes += size_bytes
        self._begin_if_grown()

    def _begin_if_grown(self) -> None:
        has_grown = 0 < self.threshold_bytes < self._grown_bytes
        if has_grown and self._serves and not self.is_running and not self._topic.closed:
            self.begin()

    # One compaction.

    async def _run(self, running: asyncio.Future[None]) -> None:
        status, error = CompactionStatus.ERROR, "the topic was unloaded"
        try:
            await self._compact()
            status, error = CompactionStatus.SUCCESS, ""
        except _Unloaded:
            pass
        except (TooManyKeys, ProtocolError, StorageError) as failure:
            error = str(failure)
            logger.warning("%s was not compacted: %s", self._topic.full_name, failure)
        finally:
            self.status, self.last_error = status, error
            self._running = None
            running.set_result(None)
        self._begin_if_grown()

    async def _compact(self) -> None:
        topic, end = self._topic, self._topic.state.readable_end
        if end == self.reading.horizon:
            return
        former = self.view
        generation = self._generation + 1
        if self._deleting:
            await asyncio.wait(self._deleting)
        await self._delete_leftovers()
        latest: LatestOfKeys = topic.region.environment.components.lifetime.latest_of_keys()
        async for entry in self._read_entries(end):
            latest.note(entry.entry_id, read_keys(entry.data))
        log = await self._store.open_log(log_name(topic.name, generation))
        assert log is not None, "open_log creates a missing log"
        written = await self._write_log(log, latest, end)
        row = self._new_row(generation, end, written)
        await self._put_row(row)
        self._activate(CompactedView(log, row))
        if former is not None:
            former.retire(lambda: self._delete_soon(former.log.name))

    async def _read_entries(self, end: int) -> AsyncIterator[StoredEntry]:
        """Yield the entries to compact: those of the last compacted log, then later ones. In log order, without markers
        and messages of aborted transactions. Raise _Unloaded once the topic is closed."""
        at = self.reading.first_entry_id
        while at < end:
            found = await self.reading.read(at, READ_ENTRIES, READ_BYTES)
            if self._topic.closed:
                raise _Unloaded
            for entry in found:
                if entry.entry_id < end and not entry.hidden:
                    yield entry
            if not found:
                return
            at = found[-1].entry_id + 1
            await asyncio.sleep(0)  # reads from memory do not wait, so let other tasks run

    async def _write_log(self, log: Log, latest: LatestOfKeys, end: int) -> _Written:
        read = entries = size_bytes = 0
        last: StoredEntry | None = None
        batch: list[bytes] = []
        batch_bytes = 0
        async for entry in self._read_entries(end):
            read += 1
            kept_messages = latest.staying(entry.entry_id, read_keys(entry.data))
            if kept_messages is not None and not kept_messages:
                continue
            data = entry.data if kept_messages is None else with_messages(entry.data, kept_messages)
            last = StoredEntry.read(entry.entry_id, data)
            batch.append(encode_record(entry.entry_id, data))
            batch_bytes += len(data)
            entries, size_bytes = entries + 1, size_bytes + len(data)
            if len(batch) == READ_ENTRIES or batch_bytes >= READ_BYTES:
                await self._append(log, batch)
                batch, batch_bytes = [], 0
        if batch:
            await self._append(log, batch)
        return _Written(entries, size_bytes, last, read)

    async def _append(self, log: Log, batch: Sequence[bytes]) -> None:
        await log.append(batch)
        if self._topic.closed:
            raise _Unloaded

    def _new_row(self, generation: int, end: int, written: _Written) -> CompactedRow:
        last = written.last
        return CompactedRow(
            generation=generation,
            ledger_id=self._topic.ledger_id,
            horizon=end,
            last_entry_id=-1 if last is None else last.entry_id,
            last_index=-1 if last is None else last_index(last.data),
            entries=written.entries,
            size_bytes=written.size_bytes,
            at_ms=self._topic.region.environment.wall_clock_ms(),
            removed=written.read - written.entries,
        )

    async def _put_row(self, row: CompactedRow) -> None:
        """Write the row, which makes the new log current. If that fails, the topic is loaded again: the row may be
        stored nevertheless."""
        key = CompactionKey(self._topic.full_name).text
        if self._topic.closed:
            raise _Unloaded
        try:
            await self._store.put(key, row.encode())
        except StorageError as failure:
            self._topic.failed(failure)
            raise
        if self._topic.closed:
            raise _Unloaded

    def _activate(self, view: CompactedView) -> None:
        self.reading.view, row = view, view.row
        self._generation = row.generation
        logger.info(
            "%s is compacted below %d: %d entries are kept, %d are removed",
            self._topic.full_name,
            row.horizon,
            row.entries,
            row.removed,
        )

    # Deletion of unused logs.

    def _delete_soon(self, name: str) -> None:
        self._in_background(self._store.delete_log(name))

    def serve(self) -> None:
        """Delete logs that interrupted compactions left, and start a compaction if the log has grown enough. Called
        when the topic accepts clients."""
        self._serves = True
        if not self._topic.is_new and self._leftovers():
            self._in_background(self._delete_leftovers())
        self._begin_if_grown()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a deletion in the background. If it fails, the next compaction or load of the topic repeats it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deleting[done] = None

        async def run() -> None:
            try:
                await work
            except StorageError as failure:
                logger.warning(
                    "%s: old compacted logs could not be deleted yet: %s", self._topic.full_name, failure
                )
            finally:
                self._deleting.pop(done, None)
                done.set_result(None)

        self._topic.region.spawn(run())

    def _leftovers(self) -> list[str]:
        current = None if self.view is None else self.view.log.name
        return [
            name
            for name in log_names_near(self._store, self._topic.name, self._generation)
            if name != current
        ]

    async def _delete_leftovers(self) -> None:
        """Delete logs that the row does not name. The row is written again first: a failed write of another row may
        have taken effect, and would name a deleted log at the next start."""
        leftovers = self._leftovers()
        if not leftovers:
            return
        key = CompactionKey(self._topic.full_name).text
        stored = self._store.get(key)
        if stored is None:
            await self._store.delete(key)
        else:
            await self._store.put(key, stored.value)
        for name in leftovers:
            await self._store.delete_log(name)

    async def settled(self) -> None:
        """After the topic was closed: wait until no step of a compaction is under way."""
        if self._running is not None:
            await self._running
        if self._deleting:
            await asyncio.wait(self._deleting)
