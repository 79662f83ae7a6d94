"""A store in memory, made of dictionaries and lists: the reference for the other backends.

Its `MemoryDisk` outlives it: a second store opened on the disk has the state of a region after a restart. The
writes issued in one tick of the loop are one group, which becomes durable or fails as a whole in the next tick.

Tests of its users delay durability with `hold` and `release`, inject failures with `fail_next_group` and `crash`, and
leave ids unused between appends with `id_gap`, as S3 allows.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emulator.errors import StorageError
from emulator.storage.contract import Entry, Log, Versioned
from emulator.storage.group import entries_within
from emulator.storage.lanes import KeyedStore, KeyLane, Lane, LogLane


@dataclass(slots=True)
class LogEntries:
    """One log on a MemoryDisk, changed only when a group becomes durable."""

    name: str
    ledger_id: int
    ids: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    """Entries, one for each of `ids`."""
    next_entry_id: int = 0
    """End of the log (exclusive); never decreases, even when all entries are trimmed (S3)."""
    size_bytes: int = 0

    @property
    def first_entry_id(self) -> int:
        return self.ids[0] if self.ids else self.next_entry_id

    def append(self, first: int, entries: Sequence[bytes]) -> None:
        self.ids.extend(range(first, first + len(entries)))
        self.entries.extend(entries)
        self.next_entry_id = first + len(entries)
        self.size_bytes += sum(map(len, entries))

    def trim(self, before_entry_id: int) -> list[Entry]:
        """Remove the entries below an id, and return them."""
        count = bisect_left(self.ids, before_entry_id)
        trimmed = list(map(Entry, self.ids[:count], self.entries[:count]))
        self.size_bytes -= sum(map(len, self.entries[:count]))
        del self.ids[:count], self.entries[:count]
        return trimmed

    def read(self, start: int, end: int, max_entries: int, max_bytes: int) -> list[Entry]:
        """Return entries with start <= id < end; the limits are those of `contract.Log.read`."""
        first, last = bisect_left(self.ids, start), bisect_left(self.ids, end)
        found = self.entries[first : min(last, first + max(max_entries, 0))]
        count = entries_within([len(data) for data in found], max_bytes)
        return list(map(Entry, self.ids[first : first + count], found))


@dataclass(slots=True)
class MemoryDisk:
    """The state that survives a crash."""

    logs: dict[str, LogEntries] = field(default_factory=dict)
    values: dict[str, Versioned] = field(default_factory=dict)
    next_ledger_id: int = 1
    owner: str | None = None
    """Region whose store is open (S6); None: no store is open."""


class _Write(NamedTuple):
    lane: Lane | None
    """Lane that fails together with the write (S5); None: no lane."""
    apply: Callable[[], Any]
    """Changes the disk; returns the result of the future."""
    future: asyncio.Future[Any]


class MemoryLog(LogLane):
    """Implements `contract.Log`."""

    def __init__(self, store: MemoryStore, stored: LogEntries) -> None:
        super().__init__()
        self._store = store
        self._stored = stored

    @property
    def name(self) -> str:
        return self._stored.name

    @property
    def ledger_id(self) -> int:
        return self._stored.ledger_id

    @property
    def first_entry_id(self) -> int:
        return self._stored.first_entry_id

    @property
    def next_entry_id(self) -> int:
        return self._stored.next_entry_id

    @property
    def size_bytes(self) -> int:
        return self._stored.size_bytes

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        assert entries, "an append has at least one entry"
        if self.refusal is not None:
            return self._store.failed_future(self.refusal)
        stored, copy = self._stored, list(entries)

        def apply() -> int:
            first = stored.next_entry_id + (self._store.id_gap if stored.next_entry_id else 0)
            stored.append(first, copy)
            return first

        return self._store.issue(self, apply)

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        if self.deleted is not None:
            raise self.deleted
        return self._stored.read(from_entry_id, self.next_entry_id, max_entries, max_bytes)

    async def trim(self, before_entry_id: int) -> None:
        before = min(before_entry_id, self.next_entry_id)
        await self._store.issue(None, lambda: self._stored.trim(before))


class MemoryStore(KeyedStore):
    """Implements `contract.Store`. Created by `MemoryStore.open`."""

    def __init__(self, disk: MemoryDisk, id_gap: int) -> None:
        super().__init__(disk.values, disk.logs)
        self.disk = disk
        self.id_gap = id_gap
        """Number of ids left unused between two appends."""
        self.commits = 0
        """Number of committed groups."""
        self._loop = asyncio.get_running_loop()
        self._logs: dict[str, MemoryLog] = {}
        self._group: list[_Write] = []
        self._held = False
        self._next_failure: StorageError | None = None
        self._closed: StorageError | None = None

    @classmethod
    async def open(
        cls, disk: MemoryDisk | None = None, region: str = "memory", *, id_gap: int = 0
    ) -> MemoryStore:
        disk = disk or MemoryDisk()
        if disk.owner is not None:
            raise StorageError(f"this memory is in use by region {disk.owner}; close it first", definite=True)
        disk.owner = region
        return cls(disk, id_gap)

    async def open_log(self, name: str, *, create: bool = True) -> MemoryLog | None:
        log = self._logs.get(name)
        if log is not None and log.refusal is None:
            return log
        opened: MemoryLog | None = await self._issue_opening(name, create, lambda log: log)
        return opened

    def create_log(
        self, name: str, wrap: Callable[[Log], Log] = lambda log: log
    ) -> asyncio.Future[Log] | None:
        return None if name in self._names or name in self._logs else self._issue_opening(name, True, wrap)

    def _issue_opening(self, name: str, create: bool, wrap: Callable[[Log], Log]) -> asyncio.Future[Any]:
        def apply() -> Log | None:
            log = self._logs.get(name)
            if log is not None and log.refusal is None:  # another caller opened it in the same group
                return wrap(log)
            if name not in self.disk.logs:
                if not create:
                    return None
                self.disk.logs[name] = LogEntries(name, self.disk.next_ledger_id)
                self.disk.next_ledger_id += 1
            log = self._logs[name] = MemoryLog(self, self.disk.logs[name])
            return wrap(log)

        return self.issue(None, apply)

    async def delete_log(self, name: str) -> None:
        error = StorageError(f"log {name!r} was deleted", definite=True)
        if (log := self._logs.get(name)) is not None:
            log.refusal = error

        def apply() -> None:
            self.disk.logs.pop(name, None)
            if (log := self._logs.pop(name, None)) is not None:
                log.refusal = log.deleted = error

        await self.issue(None, apply)

    def _write_key(self, lane: KeyLane, value: Versioned | None) -> asyncio.Future[Any]:
        return self.issue(lane, lambda: lane.stored(value))

    async def close(self) -> None:
        if self._closed is None:
            self._closed = StorageError("the store is closed", definite=True)
            self.release()
            self._commit()
            self.disk.owner = None

    # For tests of its users

    def hold(self) -> None:
        """Make no write durable until `release`."""
        self._held = True

    def release(self) -> None:
        """Make the held writes durable in the next tick, as one group."""
        self._held = False
        if self._group:
            self._loop.call_soon(self._commit)

    def fail_next_group(self, error: StorageError) -> None:
        """Fail the next group with `error`, which poisons its logs and keys (S5)."""
        self._next_failure = error

    def crash(self) -> MemoryDisk:
        """Simulate `kill -9`: writes that are not durable are lost, their futures never resolve. Return the disk."""
        self._group.clear()
        self._closed = StorageError("the store crashed", definite=True)
        self.disk.owner = None
        return self.disk

    # One group

    def issue(self, lane: Lane | None, apply: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._closed is not None:
            return self.failed_future(self._closed)
        if not self._group and not self._held:
            self._loop.call_soon(self._commit)
        future = self.new_future()
        self._group.append(_Write(lane, apply, future))
        return future

    def _commit(self) -> None:
        if self._held or not self._group:
            return
        group, self._group = self._group, []
        failure, self._next_failure = self._next_failure, None
        if failure is not None:
            self._fail(group, failure)
            return
        self.commits += 1
        outcomes = [write.apply() for write in group]
        for write, outcome in zip(group, outcomes, strict=True):
            if not write.future.done():  # the wait may have been cancelled
                write.future.set_result(outcome)

    def _fail(self, group: list[_Write], error: StorageError) -> None:
        for write in group:
            if write.lane is not None:
                write.lane.failed(error)
            if not write.future.done():
                write.future.set_exception(error)
