"""The suite every storage backend inherits: `class TestX(LogStoreContract)` with a fixture `harness`.

It uses `emulator.storage.contract` and the `Harness` only. S1 to S8 are the guarantees. Entry ids are those
that the store returned, never counted: between appends they may jump (S3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from emulator.errors import StorageError, StorageFenced, StorageFull
from emulator.storage.contract import Log, Versioned
from tests.conftest import Runner

from .harness import DEADLINE_SECONDS, Harness, data_of, open_log, opened, read_all

LARGE = 300_000
"""Bytes that do not fit on a full disk."""


class LogStoreContract:
    @pytest.fixture
    def runner(self, harness: Harness) -> Runner:
        """Run a test within the deadline, and close its stores."""

        async def within_deadline(test: Coroutine[Any, Any, None]) -> None:
            try:
                await asyncio.wait_for(test, DEADLINE_SECONDS)
            finally:
                await harness.close()

        return lambda test: asyncio.run(within_deadline(test))

    # ── S1 Order ──────────────────────────────────────────────────────────────────────────────────────

    async def test_s1_appends_become_durable_in_the_order_in_which_they_were_issued(self, harness: Harness):
        log = await open_log(await harness.open(), "t")
        issued = [log.append([b"%d-%d" % (n, i) for i in range(n % 3 + 1)]) for n in range(100)]
        firsts = await asyncio.gather(*issued)
        assert firsts == sorted(set(firsts))
        assert data_of(await read_all(log)) == [
            b"%d-%d" % (n, i) for n in range(100) for i in range(n % 3 + 1)
        ]

    async def test_s1_futures_of_one_log_resolve_in_the_order_of_the_appends(self, harness: Harness):
        """A caller that waits for the tenth knows that the ninth is durable too."""
        log = await open_log(await harness.open(), "t")
        resolved: list[int] = []
        issued = [log.append([b"x"]) for _ in range(50)]
        for n, future in enumerate(issued):
            future.add_done_callback(lambda _, n=n: resolved.append(n))
        await asyncio.gather(*issued)
        assert resolved == list(range(50))

    async def test_s1_puts_of_one_key_take_effect_in_the_order_in_which_they_were_issued(
        self, harness: Harness
    ):
        """The last put wins, and the versions count all of them."""
        store = await harness.open()
        issued = [store.put("k", b"%d" % n) for n in range(50)]
        assert await asyncio.gather(*issued) == list(range(50))
        assert store.get("k") == Versioned(b"49", 49)

    async def test_s1_put_and_delete_of_one_key_take_effect_in_the_order_of_issue(self, harness: Harness):
        """Put, delete, put within one group: the last put counts, and its version starts again."""
        store = await harness.open()
        outcomes: list[Any] = [store.put("k", b"1"), store.delete("k"), store.put("k", b"2")]
        outcomes += [store.put("gone", b"1"), store.delete("gone")]
        assert await asyncio.gather(*outcomes) == [0, None, 0, 0, None]
        assert store.get("k") == Versioned(b"2", 0)
        assert store.get("gone") is None

    # ── S2 Durability ─────────────────────────────────────────────────────────────────────────────────

    async def test_s2_what_was_acknowledged_is_there_after_a_restart(self, harness: Harness):
        """Entries, ids, ends, sizes and keys are the same after the restart."""
        store, log = await opened(harness.open())
        await asyncio.gather(*(log.append([b"entry %d" % n]) for n in range(20)), store.put("k", b"v"))
        before = await read_all(log), log.ledger_id, log.next_entry_id, log.size_bytes
        store, log = await opened(harness.reopen(store))
        assert (await read_all(log), log.ledger_id, log.next_entry_id, log.size_bytes) == before
        assert store.get("k") == Versioned(b"v", 0)
        assert store.log_names() == ["t"]
        assert (store.has_log("t"), store.has_log("u")) == (True, False)

    async def test_s2_what_was_acknowledged_is_there_after_a_crash(self, harness: Harness):
        """No log or store was closed, and nothing acknowledged is missing."""
        store, log = await opened(harness.open())
        await asyncio.gather(*(log.append([b"entry %d" % n]) for n in range(20)), store.put("k", b"v"))
        await store.put("k", b"w")
        await log.trim(5)
        before = await read_all(log)
        store, log = await opened(harness.crash(store))
        assert await read_all(log) == before
        assert store.get("k") == Versioned(b"w", 1)

    async def test_s2_an_opened_log_exists_durably(self, harness: Harness):
        """A topic created and never written to is still there after a crash."""
        store = await harness.open()
        created = await open_log(store, "t")
        store = await harness.crash(store)
        found = await store.open_log("t", create=False)
        assert found is not None
        assert found.ledger_id == created.ledger_id

    async def test_s2_a_created_log_exists_durably(self, harness: Harness):
        """A store that creates logs without a coroutine leaves every other case to `open_log`."""
        store = await harness.open()
        creation = store.create_log("t")
        if creation is None:
            return  # this backend, or the condition of its disk, needs `open_log`
        assert not store.has_log("t"), "it is not durable yet"
        opened_too, created = await asyncio.gather(store.open_log("t"), creation)
        assert created is opened_too, "both requests get the same log"
        assert store.create_log("t") is None
        await created.append([b"x"])
        store = await harness.crash(store)
        assert store.create_log("t") is None
        assert data_of(await read_all(await open_log(store, "t"))) == [b"x"]

    # ── S3 Positions ──────────────────────────────────────────────────────────────────────────────────

    async def test_s3_ids_inside_one_append_are_consecutive(self, harness: Harness):
        log = await open_log(await harness.open(), "t")
        await log.append([b"before"])
        first = await log.append([b"a", b"b", b"c"])
        entries = await log.read(first, 3, 100)
        assert [(entry.entry_id, entry.data) for entry in entries] == [
            (first, b"a"),
            (first + 1, b"b"),
            (first + 2, b"c"),
        ]
        assert log.next_entry_id == first + 3

    async def test_s3_ids_are_never_used_twice_not_even_when_everything_was_trimmed(self, harness: Harness):
        """An empty log continues its ids, after a restart and after a crash."""
        store = await harness.open()
        seen: list[int] = []
        for again in (harness.reopen, harness.crash, harness.reopen):
            log = await open_log(store, "t")
            seen.append(await log.append([b"x"]))
            seen.append(await log.append([b"y"]))
            await log.trim(log.next_entry_id)
            end = log.next_entry_id
            store = await again(store)
            log = await open_log(store, "t")
            assert log.next_entry_id >= end
        assert seen == sorted(set(seen))

    async def test_s3_a_deleted_log_comes_back_with_a_larger_ledger_id(self, harness: Harness):
        """So a position names one entry permanently, also across a restart."""
        store = await harness.open()
        ledgers: list[int] = []
        for again in (None, harness.reopen, harness.crash, None):
            log = await open_log(store, "t")
            ledgers.append(log.ledger_id)
            await log.append([b"x"])
            await store.delete_log("t")
            store = await again(store) if again else store
            assert await store.open_log("t", create=False) is None
        assert ledgers == sorted(set(ledgers))
        assert await read_all(await open_log(store, "t")) == []

    # ── S4 Group commit ───────────────────────────────────────────────────────────────────────────────

    async def test_s4_what_is_issued_together_shares_few_durability_points(self, harness: Harness):
        """However many logs and keys it touches."""
        store = await harness.open()
        logs = [await open_log(store, f"t{n}") for n in range(10)]
        before = harness.commits(store)
        appends = [log.append([b"x" * 100]) for _ in range(20) for log in logs]
        await asyncio.gather(*appends, *(store.put(f"k{n}", b"v") for n in range(100)))
        assert harness.commits(store) - before <= 20

    # ── S5 Failure ────────────────────────────────────────────────────────────────────────────────────

    async def test_s5_when_an_append_fails_everything_behind_it_fails_too(self, harness: Harness):
        """Nothing is stored after a hole, although there would be room for the small ones."""
        store, log = await opened(harness.open())
        await log.append([b"good"])
        harness.fill_disk(store)
        issued = [log.append([bytes(LARGE)]), *(log.append([b"small"]) for _ in range(10))]
        errors = await asyncio.gather(*issued, return_exceptions=True)
        harness.empty_disk(store)
        assert isinstance(errors[0], StorageFull)
        assert all(isinstance(error, StorageError) and error.definite for error in errors)
        assert data_of(await read_all(log)) == [b"good"]

    async def test_s5_a_poisoned_log_refuses_appends_until_it_is_opened_again(self, harness: Harness):
        """The reopened log is another object, which knows what survived and accepts appends."""
        store, log = await opened(harness.open())
        kept = await log.append([b"kept"])
        await self._fail_an_append(harness, store, log)
        with pytest.raises(StorageError) as refused:
            await log.append([b"refused"])
        assert refused.value.definite
        again = await open_log(store, "t")
        assert again is not log
        assert again.ledger_id == log.ledger_id
        assert await again.append([b"after"]) > kept
        assert data_of(await read_all(again)) == [b"kept", b"after"]
        assert await store.open_log("t") is again
        with pytest.raises(StorageError):
            await log.append([b"still refused"])

    async def test_s5_a_failed_append_leaves_no_trace_after_a_restart(self, harness: Harness):
        """Nor does it make an id be used twice."""
        store, log = await opened(harness.open())
        kept = await log.append([b"kept"])
        await self._fail_an_append(harness, store, log)
        store, log = await opened(harness.reopen(store))
        assert data_of(await read_all(log)) == [b"kept"]
        assert await log.append([b"after"]) > kept

    async def test_s5_logs_and_keys_that_were_not_in_the_failed_group_go_on(self, harness: Harness):
        """A failure is no reason to stop the region."""
        store = await harness.open()
        failing, other = await open_log(store, "failing"), await open_log(store, "other")
        await self._fail_an_append(harness, store, failing)
        await other.append([b"x"])
        assert await store.put("k", b"v") == 0
        assert data_of(await read_all(other)) == [b"x"]

    async def test_s5_a_key_whose_put_failed_refuses_puts_until_it_is_read_again(self, harness: Harness):
        """Reading shows the value that survived, and versions go on from there."""
        store = await harness.open()
        await store.put("k", b"kept")
        harness.fill_disk(store)
        failing = [store.put("k", bytes(LARGE)), store.put("k", bytes(LARGE))]
        errors = await asyncio.gather(*failing, return_exceptions=True)
        harness.empty_disk(store)
        assert isinstance(errors[0], StorageFull)
        assert isinstance(errors[1], StorageError)
        with pytest.raises(StorageError):
            await store.put("k", b"refused")
        with pytest.raises(StorageError):
            await store.delete("k")
        assert store.get("k") == Versioned(b"kept", 0)
        assert await store.put("k", b"after", expected_version=0) == 1

    async def _fail_an_append(self, harness: Harness, store: Any, log: Log) -> None:
        harness.fill_disk(store)
        with pytest.raises(StorageFull):
            await log.append([bytes(LARGE)])
        harness.empty_disk(store)

    # ── S6 One owner ──────────────────────────────────────────────────────────────────────────────────

    async def test_s6_two_owners_cannot_both_write(self, harness: Harness):
        """Either the second is rejected when it opens, or the first is fenced from then on."""
        first = await harness.open()
        log = await open_log(first, "t")
        await log.append([b"x"])
        try:
            await harness.open()
        except StorageError:
            await log.append([b"y"])
        else:
            with pytest.raises(StorageFenced):
                await log.append([b"y"])

    # ── S7 Reads see what is durable ──────────────────────────────────────────────────────────────────

    async def test_s7_an_append_is_not_visible_before_its_future_resolves(self, harness: Harness):
        """Neither in the end of the log, nor in its size, nor to a reader."""
        log = await open_log(await harness.open(), "t")
        await log.append([b"first"])
        end, size = log.next_entry_id, log.size_bytes
        issued = log.append([b"second"])
        while not issued.done():
            assert (log.next_entry_id, log.size_bytes) == (end, size)
            visible = await log.read(0, 10, 1000)
            assert issued.done() or data_of(visible) == [b"first"]
            await asyncio.sleep(0)
        assert log.next_entry_id == issued.result() + 1
        assert log.size_bytes == size + len(b"second")
        assert data_of(await log.read(0, 10, 1000)) == [b"first", b"second"]

    async def test_s7_a_key_has_its_old_value_until_the_future_of_the_put_resolves(self, harness: Harness):
        """`get` and `scan` give the durable value."""
        store = await harness.open()
        await store.put("k", b"old")
        issued = store.put("k", b"new")
        while not issued.done():
            assert store.get("k") == Versioned(b"old", 0)
            assert store.scan("k") == [("k", Versioned(b"old", 0))]
            await asyncio.sleep(0)
        assert store.get("k") == Versioned(b"new", 1)

    async def test_s7_a_reader_beside_writers_sees_every_entry_once_and_in_order(self, harness: Harness):
        """A reader at the end of a growing log never gets ahead of what is durable and misses nothing."""
        log = await open_log(await harness.open(), "t")
        seen: list[bytes] = []

        async def follow() -> None:
            start = 0
            while len(seen) < 500:
                page = await log.read(start, 7, 10_000)
                assert not page or page[-1].entry_id < log.next_entry_id
                seen.extend(data_of(page))
                start = page[-1].entry_id + 1 if page else start
                await asyncio.sleep(0)

        async def write() -> None:
            for n in range(0, 500, 5):
                issued = [log.append([b"%d" % (n + i)]) for i in range(5)]
                await asyncio.wait(issued[: n % 6] or issued)

        await asyncio.gather(follow(), write())
        assert seen == [b"%d" % n for n in range(500)]

    # ── S8 The unsynced tail ──────────────────────────────────────────────────────────────────────────

    async def test_s8_after_a_crash_a_log_is_a_prefix_with_everything_acknowledged(self, harness: Harness):
        """Writes in flight may be there or not, but nothing is there without everything before it."""
        store, log = await opened(harness.open())
        issued = [log.append([b"%d" % n]) for n in range(30)]
        await asyncio.wait(issued[:10])
        issued += [log.append([b"%d" % n]) for n in range(30, 60)]
        acknowledged = sum(future.done() for future in issued)
        log = await open_log(await harness.crash(store), "t")
        found = data_of(await read_all(log))
        assert len(found) >= acknowledged
        assert found == [b"%d" % n for n in range(len(found))]

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────

    async def test_a_new_log_is_empty(self, harness: Harness):
        log = await open_log(await harness.open(), "t")
        assert log.name == "t"
        assert log.first_entry_id == log.next_entry_id
        assert log.size_bytes == 0
        assert await log.read(0, 10, 1000) == []
        assert await log.read(10**6, 10, 1000) == []

    async def test_a_read_begins_at_the_id_it_is_given(self, harness: Harness):
        """Also in the middle of an append, and in an append before the restart."""
        store, log = await opened(harness.open())
        for n in range(10):
            await log.append([b"%d-%d" % (n, i) for i in range(5)])
        everything = await read_all(log)
        for _ in range(2):
            for index, entry in enumerate(everything):
                assert await log.read(entry.entry_id, 3, 1000) == everything[index : index + 3]
            assert await log.read(log.next_entry_id, 3, 1000) == []
            assert await log.read(log.next_entry_id + 100, 3, 1000) == []
            assert await log.read(-5, 2, 1000) == everything[:2]
            store, log = await opened(harness.reopen(store))

    async def test_a_read_stops_at_its_limits(self, harness: Harness):
        """Never more entries than requested; the last one is the one that reaches the bytes."""
        store, log = await opened(harness.open())
        await log.append([bytes(10) for _ in range(10)])
        await log.append([bytes(10) for _ in range(10)])
        for _ in range(2):
            for max_entries, max_bytes, count in [
                (1, 1000, 1),
                (15, 1000, 15),
                (100, 1000, 20),
                (100, 1, 1),
                (100, 0, 1),
                (100, 10, 1),
                (100, 11, 2),
                (100, 105, 11),
                (3, 105, 3),
                (0, 1000, 0),
            ]:
                assert len(await log.read(0, max_entries, max_bytes)) == count, (max_entries, max_bytes)
            store, log = await opened(harness.reopen(store))

    async def test_an_entry_larger_than_max_bytes_is_read_all_the_same(self, harness: Harness):
        """5 MB in one entry, whole, after a restart too."""
        store, log = await opened(harness.open())
        large = bytes(range(256)) * (5 * 1024 * 4)
        await log.append([b"a", large, b"b"])
        for _ in range(2):
            assert data_of(await read_all(log, max_bytes=1000)) == [b"a", large, b"b"]
            assert log.size_bytes == len(large) + 2
            store, log = await opened(harness.reopen(store))

    async def test_thousands_of_small_entries_come_back_as_they_were(self, harness: Harness):
        """In appends of all sizes, empty entries among them."""
        store, log = await opened(harness.open())
        data = [b"%d" % n * (n % 7) for n in range(10_000)]
        cuts = [0, 1, 2, 5, 100, 1100, 1101, 5000, 9999, 10_000]
        await asyncio.gather(
            *(log.append(data[a:b]) for a, b in pairwise(cuts)),
        )
        assert log.size_bytes == sum(map(len, data))
        assert data_of(await read_all(log, max_entries=997, max_bytes=3000)) == data
        store, log = await opened(harness.reopen(store))
        assert data_of(await read_all(log, max_entries=997, max_bytes=3000)) == data

    async def test_an_append_keeps_the_entries_as_they_were_when_it_was_issued(self, harness: Harness):
        """The caller may use its list again at once."""
        log = await open_log(await harness.open(), "t")
        entries = [b"a", b"b"]
        issued = log.append(entries)
        entries.clear()
        await issued
        assert data_of(await read_all(log)) == [b"a", b"b"]

    async def test_cancelling_the_wait_does_not_cancel_the_write(self, harness: Harness):
        """The entry is stored, and later ones resolve as usual."""
        store, log = await opened(harness.open())
        futures: list[asyncio.Future[Any]] = [log.append([b"1"]), store.put("k", b"v"), store.put("k", b"w")]
        for future in futures:
            future.cancel()
        await log.append([b"2"])
        assert await store.put("k", b"x") == 2
        assert data_of(await read_all(log)) == [b"1", b"2"]

    # ── Trimming ──────────────────────────────────────────────────────────────────────────────────────

    async def test_trimmed_entries_are_gone_for_good(self, harness: Harness):
        store, log = await opened(harness.open())
        for n in range(10):
            await log.append([b"%d-%d" % (n, i) for i in range(5)])
        everything = await read_all(log)
        for before in (everything[7].entry_id, everything[25].entry_id, everything[3].entry_id):
            await log.trim(before)
        for _ in range(2):
            assert log.first_entry_id <= everything[25].entry_id
            kept = [entry for entry in everything if entry.entry_id >= log.first_entry_id]
            assert await read_all(log) == kept
            assert await log.read(everything[0].entry_id, 1, 1000) == kept[:1]
            assert log.size_bytes == sum(len(entry.data) for entry in kept)
            store, log = await opened(harness.reopen(store))

    async def test_trimming_all_leaves_an_empty_log_that_goes_on(self, harness: Harness):
        log = await open_log(await harness.open(), "t")
        await log.append([b"1", b"2"])
        await log.trim(log.next_entry_id + 1000)
        assert log.first_entry_id == log.next_entry_id
        assert log.size_bytes == 0
        assert await log.read(0, 10, 1000) == []
        first = await log.append([b"3"])
        assert await log.read(0, 10, 1000) == [(first, b"3")]
        assert log.size_bytes == 1

    async def test_trimming_never_takes_what_is_not_durable_yet(self, harness: Harness):
        """Appends in flight stay, whatever id was named."""
        log = await open_log(await harness.open(), "t")
        await log.append([b"1"])

        async def append() -> int:
            return await log.append([b"2"])

        first, _ = await asyncio.gather(append(), log.trim(10**9))
        assert await read_all(log) == [(first, b"2")]

    async def test_a_log_never_begins_earlier_again(self, harness: Harness):
        """Of two trims in flight the farther one counts, whichever was issued last."""
        store, log = await opened(harness.open())
        for n in range(10):
            await log.append([b"%d-%d" % (n, i) for i in range(5)])
        far, near = (await read_all(log))[33].entry_id, (await read_all(log))[7].entry_id
        await log.trim(near)
        least = log.first_entry_id
        await asyncio.gather(log.trim(far), log.trim(near + 1))
        first, kept = log.first_entry_id, await read_all(log)
        assert least <= first <= far
        assert log.size_bytes == sum(len(entry.data) for entry in kept)
        store, log = await opened(harness.reopen(store))
        assert (log.first_entry_id, await read_all(log)) == (first, kept)

    async def test_reading_goes_on_while_entries_are_trimmed(self, harness: Harness):
        """A reader behind the trimmed end is moved forward, and misses no kept entry."""
        store, log = await opened(harness.open())
        for n in range(50):
            await log.append([b"%d" % (10 * n + i) for i in range(10)])
        store, log = await opened(harness.reopen(store))
        everything = await read_all(log)

        async def follow() -> list[int]:
            seen: list[int] = []
            start = 0
            while page := await log.read(start, 3, 1000):
                seen += [int(entry.data) for entry in page]
                start = page[-1].entry_id + 1
            return seen

        async def trim() -> None:
            for entry in everything[::40]:
                await log.trim(entry.entry_id)

        seen, _ = await asyncio.gather(follow(), trim())
        assert seen == sorted(set(seen))
        assert seen[-1] == 499

    # ── Logs ──────────────────────────────────────────────────────────────────────────────────────────

    async def test_opening_a_log_twice_gives_the_same_object(self, harness: Harness):
        store = await harness.open()
        first, second = await asyncio.gather(store.open_log("t"), store.open_log("t"))
        assert first is second is await store.open_log("t", create=False)

    async def test_an_absent_log_is_opened_only_when_it_may_be_created(self, harness: Harness):
        """Looking for it leaves nothing behind."""
        store = await harness.open()
        assert await store.open_log("t", create=False) is None
        assert store.log_names() == []
        assert await store.open_log("t") is not None
        assert store.log_names() == ["t"]

    async def test_logs_are_named_in_order(self, harness: Harness):
        """Whatever characters a topic has in its name."""
        names = ["persistent://a/b/z", "persistent://a/b/a-partition-0", "ü/%/_", "'; --", "persistent://a"]
        store = await harness.open()
        for name in names:
            await (await open_log(store, name)).append([name.encode()])
        assert store.log_names() == sorted(names)
        store = await harness.reopen(store)
        assert store.log_names() == sorted(names)
        for name in names:
            assert data_of(await read_all(await open_log(store, name))) == [name.encode()]

    async def test_logs_do_not_see_each_others_entries(self, harness: Harness):
        """Although one commit holds entries of many."""
        store = await harness.open()
        logs = [await open_log(store, f"t{n}") for n in range(5)]
        await asyncio.gather(*(log.append([log.name.encode()]) for _ in range(10) for log in logs))
        for log in logs:
            assert data_of(await read_all(log)) == [log.name.encode()] * 10

    async def test_a_deleted_log_is_gone_and_its_handle_is_of_no_use(self, harness: Harness):
        """Appends and reads raise; other logs of its store are not affected."""
        store = await harness.open()
        log, other = await open_log(store, "t"), await open_log(store, "other")
        await log.append([b"x"])
        await other.append([b"y"])
        await store.delete_log("t")
        assert store.log_names() == ["other"]
        with pytest.raises(StorageError) as refused:
            await log.append([b"z"])
        assert refused.value.definite
        with pytest.raises(StorageError):
            await log.read(0, 1, 100)
        assert data_of(await read_all(other)) == [b"y"]
        store = await harness.reopen(store)
        assert store.log_names() == ["other"]

    async def test_a_log_created_again_does_not_show_what_was_deleted(self, harness: Harness):
        """Also when delete and create are issued together."""
        store, log = await opened(harness.open())
        await log.append([b"old"])
        _, again = await asyncio.gather(store.delete_log("t"), store.open_log("t"))
        assert again is not None
        assert again is not log
        assert again.ledger_id > log.ledger_id
        assert await read_all(again) == []
        await again.append([b"new"])
        assert data_of(await read_all(again)) == [b"new"]
        assert again.size_bytes == 3

    async def test_deleting_a_log_that_is_not_there_is_no_error(self, harness: Harness):
        store = await harness.open()
        await store.delete_log("t")
        await open_log(store, "t")
        await asyncio.gather(store.delete_log("t"), store.delete_log("t"))
        assert store.log_names() == []

    # ── Keys ──────────────────────────────────────────────────────────────────────────────────────────

    async def test_versions_count_the_puts_of_a_key_and_start_again_after_a_delete(self, harness: Harness):
        store = await harness.open()
        assert store.get("k") is None
        assert await store.put("k", b"a") == 0
        assert await store.put("k", b"") == 1
        store = await harness.reopen(store)
        assert store.get("k") == Versioned(b"", 1)
        assert await store.put("k", b"c") == 2
        await store.delete("k")
        assert store.get("k") is None
        store = await harness.reopen(store)
        assert store.get("k") is None
        assert await store.put("k", b"d") == 0
        await store.delete("never there")

    async def test_a_put_with_the_wrong_expected_version_changes_nothing(self, harness: Harness):
        """It certainly did not happen, and the next put is not affected."""
        store = await harness.open()
        for wrong in (0, 1, 7):
            with pytest.raises(StorageError) as refused:
                await store.put("k", b"x", expected_version=wrong)
            assert refused.value.definite
        assert await store.put("k", b"a", expected_version=-1) == 0
        for wrong in (-1, 1, 7):
            with pytest.raises(StorageError):
                await store.put("k", b"x", expected_version=wrong)
        assert store.get("k") == Versioned(b"a", 0)
        assert await store.put("k", b"b", expected_version=0) == 1
        await store.delete("k")
        assert await store.put("k", b"c", expected_version=-1) == 0

    async def test_expected_version_counts_what_is_already_issued(self, harness: Harness):
        """Of two callers that expect the same version one wins, although neither write is durable yet."""
        store = await harness.open()
        outcomes = await asyncio.gather(
            store.put("k", b"first", expected_version=-1),
            store.put("k", b"second", expected_version=-1),
            store.put("k", b"third", expected_version=0),
            return_exceptions=True,
        )
        assert outcomes[0] == 0
        assert isinstance(outcomes[1], StorageError)
        assert outcomes[2] == 1
        assert store.get("k") == Versioned(b"third", 1)

    async def test_scan_gives_the_keys_with_a_prefix_in_order(self, harness: Harness):
        """The prefix is literal, whatever characters it contains."""
        store = await harness.open()
        keys = ["cursor/a/1", "cursor/a/2", "cursor/ab/1", "cursor/a%/1", "cursor/a_/1", "topic/ü", "cursor"]
        await asyncio.gather(*(store.put(key, key.encode()) for key in keys))
        for _ in range(2):
            for prefix in ("cursor/a/", "cursor/a%", "cursor/a_", "cursor", "", "topic/", "nothing"):
                expected = sorted(key for key in keys if key.startswith(prefix))
                assert [key for key, _ in store.scan(prefix)] == expected
                assert all(value == Versioned(key.encode(), 0) for key, value in store.scan(prefix))
            store = await harness.reopen(store)

    async def test_a_large_value_and_many_keys_survive(self, harness: Harness):
        store = await harness.open()
        large = bytes(range(256)) * 4096
        await asyncio.gather(
            store.put("large", large), *(store.put(f"k{n:04}", b"%d" % n) for n in range(1000))
        )
        await asyncio.gather(*(store.delete(f"k{n:04}") for n in range(0, 1000, 2)))
        store = await harness.reopen(store)
        assert store.get("large") == Versioned(large, 0)
        assert [key for key, _ in store.scan("k")] == [f"k{n:04}" for n in range(1, 1000, 2)]

    # ── Closing ───────────────────────────────────────────────────────────────────────────────────────

    async def test_closing_makes_everything_issued_durable(self, harness: Harness):
        """Futures without a waiter also resolve before `close` returns."""
        store, log = await opened(harness.open())
        issued: list[asyncio.Future[Any]] = [log.append([b"%d" % n]) for n in range(50)]
        issued.append(store.put("k", b"v"))
        await store.close()
        assert all(future.done() for future in issued)
        store = await harness.open()
        assert len(await read_all(await open_log(store, "t"))) == 50
        assert store.get("k") == Versioned(b"v", 0)

    async def test_closing_twice_is_harmless(self, harness: Harness):
        store = await harness.open()
        await asyncio.gather(store.close(), store.close())
        await store.close()
        await (await harness.open()).close()

    async def test_a_closed_store_refuses_everything_and_stores_nothing(self, harness: Harness):
        """With an error, not with a future that never resolves."""
        store, log = await opened(harness.open())
        await store.close()
        for use in (
            lambda: log.append([b"x"]),
            lambda: store.put("k", b"v"),
            lambda: store.delete("k"),
            lambda: store.open_log("other"),
            lambda: store.delete_log("t"),
        ):
            with pytest.raises(StorageError) as refused:
                await use()
            assert refused.value.definite
        store = await harness.open()
        assert await read_all(await open_log(store, "t")) == []
        assert store.get("k") is None
