"""The contract M1 to M7 of every medium of the configuration store, tested through the `Metadata` of regions.

To test a medium, subclass it as `class TestX(MetadataContract)` with a fixture `place` that returns a `Place`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from emulator.broker.metadata.store import Metadata
from emulator.errors import StorageError
from emulator.model.values import Change
from emulator.storage.configuration.contract import ConfigurationMedium, ConfigurationRows, Conflict

DEADLINE_SECONDS = 20


class Place:
    """The location of one medium, which can be opened several times and made unavailable."""

    changes_kept = 20

    async def open(self) -> ConfigurationMedium:
        raise NotImplementedError

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a test on the event loop that the medium requires."""
        asyncio.run(asyncio.wait_for(story, DEADLINE_SECONDS))

    def go_away(self) -> None:
        pytest.skip("this medium cannot be away here")

    def come_back(self) -> None:
        pass

    @contextlib.asynccontextmanager
    async def region(self) -> AsyncIterator[Metadata]:
        """Open the metadata of a region that follows the store; close it after the `async with` block."""
        tasks: set[asyncio.Task[Any]] = set()

        def spawn(work: Coroutine[Any, Any, Any]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        metadata = Metadata(await self.open(), spawn)
        await metadata.open()
        try:
            yield metadata
        finally:
            await metadata.close()
            for task in list(tasks):
                task.cancel()


async def told(condition: Callable[[], bool], *regions: Metadata) -> None:
    """Wait until the condition holds. It is evaluated after each change that one of the regions receives."""
    news = asyncio.Event()
    for region in regions:
        region.watch("", lambda change: news.set())
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            news.clear()
            await news.wait()


def value_of(metadata: Metadata, path: str) -> bytes | None:
    change = metadata.get(path)
    return None if change is None else change.value


class MetadataContract:
    @pytest.fixture
    def runner(self, place: Place) -> Callable[[Coroutine[Any, Any, None]], None]:
        return place.run

    async def test_m1_a_writer_reads_its_own_write(self, place: Place) -> None:
        async with place.region() as us:
            for number in range(5):
                await us.put("a", b"%d" % number)
                assert value_of(us, "a") == b"%d" % number
            await us.put("a", None)
            assert us.get("a") is None

    async def test_m1_what_was_put_outlives_every_region(self, place: Place) -> None:
        async with place.region() as us:
            await us.put("a", b"1")
            await us.put("b", b"2")
            await us.put("b", None)
        async with place.region() as eu:
            assert [(change.path, change.value) for change in eu.list("")] == [("a", b"1")]

    async def test_m2_a_region_whose_store_is_unavailable_continues_with_its_mirror(
        self, place: Place
    ) -> None:
        async with place.region() as us, place.region() as eu:
            await us.put("a", b"1")
            await told(lambda: value_of(eu, "a") == b"1", eu)
            place.go_away()
            with pytest.raises(StorageError) as failure:
                await us.put("a", b"2")
            assert not isinstance(failure.value, Conflict)
            assert value_of(us, "a") == value_of(eu, "a") == b"1"
            place.come_back()
            await us.put("a", b"3")
            await told(lambda: value_of(eu, "a") == b"3", eu)

    async def test_m3_every_region_receives_every_change_once_and_in_order(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:
            heard: dict[str, list[Change]] = {"us": [], "eu": []}
            us.watch("", heard["us"].append)
            eu.watch("", heard["eu"].append)
            writes = [one.put(f"p{n % 3}", b"%d" % n) for n in range(8) for one in (us, eu)]
            await asyncio.gather(*writes)
            await told(lambda: us.revision == eu.revision and len(heard["eu"]) == 16, us, eu)
            assert heard["us"] == heard["eu"]
            revisions = [change.revision for change in heard["us"]]
            assert revisions == list(range(revisions[0], revisions[0] + 16))

    async def test_m3_a_watch_can_read_the_change_it_receives(self, place: Place) -> None:
        async with place.region() as us:
            read: list[bool] = []
            us.watch("a/", lambda change: read.append(us.get(change.path) == change))
            await us.put("a/1", b"x")
            await us.put("b", b"x")
            assert read == [True]

    async def test_m4_of_concurrent_writes_of_one_version_one_succeeds(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:
            outcomes = await asyncio.gather(
                *(one.put("a", b"%d" % n, expected=-1) for n in range(4) for one in (us, eu)),
                return_exceptions=True,
            )
            assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
            conflict = next(outcome for outcome in outcomes if isinstance(outcome, Conflict))
            assert conflict.definite
            assert conflict.current is not None
            assert conflict.current.version == 0

    async def test_m4_a_path_that_was_deleted_begins_anew(self, place: Place) -> None:
        async with place.region() as us:
            await us.put("a", b"1")
            await us.put("a", b"2", expected=0)
            with pytest.raises(Conflict):
                await us.put("a", None, expected=0)
            await us.put("a", None, expected=1)
            await us.put("a", b"3", expected=-1)
            change = us.get("a")
            assert change is not None
            assert change.version == 0

    async def test_m4_no_update_is_lost(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:

            def one_more(value: bytes | None) -> bytes:
                return b"%d" % (int(value or b"0") + 1)

            await asyncio.gather(*(one.update("n", one_more) for one in (us, eu) * 5))
            await told(lambda: value_of(eu, "n") == b"10", eu)

    async def test_m5_a_region_that_missed_too_much_receives_the_difference(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:
            await us.put("gone", b"x")
            await us.put("same", b"x")
            await told(lambda: eu.revision == us.revision, us, eu)
            heard: list[Change] = []
            eu.watch("", heard.append)
            eu._reading = True  # the region reads no changes until this is reset
            for number in range(place.changes_kept + 5):
                await us.put("moves", b"%d" % number)
            await us.put("gone", None)
            for number in range(place.changes_kept + 5):
                await us.put("moves", b"%d" % number)
            eu._reading = False
            eu._start_reading()
            await told(lambda: eu.revision == us.revision, us, eu)
            assert eu.list("") == us.list("")
            assert {change.path for change in heard} == {"moves", "gone"}

    async def test_m6_a_region_receives_the_commits_of_others(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:
            for number in range(3):
                await us.put("a", b"%d" % number)
                await told(lambda number=number: value_of(eu, "a") == b"%d" % number, eu)  # type: ignore[misc]

    async def test_m7_the_changes_of_a_transaction_become_visible_together(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:
            torn: list[bool] = []
            eu.watch("a", lambda change: torn.append(value_of(eu, "b") is None))

            def both(rows: ConfigurationRows) -> int:
                rows.put("b", b"1")
                rows.put("a", b"1")
                found = rows.get("a")
                assert found is not None
                return found.version

            assert await us.transact(both) == 0
            assert (value_of(us, "a"), value_of(us, "b")) == (b"1", b"1")
            await told(lambda: value_of(eu, "a") == b"1", eu)
            assert torn == [False]

    async def test_m7_a_transaction_that_fails_changes_nothing(self, place: Place) -> None:
        async with place.region() as us:
            await us.put("a", b"1")

            def fails(rows: ConfigurationRows) -> None:
                rows.put("a", None)
                rows.put("b", b"2")
                raise ValueError("on second thoughts")

            with pytest.raises(ValueError, match="second thoughts"):
                await us.transact(fails)
            await us.put("c", b"3")
            assert (value_of(us, "a"), value_of(us, "b")) == (b"1", None)

    async def test_m7_transactions_of_two_regions_come_one_after_the_other(self, place: Place) -> None:
        async with place.region() as us, place.region() as eu:

            def one_more(rows: ConfigurationRows) -> None:
                for path in ("a", "b"):
                    found = rows.get(path)
                    rows.put(path, b"%d" % (int(found.value or b"0") + 1 if found else 1))

            await asyncio.gather(*(one.transact(one_more) for one in (us, eu) * 5))
            await us.put("end", b"x")
            assert (value_of(us, "a"), value_of(us, "b")) == (b"10", b"10")

    async def test_a_transaction_counts_paths_and_its_own_changes(self, place: Place) -> None:
        async with place.region() as us:
            for path in ("a/1", "a/2", "a0", "b/1", "a/é"):
                await us.put(path, b"")
            await us.put("a/2", None)

            def count(rows: ConfigurationRows) -> tuple[int, int]:
                before = rows.count("a/")
                rows.put("a/1", b"again")
                rows.put("a/3", b"new")
                rows.put("a/4", b"new")
                rows.put("a/4", None)
                return before, rows.count("a/")

            assert await us.transact(count) == (2, 3)

            def refuse(rows: ConfigurationRows) -> None:
                raise ValueError(f"there are {rows.count('a/')}")

            with pytest.raises(ValueError, match="there are 3"):
                await us.put("a/5", b"", check=refuse)
            assert us.get("a/5") is None

    async def test_m7_a_path_created_and_deleted_in_one_transaction_leaves_no_trace(
        self, place: Place
    ) -> None:
        async with place.region() as us, place.region() as eu:

            def for_nothing(rows: ConfigurationRows) -> None:
                rows.put("a", b"1")
                rows.put("a", None)
                rows.put("a", None)

            await us.transact(for_nothing)
            await us.put("b", b"1")
            await told(lambda: value_of(eu, "b") == b"1", eu)
            assert us.get("a") is None
            assert eu.get("a") is None
