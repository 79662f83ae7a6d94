"""The entries of one topic: one record each, entry id = offset.

Fences, burials and other records with a key lie between entries, so ids have gaps. The key topic stores the ends and
the size of each log as `LogState`, so that the next owner need not read the whole log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import kafka.errors

from emulator.errors import StorageError
from emulator.storage.contract import Entry
from emulator.storage.kafka import names
from emulator.storage.kafka.cluster import KafkaCluster
from emulator.storage.kafka.connection import NoResponse
from emulator.storage.kafka.reader import PAGE_BYTES, Page, Pages, read_page
from emulator.storage.kafka.records import ProducedRecord
from emulator.storage.kafka.writer import KafkaAppend, KafkaWriter, TopicPartition
from emulator.storage.lanes import LogLane


@dataclass(slots=True)
class LogState:
    """The value of `log/<name>` in the key topic."""

    topic: str
    ledger_id: int
    first_entry_id: int = 0
    bytes_before_first: int = 0
    next_entry_id: int = 0
    bytes_before_next: int = 0
    known_up_to: int = 0
    """No entry has next_entry_id <= id < known_up_to; a new owner examines only the records from `known_up_to` on."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, text: bytes) -> LogState:
        return cls(**json.loads(text))

    def record(self, name: str) -> ProducedRecord:
        """Return the record of the log `name` in the key topic."""
        return ProducedRecord(names.log_key(name), self.encode())


async def find_end(cluster: KafkaCluster, state: LogState, fence: int) -> None:
    """Search backwards from the fence of a new owner for the last entries, and update `state`."""
    offset = fence - 1
    while offset >= state.known_up_to:
        batch = (await read_page(cluster, state.topic, offset, 1))[0]
        if batch.holds_entries:
            state.next_entry_id = batch.next_offset
            state.bytes_before_next = batch.bytes_before + sum(len(entry.data) for entry in batch.entries)
            break
        offset = batch.first_offset - 1  # the fence of an earlier owner that wrote nothing
    state.known_up_to = fence + 1


class KafkaLog(LogLane):
    """Implements `contract.Log`."""

    def __init__(
        self,
        name: str,
        state: LogState,
        partition: TopicPartition,
        writer: KafkaWriter,
        keys: TopicPartition,
        pages: Pages,
    ) -> None:
        """`keys`: the key topic."""
        super().__init__()
        self.name = name
        self.partition = partition
        self._state = state
        self._writer = writer
        self._keys = keys
        self._pages = pages
        self._trimming = asyncio.Lock()
        partition.bytes_before = state.bytes_before_next

    @property
    def ledger_id(self) -> int:
        return self._state.ledger_id

    @property
    def first_entry_id(self) -> int:
        return self._state.first_entry_id

    @property
    def next_entry_id(self) -> int:
        return self._state.next_entry_id

    @property
    def size_bytes(self) -> int:
        return self._state.bytes_before_next - self._state.bytes_before_first

    @property
    def topic(self) -> str:
        return self._state.topic

    def reopened(self) -> KafkaLog:
        """Return a new object after a failed append, with the same state: the append certainly was not stored."""
        return KafkaLog(self.name, self._state, self.partition, self._writer, self._keys, self._pages)

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        assert entries, "an append has at least one entry"
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
            return future
        return self._writer.issue(self.partition, KafkaAppend(self, future, tuple(entries)))

    def stored(self, first: int, count: int, size: int) -> None:
        """Update the state after a durable append."""
        state = self._state
        state.next_entry_id = state.known_up_to = first + count
        state.bytes_before_next += size

    # Reading

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        found: list[Entry] = []
        start, end = from_entry_id, self.next_entry_id
        while max_entries > 0:
            self._writer.refuse_if_closed()
            if self.deleted is not None:
                raise self.deleted
            start = max(start, self.first_entry_id)
            if start >= end:
                break
            page = await self._page(start, max_bytes)
            if page is None:  # trimmed during the read
                continue
            for entry in page.from_id(max(start, self.first_entry_id)):
                found.append(entry)
                max_bytes -= len(entry.data)
                if len(found) == max_entries or max_bytes <= 0:
                    return found
            start = page.next_offset
        return found

    async def _page(self, start: int, bytes_max: int) -> Page | None:
        """Return the page that contains `start`; None: it was trimmed or deleted."""
        page = self._pages.get(self.ledger_id, start)
        if page is not None:
            return page
        wanted = min(max(bytes_max, PAGE_BYTES // 16), PAGE_BYTES)
        try:
            batches = await read_page(self._writer.cluster, self.topic, start, wanted)
        except StorageError:
            if self.first_entry_id > start or self.deleted is not None:
                return None
            raise
        end = self.next_entry_id  # later batches are not acknowledged by Kafka yet
        entries = [entry for batch in batches for entry in batch.entries if entry.entry_id < end]
        page = Page(
            start, min(batches[-1].next_offset, end), [entry for entry in entries if entry.entry_id >= start]
        )
        self._pages.put(self.ledger_id, page)
        return page

    # Trimming

    async def trim(self, before_entry_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        async with self._trimming:
            before = min(before_entry_id, self.next_entry_id)
            if before <= self.first_entry_id:
                return
            bytes_before = await self._bytes_before(before)
            # The record is written first: Kafka rejects it from a fenced owner, but would accept the deletion.
            trimmed = replace(self._state, first_entry_id=before, bytes_before_first=bytes_before)
            await self._writer.issue_record(self._keys, trimmed.record(self.name))
            self._state.first_entry_id = before
            self._state.bytes_before_first = bytes_before
            # If this deletion fails, the next trim includes it.
            with contextlib.suppress(NoResponse, kafka.errors.KafkaError):
                await self._writer.cluster.delete_records(self.topic, before)

    async def _bytes_before(self, entry_id: int) -> int:
        """Return the bytes of all entries with a smaller id, trimmed ones included."""
        offset = entry_id
        while offset < self.next_entry_id:
            for batch in await read_page(self._writer.cluster, self.topic, offset, 1):
                if batch.holds_entries:
                    return batch.bytes_before + sum(
                        len(e.data) for e in batch.entries if e.entry_id < entry_id
                    )
                offset = batch.next_offset
        return self._state.bytes_before_next
