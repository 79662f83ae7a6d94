"""The memory store keeps the contract, also when it leaves ids unused."""

from __future__ import annotations

import asyncio

import pytest

from emulator.errors import StorageError, StorageFull
from emulator.storage.contract import Store
from emulator.storage.memory import MemoryDisk, MemoryStore

from .harness import DEADLINE_SECONDS, Harness, data_of, open_log, opened, read_all
from .log_store_contract import LogStoreContract

pytestmark = pytest.mark.within(DEADLINE_SECONDS)


class MemoryHarness(Harness):
    def __init__(self, id_gap: int = 0) -> None:
        super().__init__()
        self.id_gap = id_gap
        self.disk = MemoryDisk()

    async def _open(self) -> Store:
        return await MemoryStore.open(self.disk, id_gap=self.id_gap)

    async def crash(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        store.crash()
        return await self.open()

    def fill_disk(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.fail_next_group(StorageFull("no room"))

    def commits(self, store: Store) -> int:
        assert isinstance(store, MemoryStore)
        return store.commits


class TestMemoryStore(LogStoreContract):
    @pytest.fixture(params=[0, 3], ids=["", "with-gaps"])
    def harness(self, request: pytest.FixtureRequest) -> Harness:
        return MemoryHarness(request.param)


async def test_what_is_held_becomes_durable_when_it_is_released():
    """Tests can check the state between issued and durable for as long as they like."""
    store, log = await opened(MemoryStore.open())
    store.hold()
    issued = [log.append([b"1"]), log.append([b"2"])]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(future.done() for future in issued)
    store.release()
    await asyncio.gather(*issued)
    assert data_of(await read_all(log)) == [b"1", b"2"]


async def test_a_crash_loses_what_is_held():
    store, log = await opened(MemoryStore.open())
    await log.append([b"durable"])
    store.hold()
    lost = log.append([b"lost"])
    store = await MemoryStore.open(store.crash())
    assert data_of(await read_all(await open_log(store, "t"))) == [b"durable"]
    assert not lost.done()


async def test_a_crashed_store_takes_nothing_any_more():
    """Its handles belong to a process that is dead."""
    store, log = await opened(MemoryStore.open())
    store.crash()
    with pytest.raises(StorageError):
        await log.append([b"x"])


async def test_everything_issued_in_one_tick_is_one_group():
    """Exactly one, so that a simulation can rely on it."""
    store = await MemoryStore.open()
    logs = [await open_log(store, name) for name in "abc"]
    before = store.commits
    await asyncio.gather(*(log.append([b"x"]) for log in logs), store.put("k", b"v"))
    assert store.commits == before + 1
