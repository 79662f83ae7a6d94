"""A disk that keeps what the storage contract promises, and not one thing more.

    issued ──▶ waiting ──▶ being committed (takes time) ──▶ durable ──▶ the future resolves
                   └─────── the unsynced tail ───────┘

What outlives a store is its disk: `disk.crash()` (also what killing the host does), then `disk.open_store()` is what
a restarted region sees. In a crash each log and each key keeps a prefix, drawn from the seed, of what was on its way:
nothing is promised across logs or keys (S1), so the tail of one may survive and an older write of another may not.
Where a prefix ends within an append, the append is torn: half of it is on the disk, and opening the store cuts it off
(S8). Ids may jump between appends (S3).

`DiskFaults` says how often commits are slow or fail. A commit that fails takes some of its logs and keys with it, each
at some write drawn from the seed; of that write nobody knows whether it is there (`definite=False`), of those behind
it that they are not (S5). `fill` and `make_room` take the room away and give it back.

Faults of a remote log that has other owners (fencing, an answer lost after the append) will be further fields of
DiskFaults.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from emulator.errors import StorageError, StorageFull
from emulator.storage.contract import Entry, Versioned
from emulator.storage.group import entries_within
from emulator.storage.lanes import KeyLane, Keys, behind

Span = tuple[float, float]
"""Least and most; between them all are equally likely."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """How a disk misbehaves. As it stands: quick, with room for everything, and only a crash hurts."""

    commit_seconds: Span = (0.0002, 0.002)
    stall_probability: float = 0.0
    """How often a commit takes `stall_seconds` instead."""
    stall_seconds: Span = (0.05, 0.5)
    read_seconds: Span = (0.0, 0.0)
    failure_probability: float = 0.0
    """How often a commit fails."""
    id_jump_probability: float = 0.0
    """How often ids are left unused before an append, as by a backend that keeps records of its own."""
    id_jump_max: int = 3
    capacity_bytes: int | None = None
    """Entries and values together. None: no limit."""
    trusts_torn_tail: bool = False
    """Takes a safeguard away: opening the store serves what a crash left of a torn append."""


@dataclass(slots=True)
class DurableLog:
    """One log as it lies on the disk."""

    name: str
    ledger_id: int
    ids: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    """As long as `ids`."""
    next_entry_id: int = 0
    """Never falls (S3)."""
    size_bytes: int = 0
    torn: list[bytes] = field(default_factory=list)
    """What a crash left of the append that came next; its last entry may be shorter than it was."""

    def store(self, first: int, entries: Sequence[bytes]) -> None:
        self.ids.extend(range(first, first + len(entries)))
        self.entries.extend(entries)
        self.next_entry_id = first + len(entries)
        self.size_bytes += sum(map(len, entries))

    def trim(self, before_entry_id: int) -> None:
        count = bisect_left(self.ids, before_entry_id)
        self.size_bytes -= sum(map(len, self.entries[:count]))
        del self.ids[:count], self.entries[:count]

    def recover(self, *, trusts_torn_tail: bool) -> None:
        """Cut off what is torn. Its ids stay unused."""
        torn, self.torn = self.torn, []
        if torn and trusts_torn_tail:
            self.store(self.next_entry_id, torn)
        else:
            self.next_entry_id += len(torn)


class _Lane(Protocol):
    """What fails together, in order: a log or a key."""

    broken: StorageError | None


class _Write(NamedTuple):
    """One thing on its way to the disk."""

    lane: _Lane
    size_bytes: int
    store: Callable[[], Any]
    """Changes the disk; gives what the future gives."""
    tear: Callable[[], None] | None
    """Puts a part of it on the disk. None: it cannot be torn."""
    done: Callable[[StorageError | None], None]
    """The owner is told: durable, or why not."""
    future: asyncio.Future[Any]


class SimulatedDisk:
    """What survives. Belongs to one region; has one open store at a time (S6)."""

    def __init__(self, random: Random, faults: DiskFaults | None = None) -> None:
        self.faults = faults or DiskFaults()
        """May be replaced at any time."""
        self.random = random
        self.logs: dict[str, DurableLog] = {}
        self.values: dict[str, Versioned] = {}
        self.next_ledger_id = 1
        self.commits = 0
        """Durability points so far."""
        self.is_full = False
        self.store: SimulatedStore | None = None
        """The open one."""
        self.on_event: Callable[[str], None] = lambda what: None
        """Told what happens on the disk, for the trace."""

    def open_store(self) -> SimulatedStore:
        """Recovery: what a region sees when it starts. On the running loop."""
        if self.store is not None:
            raise StorageError("this disk is in use by another store; close it first", definite=True)
        for log in self.logs.values():
            log.recover(trusts_torn_tail=self.faults.trusts_torn_tail)
        self.store = SimulatedStore(self)
        return self.store

    def crash(self) -> None:
        """The owner is gone. What it had not been told to be durable may be there or not, each log and key up to a
        point of its own."""
        if self.store is not None:
            self.store.lose_tail()
            self.store = None

    def fill(self) -> None:
        """No room for anything any more."""
        self.is_full = True

    def make_room(self) -> None:
        self.is_full = False

    def has_room_for(self, size_bytes: int) -> bool:
        if self.is_full:
            return False
        capacity = self.faults.capacity_bytes
        return capacity is None or self.used_bytes + size_bytes <= capacity

    @property
    def used_bytes(self) -> int:
        values = sum(len(versioned.value) for versioned in self.values.values())
        return values + sum(log.size_bytes for log in self.logs.values())

    # For those who judge: what is really there.

    def entries(self, log_name: str) -> list[Entry]:
        """Everything durable in a log."""
        log = self.logs.get(log_name)
        return [] if log is None else [Entry(*pair) for pair in zip(log.ids, log.entries, strict=True)]

    # Draws.

    def draw_seconds(self, span: Span) -> float:
        return self.random.uniform(*span)

    def draw_commit_seconds(self) -> float:
        stalls = self.is_so(self.faults.stall_probability)
        return self.draw_seconds(self.faults.stall_seconds if stalls else self.faults.commit_seconds)

    def draw_id_jump(self) -> int:
        jumps = self.is_so(self.faults.id_jump_probability)
        return self.random.randint(1, self.faults.id_jump_max) if jumps else 0

    def is_so(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability


class SimulatedLog:
    """Implements `contract.Log`. A lane: `broken` once an append failed."""

    def __init__(self, store: SimulatedStore, durable: DurableLog) -> None:
        self.broken: StorageError | None = None
        self.gone: StorageError | None = None
        """Set when the log was deleted: nothing to read either."""
        self._store = store
        self._durable = durable

    @property
    def name(self) -> str:
        return self._durable.name

    @property
    def ledger_id(self) -> int:
        return self._durable.ledger_id

    @property
    def first_entry_id(self) -> int:
        return self._durable.ids[0] if self._durable.ids else self._durable.next_entry_id

    @property
    def next_entry_id(self) -> int:
        return self._durable.next_entry_id

    @property
    def size_bytes(self) -> int:
        return self._durable.size_bytes

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        assert entries, "an append has at least one entry"
        durable, disk, copy = self._durable, self._store.disk, list(entries)

        def store() -> int:
            first = durable.next_entry_id + disk.draw_id_jump()
            durable.store(first, copy)
            return first

        def tear() -> None:
            whole = disk.random.randrange(len(copy))
            half = copy[whole][: disk.random.randrange(len(copy[whole]) + 1)]
            durable.torn = [*copy[:whole], half]

        def done(error: StorageError | None) -> None:
            if error is not None and self.broken is None:
                self.broken = behind(error)

        size_bytes = sum(map(len, copy))
        return self._store.issue(self, size_bytes, store, tear, done)

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        await self._store.wait_for_read()
        if self.gone is not None:
            raise self.gone
        durable = self._durable
        start = bisect_left(durable.ids, from_entry_id)
        found = durable.entries[start : start + max_entries]
        count = entries_within([len(data) for data in found], max_bytes)
        return [Entry(durable.ids[start + index], found[index]) for index in range(count)]

    async def trim(self, before_entry_id: int) -> None:
        before = min(before_entry_id, self.next_entry_id)
        lane = _LaneOfItsOwn()
        await self._store.issue(lane, 0, lambda: self._durable.trim(before))


class _LaneOfItsOwn:
    """Nothing fails together with it."""

    broken: StorageError | None = None


class SimulatedStore:
    """Implements `contract.Store`. Made by `SimulatedDisk.open_store`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self._loop = asyncio.get_running_loop()
        self._keys = Keys(dict(disk.values))
        self._logs: dict[str, SimulatedLog] = {}
        self._waiting: list[_Write] = []
        self._committing: list[_Write] = []
        self._closed: StorageError | None = None

    # As contract.Store.

    async def open_log(self, name: str, *, create: bool = True) -> SimulatedLog | None:
        log = self._logs.get(name)
        if log is not None and log.broken is None:
            return log

        def store() -> SimulatedLog | None:
            log = self._logs.get(name)
            if log is not None and log.broken is None:  # somebody else opened it in the same group
                return log
            if name not in self.disk.logs:
                if not create:
                    return None
                self.disk.logs[name] = DurableLog(name, self.disk.next_ledger_id)
                self.disk.next_ledger_id += 1
            self._logs[name] = SimulatedLog(self, self.disk.logs[name])
            return self._logs[name]

        opened: SimulatedLog | None = await self.issue(_LaneOfItsOwn(), 0, store)
        return opened

    async def delete_log(self, name: str) -> None:
        error = StorageError(f"log {name!r} was deleted", definite=True)
        if (log := self._logs.get(name)) is not None:
            log.broken = error

        def store() -> None:
            self.disk.logs.pop(name, None)
            if (log := self._logs.pop(name, None)) is not None:
                log.broken = log.gone = error

        await self.issue(_LaneOfItsOwn(), 0, store)

    def log_names(self) -> list[str]:
        return sorted(self.disk.logs)

    def get(self, key: str) -> Versioned | None:
        return self._keys.get(key)

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return self._keys.scan(prefix)

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        try:
            lane, version = self._keys.issue_put(key, expected_version)
        except StorageError as error:
            return self._failed_future(error)

        def store() -> int:
            self.disk.values[key] = Versioned(value, version)
            return version

        return self._issue_key_write(lane, len(value), store)

    def delete(self, key: str) -> asyncio.Future[None]:
        try:
            lane = self._keys.issue_delete(key)
        except StorageError as error:
            return self._failed_future(error)

        def store() -> None:
            self.disk.values.pop(key, None)

        return self._issue_key_write(lane, 0, store)

    async def close(self) -> None:
        if self._closed is not None:
            return
        self._closed = StorageError("the store is closed", definite=True)
        while self._waiting or self._committing:
            last = (self._waiting or self._committing)[-1]
            await asyncio.wait([last.future])
        if self.disk.store is self:
            self.disk.store = None

    # Writing.

    def _issue_key_write(
        self, lane: KeyLane, size_bytes: int, store: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        def done(error: StorageError | None) -> None:
            value = self.disk.values.get(lane.key)
            if error is None:
                self._keys.stored(lane, value)
                return
            if (
                value is not None
            ):  # a failed write may be there all the same, and whoever looks again shall know
                self._keys.values[lane.key] = value
            else:
                self._keys.values.pop(lane.key, None)
            lane.broken = lane.broken or behind(error)
            self._keys.failed(lane, error)

        return self.issue(lane, size_bytes, store, None, done)

    def issue(
        self,
        lane: _Lane,
        size_bytes: int,
        store: Callable[[], Any],
        tear: Callable[[], None] | None = None,
        done: Callable[[StorageError | None], None] = lambda error: None,
    ) -> asyncio.Future[Any]:
        """One more write for the next group."""
        refusal = self._closed or lane.broken
        if refusal is not None:
            return self._failed_future(refusal)
        future = self._loop.create_future()
        if not self._waiting and not self._committing:
            self._loop.call_soon(self._begin_commit)
        self._waiting.append(_Write(lane, size_bytes, store, tear, done, future))
        return future

    def _failed_future(self, error: StorageError) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        future.set_exception(error)
        return future

    def _begin_commit(self) -> None:
        if self.disk.store is self:
            self._committing, self._waiting = self._waiting, []
            self._loop.call_later(self.disk.draw_commit_seconds(), self._end_commit)

    def _end_commit(self) -> None:
        disk = self.disk
        if disk.store is not self:
            return
        group, self._committing = self._committing, []
        disk.commits += 1
        failing = self._draw_failing(group) if disk.is_so(disk.faults.failure_probability) else {}
        for number, write in enumerate(group):
            self._commit(write, fails=failing.get(write.lane) == number)
        disk.on_event(f"commit of {len(group)}")
        if self._waiting:
            self._begin_commit()

    def _draw_failing(self, group: list[_Write]) -> dict[_Lane, int]:
        """For some of the lanes in the group, at least one: the number of the write that fails."""
        numbers: dict[_Lane, list[int]] = {}
        for number, write in enumerate(group):
            numbers.setdefault(write.lane, []).append(number)
        random = self.disk.random
        lanes = random.sample(list(numbers), random.randint(1, len(numbers)))
        return {lane: random.choice(numbers[lane]) for lane in lanes}

    def _commit(self, write: _Write, *, fails: bool) -> None:
        disk = self.disk
        error: StorageError | None = None
        outcome: Any = None
        if write.lane.broken is not None:
            error = write.lane.broken
        elif write.size_bytes and not disk.has_room_for(write.size_bytes):
            error = StorageFull("no room left on the disk")
        elif fails:
            error = StorageError("the disk failed while writing", definite=False)
            if disk.random.random() < 0.5:
                write.store()
        else:
            outcome = write.store()
        write.done(error)
        if write.future.done():  # the wait was cancelled
            return
        if error is None:
            write.future.set_result(outcome)
        else:
            write.future.set_exception(error)

    # Reading.

    async def wait_for_read(self) -> None:
        if self.disk.faults.read_seconds[1] > 0:
            await asyncio.sleep(self.disk.draw_seconds(self.disk.faults.read_seconds))

    # The end.

    def lose_tail(self) -> None:
        """A crash: of every lane, a prefix of what was on its way survives."""
        self._closed = StorageError("the store crashed", definite=True)
        tail, self._waiting, self._committing = [*self._committing, *self._waiting], [], []
        lanes: dict[_Lane, list[_Write]] = {}
        for write in tail:
            lanes.setdefault(write.lane, []).append(write)
        for writes in lanes.values():
            self._lose_tail_of_lane(writes)
        self.disk.on_event(f"crash with {len(tail)} on the way")

    def _lose_tail_of_lane(self, writes: list[_Write]) -> None:
        random = self.disk.random
        survivors = random.choice((0, len(writes), random.randint(0, len(writes))))
        for number, write in enumerate(writes):
            if write.lane.broken is not None:
                return
            if number < survivors:
                write.store()
            elif write.tear is not None and random.random() < 0.5:
                write.tear()
                return
            else:
                return
