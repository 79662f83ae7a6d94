"""A region's store on a simulated medium, with the guarantees of the storage contract and no more.

    issued ──▶ waiting ──▶ being committed (takes time) ──▶ durable ──▶ the future resolves
                   └─────── the unsynced tail ───────┘

A store returns logs and keys as they were when it opened them, with its confirmed writes since. disk.py and
remote_log.py decide how a group becomes durable, and which pending writes survive a crash.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from emulator.errors import StorageError
from emulator.simulation.durable_media import DurableLog, MediaWrite, Medium
from emulator.storage.contract import Entry, Versioned
from emulator.storage.lanes import KeyedStore, KeyLane, Lane, behind


class SimulatedLog:
    """A log as its store sees it. Implements `contract.Log`, and is the lane of its appends, `broken` once one
    failed."""

    def __init__(self, store: SimulatedStore, durable: DurableLog) -> None:
        self.broken: StorageError | None = None
        self.deleted_error: StorageError | None = None
        """The error of reads after the log was deleted; None before."""
        self.first_entry_id = durable.first_entry_id
        self.next_entry_id = durable.next_entry_id
        self.size_bytes = durable.size_bytes
        self.durable = durable
        self._store = store

    @property
    def name(self) -> str:
        return self.durable.name

    @property
    def ledger_id(self) -> int:
        return self.durable.ledger_id

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        assert entries, "an append has at least one entry"
        durable, medium, copy = self.durable, self._store.medium, list(entries)
        size_bytes = sum(map(len, copy))

        def store() -> int:
            first = durable.next_entry_id + medium.draw_id_jump()
            durable.append_by(self._store.owner, first, copy)
            return first

        def tear() -> None:
            whole = medium.random.randrange(len(copy))
            half = copy[whole][: medium.random.randrange(len(copy[whole]) + 1)]
            durable.torn = [*copy[:whole], half]

        def confirm(first: int) -> int:
            self.next_entry_id = first + len(copy)
            self.size_bytes += size_bytes
            return first

        return self._store.issue(
            self, store, confirm, self.failed, log=durable, size_bytes=size_bytes, tear=tear
        )

    def failed(self, error: StorageError) -> None:
        if self.broken is None:
            self.broken = behind(error)

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        await self._store.wait_for_read()
        if self.deleted_error is not None:
            raise self.deleted_error
        return self.durable.read(from_entry_id, self.next_entry_id, max_entries, max_bytes)

    async def trim(self, before_entry_id: int) -> None:
        before = min(before_entry_id, self.next_entry_id)

        def store() -> int:
            self.durable.trim(before)
            return self.durable.first_entry_id

        def confirm(first: int) -> None:
            self.first_entry_id = min(first, self.next_entry_id)
            # The remaining entries, not the trimmed ones: a trim that was reported as failed may have removed some.
            known = bisect_left(self.durable.ids, self.next_entry_id)
            self.size_bytes = sum(map(len, self.durable.entries[:known]))

        await self._store.issue(_SingleWriteLane(), store, confirm)


class _SingleWriteLane:
    """The lane of a single write: its failure affects no other write."""

    broken: StorageError | None = None

    def failed(self, error: StorageError) -> None:
        pass


class SimulatedStore(KeyedStore):
    """A region's store. Implements `contract.Store`; the medium's `open_store` creates it."""

    log_type: type[SimulatedLog] = SimulatedLog

    def __init__(self, medium: Medium, owner: int) -> None:
        super().__init__(dict(medium.values), set(medium.logs))
        self._names: set[str]
        self.medium = medium
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.ended: StorageError | None = None
        """The error of all further writes after the store has ended; None before."""
        self._logs: dict[str, SimulatedLog] = {}
        self._waiting: list[MediaWrite] = []
        self._committing: list[MediaWrite] = []

    # Methods of contract.Store.

    async def open_log(self, name: str, *, create: bool = True) -> SimulatedLog | None:
        log = self._logs.get(name)
        if log is not None and log.broken is None:
            return log

        def store() -> SimulatedLog | None:
            logs = self.medium.logs
            if name not in logs:
                if not create:
                    return None
                logs[name] = DurableLog(name, self.medium.next_ledger_id)
                self.medium.next_ledger_id += 1
            return self.log_type(self, logs[name])

        def confirm(found: SimulatedLog | None) -> SimulatedLog | None:
            log = self._logs.get(name)
            if log is not None and log.broken is None:  # opened by another call in the same group
                return log
            if found is not None:
                self._logs[name] = found
                self._names.add(name)
            return found

        opened: SimulatedLog | None = await self.issue(_SingleWriteLane(), store, confirm)
        return opened

    async def delete_log(self, name: str) -> None:
        error = StorageError(f"log {name!r} was deleted", definite=True)
        if (log := self._logs.get(name)) is not None:
            log.broken = error

        def store() -> None:
            self.medium.logs.pop(name, None)

        def confirm(_: None) -> None:
            self._names.discard(name)
            if (log := self._logs.pop(name, None)) is not None:
                log.broken = log.deleted_error = error

        await self.issue(_SingleWriteLane(), store, confirm)

    def forget(self, name: str) -> None:
        """Drop the cached log: the next `open_log` reads it again."""
        self._logs.pop(name, None)

    async def close(self) -> None:
        if self.ended is not None:
            return
        last = self.issue(_SingleWriteLane(), lambda: None, lambda _: None)
        self.ended = StorageError("the store is closed", definite=True)
        await self.wait_for_last_write(last)
        self.release()

    async def wait_for_last_write(self, last: asyncio.Future[Any]) -> None:
        """Wait until the last write of the closing store has an outcome."""
        await asyncio.wait([last])

    def release(self) -> None:
        """Release the medium for another store. Called when no write is pending."""

    # Writing.

    def _write_key(self, lane: KeyLane, value: Versioned | None) -> asyncio.Future[Any]:
        def store() -> None:
            self.medium.put(lane.key, value, self.owner)

        def confirm(_: None) -> int | None:
            return lane.stored(value)

        def failed(error: StorageError) -> None:
            if not error.definite:  # the value may be stored, and the next read must return it then
                self._keys.set(lane.key, self.medium.values.get(lane.key))
            lane.broken = lane.broken or behind(error)
            lane.failed(error)

        size_bytes = 0 if value is None else len(value.value)
        return self.issue(lane, store, confirm, failed, size_bytes=size_bytes)

    def issue(
        self,
        lane: Lane,
        store: Callable[[], Any],
        confirm: Callable[[Any], Any],
        failed: Callable[[StorageError], None] = lambda error: None,
        *,
        log: DurableLog | None = None,
        size_bytes: int = 0,
        tear: Callable[[], None] | None = None,
    ) -> asyncio.Future[Any]:
        """Add a write to the next group. Return the future of its outcome; it has failed if the store ended or the lane
        is broken."""
        refusal = self.ended or lane.broken
        if refusal is not None:
            return self.failed_future(refusal)
        future = self.new_future()
        if not self._waiting and not self._committing:
            self.loop.call_soon(self._begin_commit)
        self._waiting.append(MediaWrite(lane, log, size_bytes, store, tear, confirm, failed, future))
        return future

    def _begin_commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._committing = [write for write in waiting if write.lane.broken is None]
        for write in waiting:
            if write.lane.broken is not None:
                self._resolve_write(write, write.lane.broken)
        if self._committing:
            self.commit(self._committing)

    def commit(self, group: list[MediaWrite]) -> None:
        """Let the medium apply the group. `group_committed` is called afterwards, unless the store ends first."""
        raise NotImplementedError

    def group_committed(self, outcomes: Sequence[Any]) -> None:
        """Resolve the writes of the group with their outcomes, and begin the next group."""
        self.resolve(outcomes)
        if self._waiting:
            self._begin_commit()

    def resolve(self, outcomes: Sequence[Any]) -> None:
        """Resolve the futures of the group with the outcomes of its writes."""
        group, self._committing = self._committing, []
        for write, outcome in zip(group, outcomes, strict=True):
            self._resolve_write(write, outcome)

    def _resolve_write(self, write: MediaWrite, outcome: Any) -> None:
        if isinstance(outcome, StorageError):
            write.failed(outcome)
            if not write.future.done():  # the wait may have been cancelled
                write.future.set_exception(outcome)
        else:
            result = write.confirm(outcome)
            if not write.future.done():
                write.future.set_result(result)

    def remove_pending(self) -> list[MediaWrite]:
        """Remove the pending writes from the store and return them, unresolved."""
        tail, self._waiting, self._committing = [*self._committing, *self._waiting], [], []
        return tail

    # Reading.

    async def wait_for_read(self) -> None:
        """Wait for the duration of a read. Raises StorageError if the medium cannot be read."""
        if self.medium.faults.read_seconds[1] > 0:
            await asyncio.sleep(self.medium.draw_seconds(self.medium.faults.read_seconds))
