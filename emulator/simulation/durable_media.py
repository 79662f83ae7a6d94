"""The durable state of a region: its logs and keys on a disk (disk.py) or in a remote log (remote_log.py).

A medium applies groups of writes and records, for the checkers, the owner of each write. Each store that is opened is a
new owner, with a higher number than earlier owners (S6). Each medium has its own random source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from emulator.errors import StorageError, StorageFull
from emulator.storage.contract import Entry, Store, Versioned
from emulator.storage.lanes import Lane, behind
from emulator.storage.memory import LogEntries

Span = tuple[float, float]
"""(minimum, maximum) of a duration in seconds; values are uniformly distributed between them."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """The delays and faults of a medium. The default is fast, has unlimited space, and loses data only in crashes."""

    commit_seconds: Span = (0.0002, 0.002)
    stall_probability: float = 0.0
    """Probability that a commit takes `stall_seconds` instead of `commit_seconds`."""
    stall_seconds: Span = (0.05, 0.5)
    read_seconds: Span = (0.0, 0.0)
    failure_probability: float = 0.0
    """Probability that a commit fails."""
    id_jump_probability: float = 0.0
    """Probability that ids are left unused before an append, as by a backend that stores records of its own."""
    id_jump_max: int = 3
    capacity_bytes: int | None = None
    """Limit of the bytes of all entries and values. None: no limit."""
    trusts_torn_tail: bool = False
    """Remove a safeguard: opening the store keeps the rest of a torn append instead of cutting it off."""

    def repaired(self) -> DiskFaults:
        """Return these settings without failures and stalls; other delays stay."""
        return replace(self, failure_probability=0.0, stall_probability=0.0)


@dataclass(slots=True)
class DurableLog(LogEntries):
    """One log on the medium."""

    owners: list[int] = field(default_factory=list)
    """Number of the owner that wrote each entry; parallel to `ids`."""
    fences: list[tuple[int, int]] = field(default_factory=list)
    """(entry id, owner): only this owner or a newer one may have written entries from that id on."""
    trimmed: list[tuple[int, bytes]] = field(default_factory=list)
    """Trimmed entries, in order. Regions can no longer read them; the checkers can."""
    torn: list[bytes] = field(default_factory=list)
    """The part of the last append that a crash left; its last entry may be truncated."""

    def append_by(self, owner: int, first: int, entries: Sequence[bytes]) -> None:
        self.append(first, entries)
        self.owners.extend([owner] * len(entries))

    def trim(self, before_entry_id: int) -> list[Entry]:
        trimmed = super(DurableLog, self).trim(before_entry_id)  # dataclasses with slots need the arguments
        self.trimmed += trimmed
        del self.owners[: len(trimmed)]
        return trimmed

    def all_entries(self, index: int) -> Iterator[tuple[int, bytes]]:
        """Return the entries from index `index` on, in the order in which they were stored; includes trimmed ones."""
        yield from self.trimmed[index:]
        first = max(0, index - len(self.trimmed))
        yield from zip(self.ids[first:], self.entries[first:], strict=True)

    def recover(self, *, trusts_torn_tail: bool) -> None:
        """Cut off a torn append, whose ids stay unused; with `trusts_torn_tail`, keep its entries."""
        torn, self.torn = self.torn, []
        if torn and trusts_torn_tail:
            self.append_by(self.owners[-1] if self.owners else 0, self.next_entry_id, torn)
        else:
            self.next_entry_id += len(torn)


class MediaWrite(NamedTuple):
    """One pending write."""

    lane: Lane
    log: DurableLog | None
    """The log that the write appends to. None: the write changes a key, trims, opens or deletes a log."""
    size_bytes: int
    store: Callable[[], Any]
    """Apply the write to the medium. The result is passed to `confirm`."""
    tear: Callable[[], None] | None
    """Leave a part of the write on the medium. None: the write cannot be torn."""
    confirm: Callable[[Any], Any]
    """Confirm to the owner that the write is durable, and return the result for `future`."""
    failed: Callable[[StorageError], None]
    """Report the failure to the owner."""
    future: asyncio.Future[Any]


class Medium:
    """The durable logs and keys of one region. They outlive its programs."""

    def __init__(self, random: Random, faults: DiskFaults) -> None:
        self.faults = faults
        """Current faults; may be replaced at any time."""
        self.random = random
        self.logs: dict[str, DurableLog] = {}
        self.values: dict[str, Versioned] = {}
        self.next_ledger_id = 1
        self.owners = 0
        """Number of owners so far, which is also the number of the newest owner."""
        self.key_writers: list[tuple[int, str]] = []
        """(owner, key) of every write of a key, in order. An empty key records that this owner took the keys over."""
        self.commits = 0
        """Number of commits so far."""
        self.is_full = False
        self.on_event: Callable[[str], None] = lambda what: None
        """Called with a description of each event of the medium, for the trace."""

    async def open_store(self) -> Store:
        """Open a store for a region that starts, on the region's loop. Raises StorageError if it cannot be opened."""
        raise NotImplementedError

    # Faults.

    def fill(self) -> None:
        """Make the medium full: appends and values are rejected with StorageFull."""
        self.is_full = True

    def make_room(self) -> None:
        self.is_full = False

    def repair(self) -> None:
        """End the faults of the medium, except for delays, id jumps and the limit of its capacity."""
        self.make_room()
        self.faults = self.faults.repaired()

    # For checkers: the durable content.

    @property
    def used_bytes(self) -> int:
        values = sum(len(versioned.value) for versioned in self.values.values())
        return values + sum(log.size_bytes for log in self.logs.values())

    def entries(self, log_name: str) -> list[Entry]:
        """Return the durable entries of a log; empty if there is no such log."""
        log = self.logs.get(log_name)
        return [] if log is None else [Entry(*pair) for pair in zip(log.ids, log.entries, strict=True)]

    # Called by stores.

    def put(self, key: str, value: Versioned | None, owner: int) -> None:
        """Store the value of a key. None deletes the key."""
        self.key_writers.append((owner, key))
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def acquire_keys(self) -> int:
        """Give the keys to a new owner, and return the owner's number."""
        self.owners += 1
        self.key_writers.append((self.owners, ""))
        return self.owners

    def acquire_logs(self, owner: int) -> StorageError | None:
        """Give the logs to this owner. Return an error if a newer owner has them, otherwise None."""
        for log in self.logs.values():
            log.fences.append((log.next_entry_id, owner))
        return None

    def apply(self, group: Sequence[MediaWrite], owner: int) -> list[Any]:
        """Make a group of writes durable. Return the result of `store`, or the error, of each write."""
        self.commits += 1
        probability = self.faults.failure_probability
        failing = self._draw_failing(group) if probability > 0 and self.draw_chance(probability) else {}
        broken_lanes: dict[Lane, StorageError] = {}
        outcomes: list[Any] = []
        for number, write in enumerate(group):
            error = self._refusal(write, owner, broken_lanes)
            if error is None and failing.get(write.lane) == number:
                error = self.fail(write)
            if error is not None:
                broken_lanes.setdefault(write.lane, behind(error))
            outcomes.append(write.store() if error is None else error)
        self.on_event(f"commit of {len(group)}")
        return outcomes

    def _refusal(
        self, write: MediaWrite, owner: int, broken_lanes: dict[Lane, StorageError]
    ) -> StorageError | None:
        if write.lane.broken is not None:
            return write.lane.broken
        if (fenced := self.fence(write, owner)) is not None:
            return fenced
        if write.lane in broken_lanes:
            return broken_lanes[write.lane]
        may_be_full = self.is_full or self.faults.capacity_bytes is not None
        if may_be_full and write.size_bytes and not self.has_room_for(write.size_bytes):
            return StorageFull("no room left")
        return None

    def fence(self, write: MediaWrite, owner: int) -> StorageError | None:
        """Return the error if a newer owner fences this write, otherwise None."""
        return None

    def fail(self, write: MediaWrite) -> StorageError:
        """Fail this write, which was drawn to fail, and return its error. Later writes of its lane are not stored."""
        raise NotImplementedError

    def _draw_failing(self, group: Sequence[MediaWrite]) -> dict[Lane, int]:
        """Draw at least one lane of the group, and for each drawn lane the index of the write that fails."""
        numbers: dict[Lane, list[int]] = {}
        for number, write in enumerate(group):
            numbers.setdefault(write.lane, []).append(number)
        lanes = self.random.sample(list(numbers), self.random.randint(1, len(numbers)))
        return {lane: self.random.choice(numbers[lane]) for lane in lanes}

    def has_room_for(self, size_bytes: int) -> bool:
        if self.is_full:
            return False
        capacity = self.faults.capacity_bytes
        return capacity is None or self.used_bytes + size_bytes <= capacity

    # Draws.

    def draw_seconds(self, span: Span) -> float:
        low, high = span
        return low + (high - low) * self.random.random()  # as `uniform` does, in two calls less

    def draw_commit_seconds(self) -> float:
        faults = self.faults
        stalls = faults.stall_probability > 0 and self.draw_chance(faults.stall_probability)
        return self.draw_seconds(faults.stall_seconds if stalls else faults.commit_seconds)

    def draw_id_jump(self) -> int:
        faults = self.faults
        jumps = faults.id_jump_probability > 0 and self.draw_chance(faults.id_jump_probability)
        return self.random.randint(1, faults.id_jump_max) if jumps else 0

    def draw_chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability
