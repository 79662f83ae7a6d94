"""What the suite needs of a backend besides the contract: a place to put a store, and ways to hurt it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from emulator.storage.contract import Entry, Log, Store

DEADLINE_SECONDS = 30


class Harness:
    """One place where stores are opened, one after the other. A backend that cannot do a thing skips it."""

    def __init__(self) -> None:
        self.opened: list[Store] = []

    async def open(self) -> Store:
        """Open the store of this place. The next call sees what this one left."""
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
        """What the next owner opens after `kill -9` at this moment."""
        pytest.skip("this backend cannot be crashed here")

    def fill_disk(self, store: Store) -> None:
        """The next group with something large in it finds no room."""
        pytest.skip("this backend has no disk to fill")

    def empty_disk(self, store: Store) -> None:
        """There is room again."""

    def commits(self, store: Store) -> int:
        """Durability points so far."""
        pytest.skip("this backend does not count its durability points")

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


AsyncTest = Callable[..., Awaitable[None]]


def on_a_loop(test: AsyncTest) -> Callable[..., None]:
    """Run an async test on a loop of its own, within the deadline, and close its stores."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def scenario() -> None:
            try:
                await asyncio.wait_for(test(*args, **kwargs), DEADLINE_SECONDS)
            finally:
                for value in kwargs.values():
                    if isinstance(value, Harness):
                        await value.close()

        asyncio.run(scenario())

    return run


async def open_log(store: Store, name: str) -> Log:
    log = await store.open_log(name)
    assert log is not None
    return log


async def read_all(log: Log, max_entries: int = 1000, max_bytes: int = 1 << 20) -> list[Entry]:
    """Everything in a log, the way a reader does it: on from the id after the last one seen."""
    found: list[Entry] = []
    start = 0
    while page := await log.read(start, max_entries, max_bytes):
        found += page
        start = page[-1].entry_id + 1
    return found


def data_of(entries: list[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]
