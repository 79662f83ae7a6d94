"""Requirements of the contract suite on a backend: a place for a store, and ways to damage it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import pytest

from emulator.storage.contract import Entry, Log, Store

DEADLINE_SECONDS = 30

S = TypeVar("S", bound=Store)


class Harness:
    """One place where stores are opened, one after the other. A backend that does not support a method skips its
    tests."""

    def __init__(self) -> None:
        self.opened: list[Store] = []

    async def open(self) -> Store:
        """Open the store of this place. The next call sees the data of this one."""
        store = await self._open()
        self.opened.append(store)
        return store

    async def _open(self) -> Store:
        raise NotImplementedError

    async def reopen(self, store: Store) -> Store:
        """Close in good order and open again."""
        await store.close()
        return await self.open()

    async def crash(self, store: Store) -> Store:
        """Return what the next owner opens after `kill -9` at this moment."""
        pytest.skip("this backend cannot be crashed here")

    def fill_disk(self, store: Store) -> None:
        """Let the next group with a large entry fail for lack of space."""
        pytest.skip("this backend has no disk to fill")

    def empty_disk(self, store: Store) -> None:
        """Make space again."""

    def commits(self, store: Store) -> int:
        """Return the number of durability points so far."""
        pytest.skip("this backend does not count its durability points")

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


async def open_log(store: Store, name: str) -> Log:
    log = await store.open_log(name)
    assert log is not None
    return log


async def opened(opening: Awaitable[S]) -> tuple[S, Log]:
    """Return a store that is being opened, and its log `t`."""
    store = await opening
    return store, await open_log(store, "t")


async def read_all(log: Log, max_entries: int = 1000, max_bytes: int = 1 << 20) -> list[Entry]:
    """Return everything in a log, read as a reader does: on from the id after the last one seen."""
    found: list[Entry] = []
    start = 0
    while page := await log.read(start, max_entries, max_bytes):
        found += page
        start = page[-1].entry_id + 1
    return found


def data_of(entries: list[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]
