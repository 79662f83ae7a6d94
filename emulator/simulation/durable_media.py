"""The durable state of a region: its logs and keys on a disk (disk.py) or in a remote log (remote_log.py).

A medium applies groups of writes and records, for the checkers, the owner of each write: each store that is opened on
it is an owner with a number larger than those before (S6). It has a random source of its own.
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
"""Least and most; between them all are equally likely."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """The faults of a medium. Default: fast, with unlimited space, and only crashes lose data."""

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

    def repaired(self) -> DiskFaults:
        """As slow as ever, but nothing fails any more."""
        return replace(self, failure_probability=0.0, stall_probability=0.0)


@dataclass(slots=True)
class DurableLog(LogEntries):
    """One log on the medium."""

    owners: list[int] = field(default_factory=list)
    """Who wrote them; as long as `ids`."""
    fences: list[tuple[int, int]] = field(default_factory=list)
    """(entry id, owner): from that id on only this owner or a newer one may have written."""
    trimmed: list[tuple[int, bytes]] = field(default_factory=list)
    """Trimmed entries, in order. No region can read them any more; the checkers do."""
    torn: list[bytes] = field(default_factory=list)
    """What a crash left of the append that came next; its last entry may be shorter than it was."""

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
        """Cut off what is torn. Its ids stay unused."""
        torn, self.torn = self.torn, []
        if torn and trusts_torn_tail:
            self.append_by(self.owners[-1] if self.owners else 0, self.next_entry_id, torn)
        else:
            self.next_entry_id += len(torn)


class MediaWrite(NamedTuple):
    """One pending write."""

    lane: Lane
    log: DurableLog | None
    """The log it appends to. None: it changes a key, or creates or deletes a log."""
    size_bytes: int
    store: Callable[[], Any]
    """Change the medium. Its result is passed to `confirm`."""
    tear: Callable[[], None] | None
    """Leave a part of the write on the medium. None: it cannot be torn."""
    confirm: Callable[[Any], Any]
    """Confirm to the owner that it is durable; returns the result of the future."""
    failed: Callable[[StorageError], None]
    """Report the failure to the owner."""
    future: asyncio.Future[Any]


class Medium:
    """Belongs to one region and outlives it."""

    def __init__(self, random: Random, faults: DiskFaults) -> None:
        self.faults = faults
        """May be replaced at any time."""
        self.random = random
        self.logs: dict[str, DurableLog] = {}
        self.values: dict[str, Versioned] = {}
        self.next_ledger_id = 1
        self.owners = 0
        """How many there have been; also the number of the newest."""
        self.key_writers: list[tuple[int, str]] = []
        """(owner, key) of every write of a key, in order. Without a key: from here on the keys were this owner's."""
        self.commits = 0
        """Number of commits so far."""
        self.is_full = False
        self.on_event: Callable[[str], None] = lambda what: None
        """Told what happens here, for the trace."""

    async def open_store(self) -> Store:
        """What a region does when it starts. On its loop. StorageError when it cannot be had."""
        raise NotImplementedError

    # What can be done to it.

    def fill(self) -> None:
        """No room for anything any more."""
        self.is_full = True

    def make_room(self) -> None:
        self.is_full = False

    def repair(self) -> None:
        """Undo whatever was done to it."""
        self.make_room()
        self.faults = self.faults.repaired()

    # For checkers: the durable content.

    @property
    def used_bytes(self) -> int:
        values = sum(len(versioned.value) for versioned in self.values.values())
        return values + sum(log.size_bytes for log in self.logs.values())

    def entries(self, log_name: str) -> list[Entry]:
        """Everything durable in a log."""
        log = self.logs.get(log_name)
        return [] if log is None else [Entry(*pair) for pair in zip(log.ids, log.entries, strict=True)]

    # For its stores.

    def put(self, key: str, value: Versioned | None, owner: int) -> None:
        """None: the key is gone."""
        self.key_writers.append((owner, key))
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def take_keys(self) -> int:
        """A new owner: its number. From here on the keys are its own."""
        self.owners += 1
        self.key_writers.append((self.owners, ""))
        return self.owners

    def take_logs(self, owner: int) -> StorageError | None:
        """From here on the logs are its own too. Or why not."""
        for log in self.logs.values():
            log.fences.append((log.next_entry_id, owner))
        return None

    def apply(self, group: Sequence[MediaWrite], owner: int) -> list[Any]:
        """Let a group become durable. Return for each write the result of its `store`, or its error."""
        self.commits += 1
        failing = self._draw_failing(group) if self.draw_chance(self.faults.failure_probability) else {}
        broken: dict[Lane, StorageError] = {}
        outcomes: list[Any] = []
        for number, write in enumerate(group):
            error = self._refusal(write, owner, broken)
            if error is None and failing.get(write.lane) == number:
                error = self.fail(write)
            if error is not None:
                broken.setdefault(write.lane, behind(error))
            outcomes.append(write.store() if error is None else error)
        self.on_event(f"commit of {len(group)}")
        return outcomes

    def _refusal(
        self, write: MediaWrite, owner: int, broken: dict[Lane, StorageError]
    ) -> StorageError | None:
        if write.lane.broken is not None:
            return write.lane.broken
        if (fenced := self.fence(write, owner)) is not None:
            return fenced
        if write.lane in broken:
            return broken[write.lane]
        if write.size_bytes and not self.has_room_for(write.size_bytes):
            return StorageFull("no room left")
        return None

    def fence(self, write: MediaWrite, owner: int) -> StorageError | None:
        """Why this owner may not write it any more."""
        return None

    def fail(self, write: MediaWrite) -> StorageError:
        """It was drawn that this write fails. Those behind it in its lane certainly do."""
        raise NotImplementedError

    def _draw_failing(self, group: Sequence[MediaWrite]) -> dict[Lane, int]:
        """For some of the lanes in the group, at least one: the number of the write that fails."""
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
        return self.random.uniform(*span)

    def draw_commit_seconds(self) -> float:
        stalls = self.draw_chance(self.faults.stall_probability)
        return self.draw_seconds(self.faults.stall_seconds if stalls else self.faults.commit_seconds)

    def draw_id_jump(self) -> int:
        jumps = self.draw_chance(self.faults.id_jump_probability)
        return self.random.randint(1, self.faults.id_jump_max) if jumps else 0

    def draw_chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability
