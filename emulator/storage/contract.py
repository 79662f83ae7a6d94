"""The storage contract: the guarantees of every backend, and their limits.

A store belongs to one region and has two parts: logs (one per topic) and a small key-value part
(cursors, progress, checkpoints). Writes to both follow the same order:

    issued ──▶ durable ──▶ the future resolves ──▶ visible to readers and acknowledged to clients

Guarantees (code and tests refer to their numbers):

S1  Order. Appends to one log become durable in the order in which they were issued, each as a whole
    or not at all. Puts of one key likewise. Nothing is promised ACROSS logs or keys: a caller that
    needs an order awaits the first future before issuing the second write.
S2  Durability. A resolved future means the data survives `kill -9` of the region at any later moment.
S3  Positions come from the store. Entry ids of one log only grow and are never used twice, not even
    after a crash, a failed append or a trim. Ids inside one append are consecutive; BETWEEN appends
    they may jump (a backend may keep records of its own), so no reader may count on `id + 1`.
S4  Group commit. What is issued while a commit runs goes into the next one, up to a limit of bytes: one durability
    point (one fsync; one produce request to each Kafka broker) per group, however many logs and keys it touches.
S5  Failure. When an append fails, every later append to that log that was already issued fails too,
    so that no entry is stored after a lost one. The log is then poisoned: it refuses appends until
    it is opened again, with the entries that were stored. The same holds for a key's puts and deletions,
    which are refused until the next `get` of that key.
    `StorageError.definite` states whether the data certainly was not stored.
S6  One owner. A store opened by a newer owner fences the older one: its writes fail with StorageFenced.
    SQLite and memory refuse a second live owner at open time instead (StorageError).
S7  Reads see only what is durable. `next_entry_id` is the durable end of the log.
S8  Loss of the unsynced tail. After a crash a log is a prefix of the issued appends that contains
    every acknowledged one; a torn or corrupt tail is cut off, never served.

All methods are called from one asyncio event loop, on which futures resolve; those of accepted appends to one log in
append order. Cancelling the wait on a future does not cancel the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable
from zlib import crc32

from emulator.errors import StorageFenced
from emulator.model.machine import DiskCondition


class Entry(NamedTuple):
    """One stored entry: a message, a batch of messages or a marker, byte for byte as published."""

    entry_id: int
    data: bytes


class Versioned(NamedTuple):
    """A value of the key-value part."""

    value: bytes
    version: int
    """0 for the first put of a key; grows by one with each put. A deleted key starts at 0 again."""


class Log(Protocol):
    """The entries of one topic in one region."""

    @property
    def name(self) -> str: ...

    @property
    def ledger_id(self) -> int:
        """Id that is unique in this store and never reused: a deleted topic that is created again has a larger one."""
        ...

    @property
    def first_entry_id(self) -> int:
        """Smallest id that may still be read; entries below were trimmed. Equals `next_entry_id` in an
        empty log."""
        ...

    @property
    def next_entry_id(self) -> int:
        """Durable end (exclusive): larger than the id of every durable entry."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the durable, untrimmed entries."""
        ...

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Store `entries` (at least one) together. The future resolves to the first id; the others follow
        consecutively (S3). Fails with StorageError (S5)."""
        ...

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        """Return all durable entries with id >= `from_entry_id`, in order, until a limit is reached.

        At most `max_entries`; stops after the entry with which `max_bytes` is reached, so that a limit of bytes
        never prevents the first entry. Ids below `first_entry_id` are skipped. Empty at the end of the log.
        """
        ...

    async def trim(self, before_entry_id: int) -> None:
        """Delete the entries below `before_entry_id`. Durable when it returns.

        A backend that deletes whole groups only may keep more entries, never fewer: see `first_entry_id`.
        Entries that are not durable yet are never trimmed.
        """
        ...


class Store(Protocol):
    """The durable state of one region: its logs and key-value pairs."""

    async def open_log(self, name: str, *, create: bool = True) -> Log | None:
        """Open the log of topic `name`, creating it durably if missing; None if absent and not `create`.
        Opening twice returns the same object unless it is poisoned; then the log is read again."""
        ...

    def create_log(self, name: str, wrap: Callable[[Log], Log] = ...) -> asyncio.Future[Log] | None:
        """Begin to create a log that does not exist, without a coroutine. The future resolves to it once it is durable;
        `wrap` is applied to it before. None, and no effect, if `open_log` has to be called instead."""
        ...

    async def delete_log(self, name: str) -> None:
        """Delete a log and its entries; no error when there is none. Durable when it returns.
        Its `Log` refuses appends from this call on, and reads once the deletion is durable."""
        ...

    def log_names(self) -> list[str]:
        """Names of all logs, sorted."""
        ...

    def has_log(self, name: str) -> bool:
        """Whether a log of this name exists; takes constant time."""
        ...

    def get(self, key: str) -> Versioned | None:
        """Return the durable value of `key`. After a failed write, the key accepts writes again (S5)."""
        ...

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """Return the durable pairs whose key starts with `prefix`, sorted by key."""
        ...

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        """Set `key`; the future resolves to its new version once durable.

        `expected_version`: the version that the key must have (-1: it must not exist), counting writes already
        issued; otherwise the future fails with a definite StorageError and nothing changes.
        Without it, puts of one key issued within one group may be coalesced to the last.
        """
        ...

    def delete(self, key: str) -> asyncio.Future[None]:
        """Remove `key`; resolves once durable. No error when absent."""
        ...

    async def close(self) -> None:
        """Wait until issued writes are durable or failed, then release the store. A second call has no effect."""
        ...


@runtime_checkable
class Replaceable(Protocol):
    """A store whose owner can be fenced by a newer one at any time (S6), for which it checks periodically."""

    @property
    def fenced(self) -> asyncio.Future[StorageFenced]:
        """Resolves once a newer owner is detected, even without a write. Never cancelled by the store."""
        ...


@runtime_checkable
class Volatile(Protocol):
    """A store with writes that a power loss of this machine drops, because they are not synced."""

    def lose_power(self) -> None:
        """Drop synchronously what no completed sync covers, as a power loss does. The process must end immediately
        afterwards, before it runs its event loop again."""
        ...


@runtime_checkable
class FaultableDisk(Protocol):
    """A store whose disk can be made slow, full or failing, while it is open."""

    @property
    def condition(self) -> DiskCondition: ...

    @property
    def waiting(self) -> int:
        """Number of writes that wait for a slow disk."""
        ...

    def set_condition(self, condition: DiskCondition) -> None:
        """Begin or end a fault of the disk."""
        ...


_BASES = 9_973
_BASE_INTERVAL = 1_000


def ledger_id_base(region: str) -> int:
    """Return the number before a region's first ledger id, which depends on its name only."""
    return (crc32(region.encode()) % _BASES + 1) * _BASE_INTERVAL
