"""The store of a non-persistent topic: operations complete at once, and its contents are lost when the topic is
unloaded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from emulator.model.stored_keys import CheckpointPartKey
from emulator.storage.contract import Entry, Log, Store, Versioned

WINDOW_BYTES: Final = 65_536
"""Maximum size of the newest entries that a log holds for slow readers; it holds at least one entry."""


class VolatileLog:
    """A `Log` that holds only its newest entries, in memory."""

    def __init__(self, name: str, ledger_id: int) -> None:
        self.name = name
        self.ledger_id = ledger_id
        self.first_entry_id = 0
        self.next_entry_id = 0
        self.size_bytes = 0
        self._entries: deque[Entry] = deque()

    def append(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        first = self.next_entry_id
        for data in entries:
            self._entries.append(Entry(self.next_entry_id, data))
            self.next_entry_id += 1
            self.size_bytes += len(data)
        while self.size_bytes > WINDOW_BYTES and len(self._entries) > 1:
            self._forget_oldest()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(first)
        return done

    def _forget_oldest(self) -> None:
        self.size_bytes -= len(self._entries.popleft().data)
        self.first_entry_id = self._entries[0].entry_id if self._entries else self.next_entry_id

    async def read(self, from_entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        found: list[Entry] = []
        for entry in self._entries:
            if len(found) == max_entries or max_bytes <= 0:
                break
            if entry.entry_id >= from_entry_id:
                found.append(entry)
                max_bytes -= len(entry.data)
        return found

    async def trim(self, before_entry_id: int) -> None:
        while self._entries and self._entries[0].entry_id < before_entry_id:
            self._forget_oldest()


class VolatileStore:
    """A `Store` of one topic, in memory. It opens no existing logs: the topic creates its own."""

    def __init__(self) -> None:
        self._values: dict[str, Versioned] = {}

    async def open_log(self, name: str, *, create: bool = True) -> Log | None:
        return VolatileLog(name, 0) if create else None

    def create_log(
        self, name: str, wrap: Callable[[Log], Log] = lambda log: log
    ) -> asyncio.Future[Log] | None:
        return None

    async def delete_log(self, name: str) -> None:
        """No effect: there is no such log."""

    def log_names(self) -> list[str]:
        return []

    def has_log(self, name: str) -> bool:
        return False

    def get(self, key: str) -> Versioned | None:
        return self._values.get(key)

    def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        return sorted(pair for pair in self._values.items() if pair[0].startswith(prefix))

    def put(self, key: str, value: bytes, *, expected_version: int | None = None) -> asyncio.Future[int]:
        """Store a value. Versions are not compared: only one topic writes here."""
        before = self._values.get(key)
        version = 0 if before is None else before.version + 1
        if not key.startswith(f"{CheckpointPartKey.KIND}/"):  # checkpoint parts describe only dropped entries
            self._values[key] = Versioned(value, version)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(version)
        return done

    def delete(self, key: str) -> asyncio.Future[None]:
        self._values.pop(key, None)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def close(self) -> None:
        self._values.clear()


def nothing_kept(store: Store) -> Store:
    """Return the store of one non-persistent topic, regardless of the region's backend."""
    return VolatileStore()
