"""Random sequences of operations on both stores: SQLite must return exactly what the memory store does.

The memory store is the model. Limits are small, so that reads go to the file, groups are divided, and
checkpoints and sweeps happen between any two steps. `GEOEMU_STORIES` is their number.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from emulator.errors import StorageError
from emulator.storage.contract import Log, Store, ledger_id_base
from emulator.storage.sqlite import commit as sqlite_commit
from emulator.storage.sqlite import rows as sqlite_rows
from emulator.storage.sqlite import store as sqlite
from emulator.storage.sqlite import writer as sqlite_writer
from emulator.storage.sqlite.store import SqliteStore

from .harness import Harness
from .sqlite_harness import SqliteHarness, folder_in_memory
from .test_memory import MemoryHarness

log_names = st.sampled_from(["a", "b", "c"])
keys = st.sampled_from(["k", "k/1", "k/2", "l"])
data = st.binary(max_size=8) | st.integers(0, 4000).map(bytes)
appends = st.tuples(st.just("append"), log_names, st.lists(data, min_size=1, max_size=6))
puts = st.tuples(st.just("put"), keys, data, st.none() | st.integers(-1, 3))
deletes = st.tuples(st.just("delete"), keys)


def _nth(store: Store, log: Log) -> int:
    """Return the index of a region's log: the memory store counts from 1, SQLite from a number of the region's own."""
    return log.ledger_id - (ledger_id_base("eu") if isinstance(store, SqliteStore) else 0)


class Stories(RuleBasedStateMachine):
    """Runs every step on both stores, which must give the same outcome."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = folder_in_memory()
        self.harnesses: list[Harness] = [MemoryHarness(), SqliteHarness(Path(self.folder.name))]
        self.stores: list[Store] = []
        self.logs: list[dict[str, Log]] = [{}, {}]
        self._again(lambda harness, _: harness.open())

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for harness in self.harnesses:
                self.loop.run_until_complete(harness.close())
            self.loop.close()
            self.folder.cleanup()

    def _both(self, step: Callable[[Store, dict[str, Log]], Awaitable[Any]]) -> None:
        memory, sqlite = (
            self.loop.run_until_complete(_outcome(step(store, logs)))
            for store, logs in zip(self.stores, self.logs, strict=True)
        )
        assert sqlite == memory

    def _again(self, open_again: Callable[[Harness, Store | None], Awaitable[Store]]) -> None:
        """Restart both stores."""
        before = self.stores or [None, None]
        self.stores = [
            self.loop.run_until_complete(_awaited(open_again(harness, store)))
            for harness, store in zip(self.harnesses, before, strict=True)
        ]
        self.logs = [{}, {}]

    @rule(name=log_names, create=st.booleans())
    def open_log(self, name: str, create: bool) -> None:
        async def step(store: Store, logs: dict[str, Log]) -> int | None:
            log = await store.open_log(name, create=create)
            if log is not None:
                assert logs.get(name) in (None, log)
                logs[name] = log
            return log and _nth(store, log)

        self._both(step)

    @rule(burst=st.lists(appends | puts | deletes, min_size=1, max_size=12))
    def issue(self, burst: list[tuple[Any, ...]]) -> None:
        """Issue several writes without waiting in between."""

        async def step(store: Store, logs: dict[str, Log]) -> list[Any]:
            issued: list[asyncio.Future[Any]] = []
            for what, name, *arguments in burst:
                if what == "append":
                    if name in logs:
                        issued.append(logs[name].append(arguments[0]))
                elif what == "put":
                    issued.append(store.put(name, arguments[0], expected_version=arguments[1]))
                else:
                    issued.append(store.delete(name))
            return [await _outcome(future) for future in issued]

        self._both(step)

    @rule(name=log_names, part=st.floats(0, 1.2))
    def trim(self, name: str, part: float) -> None:
        async def step(store: Store, logs: dict[str, Log]) -> None:
            if name in logs:
                await logs[name].trim(int(part * logs[name].next_entry_id))

        self._both(step)

    @rule(name=log_names)
    def delete_log(self, name: str) -> None:
        async def step(store: Store, logs: dict[str, Log]) -> None:
            await store.delete_log(name)
            logs.pop(name, None)

        self._both(step)

    @rule(
        name=log_names,
        part=st.floats(-0.1, 1.1),
        max_entries=st.integers(0, 30),
        max_bytes=st.integers(0, 9000),
    )
    def read(self, name: str, part: float, max_entries: int, max_bytes: int) -> None:
        async def step(store: Store, logs: dict[str, Log]) -> Any:
            if name in logs:
                start = int(part * logs[name].next_entry_id)
                return await logs[name].read(start, max_entries, max_bytes)
            return None

        self._both(step)

    @rule()
    def restart(self) -> None:
        self._again(lambda harness, store: harness.reopen(store))  # type: ignore[arg-type]

    @rule()
    def crash(self) -> None:
        self._again(lambda harness, store: harness.crash(store))  # type: ignore[arg-type]

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "stores"):
            return

        async def step(store: Store, logs: dict[str, Log]) -> list[Any]:
            facts: list[Any] = [store.log_names(), store.scan(""), store.get("k"), store.scan("k/")]
            for name, log in sorted(logs.items()):
                ends = (_nth(store, log), log.first_entry_id, log.next_entry_id, log.size_bytes)
                facts.append((name, ends, await log.read(0, 10**6, 10**9)))
            return facts

        self._both(step)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _outcome(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except StorageError as error:
        return type(error), error.definite, str(error)


@pytest.mark.long
@pytest.mark.parametrize("where", ["on the loop and in the thread", "in the thread"])
def test_sqlite_gives_the_same_outcomes_as_the_memory_store(where: str, monkeypatch: pytest.MonkeyPatch):
    """Outcomes, ids, ends, sizes, contents, versions and even error messages."""
    monkeypatch.setattr(sqlite_writer, "HERE_BYTES_MAX", -1 if where == "in the thread" else 5000)
    monkeypatch.setattr(sqlite, "RECENT_BYTES", 3000)
    monkeypatch.setattr(sqlite_rows, "ROW_BYTES", 5000)
    monkeypatch.setattr(sqlite_rows, "ROWS_PER_STATEMENT", 2)
    monkeypatch.setattr(sqlite_commit, "CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr(sqlite_commit, "SWEEP_ROWS", 1)
    run_state_machine_as_test(
        Stories,
        settings=settings(
            max_examples=int(os.environ.get("GEOEMU_STORIES", "25")),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
