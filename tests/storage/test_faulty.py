"""A disk that is slow, full or failing keeps the contract of the storage, and recovers without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from emulator.errors import StorageError, StorageFenced, StorageFull
from emulator.model.machine import HEALTHY, DiskCondition
from emulator.storage.contract import Replaceable, Store, Versioned
from emulator.storage.faulty import FaultyLog, FaultyStore, with_faults
from emulator.storage.memory import MemoryStore
from emulator.storage.sqlite.store import open_sqlite

from .harness import DEADLINE_SECONDS, Harness, data_of, opened, read_all
from .log_store_contract import LogStoreContract
from .test_memory import MemoryHarness

pytestmark = pytest.mark.within(DEADLINE_SECONDS)

SLOW = DiskCondition("slow", 1)
FULL = DiskCondition("full")
FAILING = DiskCondition("failing")


class _Draws(Random):
    """Draws that store every write whose sync fails, or none of them."""

    def __init__(self, stored: bool) -> None:
        super().__init__(0)
        self._value = 0.0 if stored else 0.9

    def random(self) -> float:
        return self._value


class FaultyHarness(MemoryHarness):
    """Memory behind the decorator, under one condition."""

    def __init__(self, condition: DiskCondition) -> None:
        super().__init__()
        self.condition = condition

    async def _open(self) -> Store:
        store = with_faults(await super()._open(), Random(1))
        store.set_condition(self.condition)
        return store

    async def crash(self, store: Store) -> Store:
        assert isinstance(store, FaultyStore)
        return await super().crash(store._store)

    def fill_disk(self, store: Store) -> None:
        assert isinstance(store, FaultyStore)
        super().fill_disk(store._store)

    def commits(self, store: Store) -> int:
        assert isinstance(store, FaultyStore)
        return super().commits(store._store)


class TestHealthyDisk(LogStoreContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return FaultyHarness(HEALTHY)


class TestSlowDisk(LogStoreContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return FaultyHarness(SLOW)

    async def test_s7_an_append_is_not_visible_before_its_future_resolves(self, harness: Harness):
        """The backend's future resolves one iteration of the event loop earlier; until then nothing is visible."""
        store, log = await opened(harness.open())
        assert isinstance(store, FaultyStore)
        end, size = log.next_entry_id, log.size_bytes
        issued = log.append([b"second"])
        while store.waiting:
            assert (log.next_entry_id, log.size_bytes) == (end, size)
            assert await read_all(log) == []
            await asyncio.sleep(0)
        await issued
        assert log.next_entry_id > end

    async def test_s7_a_key_has_its_old_value_until_the_future_of_the_put_resolves(self, harness: Harness):
        store = await harness.open()
        assert isinstance(store, FaultyStore)
        await store.put("k", b"old")
        issued = store.put("k", b"new")
        while store.waiting:
            assert store.get("k") == Versioned(b"old", 0)
            await asyncio.sleep(0)
        await issued
        assert store.get("k") == Versioned(b"new", 1)


class TestFilledThroughTheDecorator(LogStoreContract):
    """The tests of the contract with a full disk hold for the injected state, too."""

    @pytest.fixture
    def harness(self) -> Harness:
        class Filled(FaultyHarness):
            def fill_disk(self, store: Store) -> None:
                assert isinstance(store, FaultyStore)
                store.set_condition(FULL)

            def empty_disk(self, store: Store) -> None:
                assert isinstance(store, FaultyStore)
                store.set_condition(HEALTHY)

        return Filled(HEALTHY)


async def _opened(stored: bool = True) -> tuple[FaultyStore, FaultyLog]:
    store = with_faults(await MemoryStore.open(), _Draws(stored))
    log = await store.open_log("t")
    assert log is not None
    return store, log


async def test_a_full_disk_refuses_writes_definitely_and_goes_on_when_it_has_room():
    store, log = await _opened()
    first = await log.append([b"before"])
    await store.put("k", b"1")
    store.set_condition(FULL)
    for write in (log.append([b"lost"]), store.put("k", b"2"), store.put("new", b"")):
        with pytest.raises(StorageFull) as failure:
            await write
        assert failure.value.definite
    with pytest.raises(StorageFull):
        await store.open_log("another")
    assert store.log_names() == ["t"]

    store.set_condition(HEALTHY)
    with pytest.raises(StorageError, match="before it failed"):  # S5: poisoned until it is opened again
        await log.append([b"later"])
    again = await store.open_log("t")
    assert again is not None
    assert again is not log
    await again.append([b"after"])
    assert store.get("k") == Versioned(b"1", 0)
    assert await store.put("k", b"3") == 1
    assert data_of(await read_all(again)) == [b"before", b"after"]
    assert (await again.read(first, 1, 100))[0].data == b"before"


async def test_a_full_disk_still_reads_trims_and_deletes():
    store, log = await _opened()
    await log.append([b"1"])
    second = await log.append([b"2"])
    await store.put("k", b"1")
    await store.open_log("gone")
    store.set_condition(FULL)
    await log.trim(second)
    await store.delete("k")
    await store.delete_log("gone")
    assert data_of(await read_all(log)) == [b"2"]
    assert store.get("k") is None
    assert store.log_names() == ["t"]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_write_whose_sync_fails_has_an_indefinite_outcome_and_poisons_its_log(stored: bool):
    store, log = await _opened(stored)
    await log.append([b"before"])
    store.set_condition(FAILING)
    issued = [log.append([b"unknown"]), log.append([b"never"])]
    put = store.put("k", b"v")
    outcomes = await asyncio.gather(*issued, put, return_exceptions=True)
    assert [isinstance(one, StorageError) and one.definite for one in outcomes] == [False, True, False]

    with pytest.raises(StorageError, match="not opened"):
        await store.open_log("t")
    store.set_condition(HEALTHY)
    again = await store.open_log("t")
    assert again is not None
    assert data_of(await read_all(again)) == [b"before", *([b"unknown"] if stored else [])]
    assert (store.get("k") is not None) == stored
    await again.append([b"after"])
    assert await store.put("k", b"w") == (1 if stored else 0)


@pytest.mark.parametrize("stored", [True, False])
async def test_changes_on_a_failing_disk_fail_whether_or_not_they_happened(stored: bool):
    store, log = await _opened(stored)
    await log.append([b"1"])
    end = log.next_entry_id
    await store.put("k", b"")
    store.set_condition(FAILING)
    with pytest.raises(StorageError, match="not opened"):
        await store.open_log("new")
    for change in (log.trim(end), store.delete("k"), store.delete_log("t")):
        with pytest.raises(StorageError) as failure:
            await change
        assert not failure.value.definite
    assert store.log_names() == ([] if stored else ["t"])
    assert (store.get("k") is None) == stored


@pytest.mark.parametrize("condition", [FULL, FAILING])
async def test_an_append_that_fails_resolves_after_the_appends_before_it(condition: DiskCondition):
    """The topic that is opened again must not miss an append that becomes durable later (S1)."""
    backend = await MemoryStore.open()
    store = with_faults(backend, _Draws(stored=False))
    log = await store.open_log("t")
    assert log is not None
    backend.hold()
    before = log.append([b"1"])
    store.set_condition(condition)
    failed = log.append([b"2"])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not before.done()
    assert not failed.done()
    backend.release()
    with pytest.raises(StorageError):
        await failed
    assert before.done()
    assert before.exception() is None


async def test_appends_resolve_in_order_when_a_slow_disk_becomes_healthy():
    store, log = await _opened()
    resolved: list[int] = []

    def append(number: int) -> asyncio.Future[int]:
        future = log.append([b"%d" % number])
        future.add_done_callback(lambda _: resolved.append(number))
        return future

    issued = [append(0)]
    store.set_condition(DiskCondition("slow", 60_000))
    issued += [append(1), append(2)]
    assert store.waiting == 2
    store.set_condition(HEALTHY)
    assert store.waiting == 0
    issued.append(append(3))
    await asyncio.gather(*issued)
    assert resolved == [0, 1, 2, 3]
    assert data_of(await read_all(log)) == [b"0", b"1", b"2", b"3"]
    assert store.passes


async def test_writes_that_wait_for_a_slow_disk_fail_when_it_becomes_full():
    store, log = await _opened()
    store.set_condition(DiskCondition("slow", 60_000))
    first, second, trim = log.append([b"1"]), log.append([b"2"]), asyncio.ensure_future(log.trim(0))
    await asyncio.sleep(0)
    store.set_condition(FULL)
    outcomes = await asyncio.gather(first, second, trim, return_exceptions=True)
    assert isinstance(outcomes[0], StorageFull)
    assert isinstance(outcomes[1], StorageError)
    assert outcomes[1].definite
    assert outcomes[2] is None
    assert await read_all(log) == []


async def test_a_slow_disk_commits_what_is_issued_meanwhile_as_one_group(tmp_path: Path):
    backend = await open_sqlite(tmp_path / "log.sqlite", "us")
    store = with_faults(backend, Random(1))
    log = await store.open_log("t")
    assert log is not None
    loop = asyncio.get_running_loop()
    store.set_condition(DiskCondition("slow", 50))
    commits, begin = backend.commits, loop.time()
    await asyncio.gather(*(log.append([b"x"]) for _ in range(20)), store.put("k", b"v"))
    assert loop.time() - begin >= 0.05
    assert backend.commits == commits + 1
    await store.close()


async def test_closing_a_slow_store_stores_what_waits():
    backend = await MemoryStore.open()
    store = with_faults(backend, Random(1))
    log = await store.open_log("t")
    assert log is not None
    store.set_condition(DiskCondition("slow", 60_000))
    append = log.append([b"1"])
    await store.close()
    await append
    assert data_of(await read_all(backend._logs["t"])) == [b"1"]


async def test_a_cancelled_wait_does_not_cancel_the_write():
    store, log = await _opened()
    store.set_condition(DiskCondition("slow", 60_000))
    log.append([b"1"]).cancel()
    store.set_condition(HEALTHY)
    await log.append([b"2"])
    assert data_of(await read_all(log)) == [b"1", b"2"]


async def test_a_log_that_is_deleted_on_a_slow_disk_refuses_appends_at_once():
    store, log = await _opened()
    store.set_condition(DiskCondition("slow", 60_000))
    queued = log.append([b"1"])
    deletion = asyncio.ensure_future(store.delete_log("t"))
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="deleted"):
        await log.append([b"2"])
    store.set_condition(HEALTHY)
    await deletion
    with pytest.raises(StorageError, match="deleted"):
        await queued
    assert store.log_names() == []


async def test_a_store_that_can_be_fenced_stays_replaceable():
    class Fenced(MemoryStore):
        fenced: asyncio.Future[StorageFenced]

    backend = Fenced((await MemoryStore.open()).disk, 0)
    backend.fenced = asyncio.get_running_loop().create_future()
    assert isinstance(with_faults(backend, Random(1)), Replaceable)
    assert not isinstance(with_faults(await MemoryStore.open(), Random(1)), Replaceable)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiskCondition.of("broken"), "'broken' is none of healthy, slow, full, failing"),
        (lambda: DiskCondition.of("slow", 0), "more than 0"),
        (lambda: DiskCondition.of("slow", -1), "more than 0"),
        (lambda: DiskCondition.of("slow", 60_001), "at most 60000"),
        (lambda: DiskCondition.of("slow", float("nan")), "more than 0"),
        (lambda: DiskCondition.of("full", 5), "requires the state slow"),
        (lambda: DiskCondition.of("slow", True), "no number"),
        (lambda: DiskCondition.of("slow", "1"), "no number"),  # type: ignore[arg-type]
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(make: Callable[[], DiskCondition], message: str):
    with pytest.raises(ValueError, match=message):
        make()
