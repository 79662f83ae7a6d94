"""The simulated disk of one region, with at most one open store at a time.

The disk outlives the store: after `disk.crash()` (which killing the host implies), `disk.open_store()` returns what a
restarted region reads. In a crash each log and each key keeps a prefix, drawn from the seed, of its pending writes.
Nothing is guaranteed across logs or keys (S1): the tail of one may survive and an older write of another may not. If
the prefix ends within an append, the append is torn: a part of it is on the disk, and opening the store cuts the part
off (S8).
Ids may jump between appends (S3).

`DiskFaults` sets how often commits are slow or fail. A failed commit breaks some of its logs and keys, each at a write
drawn from the seed. The outcome of that write is unknown (`definite=False`); the writes after it are certainly not
stored (S5). `fill` makes the disk full; `make_room` undoes that.
"""

from __future__ import annotations

from random import Random

from emulator.errors import StorageError
from emulator.simulation.durable_media import DiskFaults, MediaWrite, Medium
from emulator.simulation.store import SimulatedStore
from emulator.storage.lanes import Lane


class SimulatedDisk(Medium):
    def __init__(self, random: Random, faults: DiskFaults | None = None) -> None:
        super().__init__(random, faults or DiskFaults())
        self.store: DiskStore | None = None
        """The open store; None while no store is open."""

    async def open_store(self) -> DiskStore:
        """Recover the disk and return its store, on the running loop, as a starting region does. Raises StorageError
        while another store is open."""
        if self.store is not None:
            raise StorageError("this disk is in use by another store; close it first", definite=True)
        for log in self.logs.values():
            log.recover(trusts_torn_tail=self.faults.trusts_torn_tail)
        owner = self.acquire_keys()
        self.acquire_logs(owner)
        self.store = self.make_store(owner)
        return self.store

    def make_store(self, owner: int) -> DiskStore:
        return DiskStore(self, owner)

    def crash(self) -> None:
        """Crash the open store. Each log and each key keeps a prefix of the writes that were not confirmed as
        durable."""
        if self.store is not None:
            self.store.end_by_crash()
            self.store = None

    def lose_power(self) -> None:
        """Crash the open store and drop all writes that were not confirmed as durable."""
        if self.store is not None:
            self.store.end_by_crash(keeps_unsynced=False)
            self.store = None

    def fail(self, write: MediaWrite) -> StorageError:
        if self.random.random() < 0.5:
            write.store()
        return StorageError("the disk failed while writing", definite=False)


class DiskStore(SimulatedStore):
    medium: SimulatedDisk

    def commit(self, group: list[MediaWrite]) -> None:
        if self.medium.store is self:
            self.loop.call_later(self.medium.draw_commit_seconds(), self._end_commit)

    def _end_commit(self) -> None:
        if self.medium.store is self:
            self.group_committed(self.medium.apply(self._committing, self.owner))

    def release(self) -> None:
        if self.medium.store is self:
            self.medium.store = None

    def end_by_crash(self, *, keeps_unsynced: bool = True) -> None:
        """End the store as a crash does: of each lane, a prefix of the pending writes is stored, possibly with a
        torn append after it; without `keeps_unsynced`, none of them."""
        self.ended = StorageError("the store crashed", definite=True)
        tail = self.remove_pending()
        lanes: dict[Lane, list[MediaWrite]] = {}
        for write in tail if keeps_unsynced else ():
            lanes.setdefault(write.lane, []).append(write)
        for writes in lanes.values():
            self._store_prefix_of_lane(writes)
        self.medium.on_event(f"crash with {len(tail)} on the way")

    def _store_prefix_of_lane(self, writes: list[MediaWrite]) -> None:
        random = self.medium.random
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
