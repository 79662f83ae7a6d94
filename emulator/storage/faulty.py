"""A store with an emulated disk that can be slow, full or failing, around the store of any backend.

    healthy   every call is passed to the backend: one comparison for each write
    slow      writes wait for the next commit of the slow disk, which begins `delay_ms` after the first of them
    full      appends and puts fail with StorageFull, and nothing is stored; reads, trims and deletions work
    failing   the sync of every write fails. The outcome is indefinite: whether the write was stored is drawn. Its log
              is not opened again, and no log is created, before the disk syncs: the end of the log is unknown

The decorator keeps the guarantees of the contract. The futures of one log resolve in the order of its appends, also
when a fault begins or ends meanwhile (S1). A failed write poisons its log or its key (S5). Reads return only what the
backend has synced (S7): after a failed sync, a log that is opened again contains the write durably or not at all.
During a fault, the backend's future resolves one iteration of the event loop before that of the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from emulator.errors import StorageError, StorageFenced, StorageFull
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.storage.contract import Entry, Log, Replaceable, Store, Versioned, Volatile
from emulator.storage.lanes import behind

T = TypeVar("T")


class _Lane:
    """The writes of one log or key in the decorator."""

    __slots__ = ("last", "refusal")

    def __init__(self) -> None:
        self.last: asyncio.Future[Any] | None = None
        """Future of the newest write."""
        self.refusal: StorageError | None = None
        """Error with which new writes are refused after an injected failure; None: they are accepted."""

    @property
    def is_unknown(self) -> bool:
        """Whether the newest write may or may not have been stored."""
        return self.refusal is not None and not self.refusal.definite


class FaultyLog:
    """Implements `contract.Log`."""

    def __init__(self, store: FaultyStore, log: Log) -> None:
        self.log = log
        self.lane = _Lane()
        self._store = store

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def ledger_id(self) -> int:
        return self.log.ledger_id

    @property
    def first_entry_id(self) -> int:
        return self.log.first_entry_id

    @property
    def next_entry_id(self) -> int:
        return self.log.next_entry_id

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        lane = self.lane
        if self._store.passes and lane.refusal is None:
            lane.last = future = self.log.append(entries)
            return future
        return self._store.write(lane, partial(self.log.append, list(entries)), needs_room=True)

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        return await self.log.read(from_entry_id, max_entries, max_bytes)

    async def trim(self, before_entry_id: int) -> None:
        before = min(before_entry_id, self.log.next_entry_id)  # appends in flight now are not trimmed
        await self._store.change(lambda: self.log.trim(before), needs_room=False)


class FaultyStore:
    """Implements `contract.Store`; created by `with_faults`. `random` draws whether a write is stored whose sync
    fails."""

    def __init__(self, store: Store, random: Random) -> None:
        self.condition: DiskCondition = HEALTHY
        self.passes = True
        """Whether writes are passed to the backend: the disk is healthy, and no delayed write is in flight."""
        self._store = store
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._logs: dict[str, FaultyLog] = {}
        self._deleting: list[str] = []
        """Names of logs that are being deleted."""
        self._keys: dict[str, _Lane] = {}
        """Keys with writes in flight that were issued during a fault, and keys that are refused."""
        self._waiting: list[Callable[[], None]] = []
        """Writes that wait for the next commit of a slow disk, in the order of issue."""
        self._timer: asyncio.TimerHandle | None = None
        self._unresolved = 0
        """Number of writes that were issued during a fault and have no outcome yet."""

    def set_condition(self, condition: DiskCondition) -> None:
        """Begin or end a fault. Writes that wait for a slow disk are issued at once unless it stays slow."""
        self.condition = condition
        self.passes = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if condition.state != "slow":
            self._commit()
        elif self._waiting:
            self._begin_commit()
        self._update_passes()

    @property
    def waiting(self) -> int:
        """Number of writes that wait for a slow disk."""
        return len(self._waiting)

    # Methods of contract.Store.

    async def open_log(self, name: str, *, create: bool = True) -> FaultyLog | None:
        known = self._logs.get(name)
        creates = create and (not self._store.has_log(name) or name in self._deleting)
        is_unknown = known is not None and known.lane.is_unknown
        if self.condition.state == "failing" and (creates or is_unknown):
            raise StorageError(
                f"log {name!r} is not opened while the disk syncs nothing; `geoemu disk` has set it to failing",
                definite=True,
            )
        if self.passes or not creates:
            log = await self._store.open_log(name, create=create)
        else:
            log = await self.change(lambda: self._store.open_log(name, create=create), needs_room=True)
        return None if log is None else self._wrapped(log)

    def create_log(
        self, name: str, wrap: Callable[[Log], Log] = lambda log: log
    ) -> asyncio.Future[Log] | None:
        if not self.passes or name in self._logs or name in self._deleting:
            return None
        return self._store.create_log(name, lambda log: wrap(self._wrapped(log)))

    def _wrapped(self, log: Log) -> FaultyLog:
        known = self._logs.get(log.name)  # another call may have opened it meanwhile
        if known is None or known.log is not log or known.lane.refusal is not None:
            before, known = known, FaultyLog(self, log)
            if before is not None:
                known.lane.last = before.lane.last
            self._logs[log.name] = known
        return known

    async def delete_log(self, name: str) -> None:
        known = self._logs.get(name)
        if known is not None:
            known.lane.refusal = StorageError(f"log {name!r} was deleted", definite=True)
        self._deleting.append(name)
        try:
            await self.change(lambda: self._store.delete_log(name), needs_room=False)
        finally:
            self._deleting.remove(name)
        if self._logs.get(name) is known:
            self._logs.pop(name, None)

    def log_names(self) -> list[str]:
        return self._store.log_names()

    def has_log(self, name: str) -> bool:
        return self._store.has_log(name)

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return self._store.scan(prefix)

    def get(self, key: str) -> Versioned | None:
        lane = self._keys.get(key)
        if lane is not None and lane.refusal is not None:
            del self._keys[key]
        return self._store.get(key)

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        if self.passes and key not in self._keys:
            return self._store.put(key, value, expected_version=expected_version)
        issue = partial(self._store.put, key, value, expected_version=expected_version)
        return self._write_key(key, issue, needs_room=True)

    def delete(self, key: str) -> asyncio.Future[None]:
        if self.passes and key not in self._keys:
            return self._store.delete(key)
        return self._write_key(key, partial(self._store.delete, key), needs_room=False)

    async def close(self) -> None:
        self.set_condition(HEALTHY)
        await self._store.close()
        while self._unresolved:  # the backend has resolved all its futures
            await asyncio.sleep(0)

    def lose_power(self) -> None:
        """Drop what is not synced (`contract.Volatile`). A backend on another machine loses nothing."""
        self._waiting.clear()
        if isinstance(self._store, Volatile):
            self._store.lose_power()

    # Writing while a fault is active, or while its delayed writes are in flight.

    def write(
        self, lane: _Lane, issue: Callable[[], asyncio.Future[Any]], *, needs_room: bool
    ) -> asyncio.Future[Any]:
        """Issue a write of a lane under the current condition. `needs_room`: it fails while the disk is full."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if lane.refusal is not None:
            future.set_exception(behind(lane.refusal))
            return future
        before, lane.last = lane.last, future
        self._unresolved += 1
        future.add_done_callback(self._resolved)
        perform = partial(self._perform, lane, before, issue, future, needs_room)
        if self.condition.state == "slow":
            self._wait(perform)
        else:
            perform()
        return future

    async def change(self, work: Callable[[], Awaitable[T]], *, needs_room: bool) -> T:
        """Perform a change that is neither an append nor a write of a key, under the current condition."""
        if self.condition.state == "slow":
            turn: asyncio.Future[None] = self._loop.create_future()
            self._wait(lambda: None if turn.done() else turn.set_result(None))
            await turn
        failure = self._failure(needs_room)
        if failure is None:
            return await work()
        if not failure.definite and self._is_stored():
            await work()
        raise failure

    def _write_key(
        self, key: str, issue: Callable[[], asyncio.Future[Any]], *, needs_room: bool
    ) -> asyncio.Future[Any]:
        lane = self._keys.get(key)
        if lane is None:
            lane = self._keys[key] = _Lane()
        future = self.write(lane, issue, needs_room=needs_room)

        def done(_: asyncio.Future[Any]) -> None:
            if lane.last is future and lane.refusal is None and self._keys.get(key) is lane:
                del self._keys[key]

        future.add_done_callback(done)
        return future

    def _perform(
        self,
        lane: _Lane,
        before: asyncio.Future[Any] | None,
        issue: Callable[[], asyncio.Future[Any]],
        future: asyncio.Future[Any],
        needs_room: bool,
    ) -> None:
        """Issue a write to the backend, or fail it after `before`, the write before it in its lane."""
        failure = behind(lane.refusal) if lane.refusal is not None else self._failure(needs_room)
        if failure is None:
            issue().add_done_callback(partial(_copy, future))
            return
        lane.refusal = lane.refusal or failure
        if not failure.definite and self._is_stored():
            before = issue()
        if before is None or before.done():
            _fail(future, failure)
        else:
            before.add_done_callback(lambda _: _fail(future, failure))

    def _failure(self, needs_room: bool) -> StorageError | None:
        match self.condition.state:
            case "full" if needs_room:
                return StorageFull("no room left on the disk, which `geoemu disk` has set to full")
            case "failing":
                return StorageError(
                    "the disk could not sync the write; `geoemu disk` has set it to failing", definite=False
                )
        return None

    def _is_stored(self) -> bool:
        """Draw whether a write whose sync fails reaches the disk."""
        return self._random.random() < 0.5

    def _wait(self, perform: Callable[[], None]) -> None:
        self._waiting.append(perform)
        if self._timer is None:
            self._begin_commit()

    def _begin_commit(self) -> None:
        self._timer = self._loop.call_later(self.condition.delay_ms / 1000, self._commit)

    def _commit(self) -> None:
        """Perform the waiting writes, which are one group of the backend (S4)."""
        self._timer = None
        waiting, self._waiting = self._waiting, []
        for perform in waiting:
            perform()

    def _resolved(self, _: asyncio.Future[Any]) -> None:
        self._unresolved -= 1
        self._update_passes()

    def _update_passes(self) -> None:
        self.passes = self.condition.state == "healthy" and not self._unresolved and not self._waiting


class FaultyFencedStore(FaultyStore):
    """Around a store that a newer owner may fence. Implements `contract.Replaceable`."""

    def __init__(self, store: Store, random: Random, fenced: asyncio.Future[StorageFenced]) -> None:
        super().__init__(store, random)
        self.fenced = fenced


def with_faults(store: Store, random: Random) -> FaultyStore:
    """Return the store with a disk that is healthy."""
    if isinstance(store, Replaceable):
        return FaultyFencedStore(store, random, store.fenced)
    return FaultyStore(store, random)


def _copy(future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
    """Give `future` the outcome of `done`, unless the wait for it was cancelled."""
    failure = done.exception()
    if future.done():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(done.result())


def _fail(future: asyncio.Future[Any], failure: StorageError) -> None:
    if not future.done():
        future.set_exception(failure)
