"""A configuration store in memory: a dictionary that the regions of one process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator.errors import StorageError
from emulator.model.values import Change
from emulator.storage.configuration.contract import (
    ABSENT,
    CHANGES_KEPT,
    ConfigurationMedium,
    ConfigurationRead,
    ConfigurationRows,
    T,
)


class ConfigurationMemory:
    """The state that the regions share. Writes are immediate; their users simulate delays and outages."""

    def __init__(self, *, changes_kept: int = CHANGES_KEPT) -> None:
        self.revision = 0
        self.values: dict[str, Change] = {}
        self.changes: list[Change] = []
        """The newest changes, in order."""
        self.changes_kept = changes_kept
        self.on_commit: dict[object, Callable[[], None]] = {}
        """Listener -> callback after each transaction with changes."""

    def read(self, after: int) -> ConfigurationRead:
        first = self.changes[0].revision if self.changes else self.revision + 1
        if after < first - 1 or after > self.revision:
            live = sorted(self.values.values(), key=lambda change: change.revision)
            return ConfigurationRead(self.revision, live, whole=True)
        return ConfigurationRead(self.revision, self.changes[after - first + 1 :], whole=False)

    def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        staged = StagedRows(self)
        outcome = work(staged)
        for change in staged.changes:
            if change.value is None:
                self.values.pop(change.path, None)
            else:
                self.values[change.path] = change
        if staged.changes:
            self.revision = staged.revision
            self.changes = [*self.changes, *staged.changes][-self.changes_kept :]
            for notify in list(self.on_commit.values()):
                notify()
        return self.revision, outcome


class StagedRows:
    """Implements `ConfigurationRows`: the changes of a transaction so far, over the stored values."""

    def __init__(self, memory: ConfigurationMemory) -> None:
        self._memory = memory
        self._staged: dict[str, Change | None] = {}
        self.revision = memory.revision
        self.changes: list[Change] = []

    def get(self, path: str) -> Change | None:
        return self._staged[path] if path in self._staged else self._memory.values.get(path)

    def put(self, path: str, value: bytes | None) -> None:
        current = self.get(path)
        if value is None and current is None:
            return
        self.revision += 1
        version = ABSENT if value is None else (ABSENT if current is None else current.version) + 1
        change = Change(self.revision, path, value, version)
        self._staged[path] = None if value is None else change
        self.changes.append(change)

    def count(self, prefix: str) -> int:
        paths = {*self._memory.values, *self._staged}
        return sum(path.startswith(prefix) and self.get(path) is not None for path in paths)


class MemoryConfiguration(ConfigurationMedium):
    """One region's access to a `ConfigurationMemory`."""

    def __init__(self, memory: ConfigurationMemory | None = None) -> None:
        self.memory = memory or ConfigurationMemory()
        self.failure: StorageError | None = None
        """Error that all reads and writes raise; None: the store is available. For tests, and after `close`."""

    def listen(self, on_commit: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def committed() -> None:
            loop.call_soon(on_commit)

        self.memory.on_commit[self] = committed

    async def read(self, after: int) -> ConfigurationRead:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.memory.read(after)

    async def transact(self, work: Callable[[ConfigurationRows], T]) -> tuple[int, T]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.memory.transact(work)

    async def close(self) -> None:
        self.memory.on_commit.pop(self, None)
        self.failure = StorageError("the configuration store is closed", definite=True)
