"""The writer of state that is stored under several keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from emulator.broker.debounced_writer import DebouncedWriter, KeyChanges, one_key
from emulator.errors import StorageError


class SlowStore:
    """A store whose writes become durable when the test allows it."""

    def __init__(self) -> None:
        self.under_way: dict[str, asyncio.Future[object]] = {}
        self.issued: list[str] = []

    def get(self, key: str) -> None:
        self.issued.append(f"get {key}")

    def put(self, key: str, value: bytes) -> asyncio.Future[object]:
        return self._issue(f"put {key}={value.decode()}")

    def delete(self, key: str) -> asyncio.Future[object]:
        return self._issue(f"delete {key}")

    def _issue(self, what: str) -> asyncio.Future[object]:
        assert what not in self.under_way
        self.issued.append(what)
        future = self.under_way[what] = asyncio.get_running_loop().create_future()
        return future

    async def done(self, *whats: str, failure: Exception | None = None) -> None:
        for what in whats:
            future = self.under_way.pop(what)
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
        for _ in range(4):
            await asyncio.sleep(0)


def writer_of(
    store: SlowStore, changes: Callable[[], KeyChanges], failures: list[BaseException] | None = None
) -> DebouncedWriter:
    failed = [] if failures is None else failures
    return DebouncedWriter(store, "state", changes, failed.append)  # type: ignore[arg-type]


def steps(*puts: dict[str, bytes], deletes: tuple[str, ...] = ()) -> Callable[[], KeyChanges]:
    return lambda: KeyChanges(list(puts), deletes)


async def test_a_step_begins_when_the_one_before_is_durable_and_deletes_come_last() -> None:
    store = SlowStore()
    waiting = writer_of(store, steps({"a": b"1", "b": b"1"}, {"head": b"1"}, deletes=("old",))).now()
    assert set(store.under_way) == {"put a=1", "put b=1"}
    await store.done("put b=1")
    assert set(store.under_way) == {"put a=1"}
    await store.done("put a=1")
    assert set(store.under_way) == {"put head=1"}
    assert not waiting.done()
    await store.done("put head=1")
    assert waiting.done(), "the write does not wait for deletes"
    assert set(store.under_way) == {"delete old"}


async def test_one_write_is_under_way_and_the_next_contains_all_changes_since() -> None:
    store, value = SlowStore(), [1]
    writer = writer_of(store, one_key("a", lambda: b"%d" % value[0]))
    first = writer.now()
    value[0] = 2
    second = writer.now()
    value[0] = 3
    third = writer.now()
    assert set(store.under_way) == {"put a=1"}
    await store.done("put a=1")
    assert (first.done(), second.done(), set(store.under_way)) == (True, False, {"put a=3"})
    await store.done("put a=3")
    assert second.done()
    assert third.done()


async def test_unchanged_state_is_durable_at_once() -> None:
    store = SlowStore()
    assert writer_of(store, steps()).now().done()
    assert store.issued == []


async def test_a_key_is_read_before_its_first_put() -> None:
    """S5: a key that failed before the restart is refused until it is read."""
    store = SlowStore()
    writer = writer_of(store, one_key("a", lambda: b"1"))
    for _ in range(2):
        writer.now()
        await store.done("put a=1")
    assert store.issued == ["get a", "put a=1", "put a=1"]


async def test_a_key_is_read_before_it_is_deleted() -> None:
    """S5 also holds for deletes. Without a read, a delete that failed once failed after every restart, and its topic
    could not be consumed any more."""
    store = SlowStore()
    writer_of(store, steps({"head": b"1"}, deletes=("old",))).now()
    await store.done("put head=1")
    assert store.issued[-2:] == ["get old", "delete old"]


async def test_a_failure_is_reported_when_every_put_has_its_outcome() -> None:
    """Until then the store may still change after the state was loaded from it."""
    store, failures = SlowStore(), list[BaseException]()
    writer = writer_of(store, steps({"a": b"1", "b": b"1"}), failures)
    waiting, behind = writer.now(), writer.now()
    error = StorageError("full", definite=True)
    await store.done("put a=1", failure=error)
    assert not failures
    await store.done("put b=1")
    assert failures == [error]
    for one in (waiting, behind):
        with pytest.raises(StorageError, match="full"):
            await one


async def test_a_closed_writer_settles_with_its_puts_and_begins_no_further_step() -> None:
    store, failures = SlowStore(), list[BaseException]()
    writer = writer_of(store, steps({"a": b"1"}, {"head": b"1"}), failures)
    waiting = writer.now()
    writer.close()
    settling = asyncio.ensure_future(writer.settled())
    await asyncio.sleep(0)
    assert not settling.done()
    await store.done("put a=1")
    assert settling.done()
    assert store.under_way == {}
    for one in (waiting, writer.now()):
        with pytest.raises(StorageError, match="not stored here"):
            await one
    assert failures == []
