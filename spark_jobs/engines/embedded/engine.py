"""The query engine that runs DuckDB in this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from spark_jobs.engines.contract import (
    EngineUnavailable,
    GrowingSource,
    PartFilter,
    PartitionedSource,
    QueryEngine,
)
from spark_jobs.engines.embedded import functions
from spark_jobs.engines.embedded.columns import Column, Window, quoted
from spark_jobs.engines.embedded.frames import QueryFrame
from spark_jobs.engines.scratch import disk_full, scratch_folder

LARGE_BYTES = 32 * 1024 * 1024
"""Evidence of at least this size is stored in a compressed database file instead of in memory."""
MEMORY_LIMIT = "2GB"
"""DuckDB's memory limit for such evidence; rows beyond it stay in the file."""

PART_BYTES = 1024 * 1024 * 1024
"""Evidence of one part of the largest joins. Their collected lists need about as much memory."""
INSERT_ROWS = 122_880
"""Number of rows to insert at a time, if there are as many: DuckDB stores rows in groups of this size, and copies
smaller inserts twice."""


@contextlib.contextmanager
def embedded_engine(evidence_bytes: int = 0) -> Iterator[EmbeddedEngine]:
    """Open the engine until the end of the block. Raises EngineUnavailable for errors of DuckDB, also within it, and
    KeyboardInterrupt if a signal handler raises an exception during a query."""
    with scratch_folder() as folder:
        try:
            large = evidence_bytes >= LARGE_BYTES
            with contextlib.closing(EmbeddedEngine(folder if large else None)) as engine:
                yield engine
        except duckdb.Error as problem:
            reason = disk_full(problem) or str(problem).splitlines()[0]
            raise EngineUnavailable(
                f"the embedded engine failed, so there is no verdict: {reason}"
            ) from problem
        except RuntimeError as problem:
            if str(problem) != "Query interrupted":
                raise
            # DuckDB replaces the exception of a signal handler.
            raise KeyboardInterrupt from problem


class EmbeddedEngine:
    """A database in this process: in memory, or for large evidence in a folder that the caller removes."""

    functions: Any = functions
    window: Any = Window
    parallel_queries = 1

    def __init__(self, folder: Path | None = None) -> None:
        self._database = duckdb.connect(":memory:" if folder is None else str(folder / "evidence.duckdb"))
        if folder is None:
            # Small evidence is one group of rows per table, which one thread computes; others only wait for it.
            self._database.execute("SET threads = 1")
        else:
            self._database.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        self._database.execute("CREATE MACRO size(one) AS len(one)")
        self._tables = 0
        self._parts = 1
        self._lock = threading.RLock()

    def close(self) -> None:
        self._database.close()

    def tune(self, evidence_bytes: int) -> None:
        """Choose the number of parts of the largest joins, whose collected lists DuckDB cannot move to the file."""
        self._parts = max(1, evidence_bytes // PART_BYTES)

    def table(self, rows: pa.Table) -> Any:
        with self._registered(rows) as name:
            return self._store(f"SELECT * FROM {name}", rows.schema.names)

    def read(self, source: PartitionedSource) -> Any:
        """Return a table of all batches, inserted by INSERT_ROWS, so that only these exist as Arrow batches. This
        thread reads the batches: DuckDB would fetch each one in another thread, and a reader must stay in one."""
        return self._inserted(
            source.schema, (batch for part in source.parts() for batch in source.read(part))
        )

    def follow(
        self, source: GrowingSource, on_rows: Callable[[QueryEngine, Any], None], wait: Callable[[], bool]
    ) -> None:
        since, is_last = source.start(), False
        while not is_last:
            is_last = wait()
            until = source.latest(since)
            if until == since:
                on_rows(self, None)
                continue
            parts = source.parts(since, until)
            rows = self._inserted(source.schema, (batch for part in parts for batch in source.read(part)))
            on_rows(self, rows)
            self.release(rows)
            since = until
        on_rows(self, None)

    def _inserted(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> QueryFrame:
        frame: QueryFrame | None = None
        for rows in _gathered(batches, schema):
            if frame is None:
                frame = self.table(rows)
                continue
            with self._registered(rows) as name:
                self._database.execute(f"INSERT INTO {frame.table} SELECT * FROM {name}")
        assert frame is not None, "there is at least one table of rows, which may be empty"
        return frame

    def cached(self, frame: Any) -> Any:
        return self._store(frame.sql, frame.columns) if frame.table is None else frame

    def cached_in_parts(self, rows_of: Callable[[PartFilter], Any]) -> Any:
        """Compute the parts one after the other, so that only one is in memory."""
        first, *others = [rows_of(self._part(number)) for number in range(self._parts)]
        frame = self.cached(first)
        for other in others:
            with self._lock:
                self._database.execute(f"INSERT INTO {frame.table} {other.sql}")
        return frame

    def _part(self, number: int) -> PartFilter:
        def part(frame: Any, keys: Sequence[str]) -> Any:
            if self._parts == 1:
                return frame
            hashed = ", ".join(map(quoted, keys))
            return frame.where(Column(f"hash({hashed}) % {self._parts} = {number}"))

        return part

    def release(self, frame: Any) -> None:
        with self._lock:
            self._database.execute(f"DROP TABLE IF EXISTS {frame.table}")

    def coalesced(self, frame: Any) -> Any:
        return frame

    def clustered(self, frame: Any, keys: Sequence[str]) -> Any:
        return frame

    def selected(self, frame: Any, columns: Mapping[str, Any]) -> Any:
        return frame.select(
            *(
                (functions.expr(value) if isinstance(value, str) else value).alias(name)
                for name, value in columns.items()
            )
        )

    def fields_of(self, array: str, field: str) -> Any:
        return functions.transform(array, lambda one: one[field])

    def _fetch(self, sql: str) -> list[Any]:
        with self._lock:
            return self._database.execute(sql).fetchall()

    @contextlib.contextmanager
    def _registered(self, rows: pa.Table) -> Iterator[str]:
        """Register rows under a table name that queries can use until the end of the block; other threads wait."""
        with self._lock:
            self._database.register("new_rows", rows)
            try:
                yield "new_rows"
            finally:
                self._database.unregister("new_rows")

    def _store(self, sql: str, columns: list[str]) -> QueryFrame:
        with self._lock:
            self._tables += 1
            table = f"stored_{self._tables}"
            self._database.execute(f"CREATE TABLE {table} AS {sql}")
        return QueryFrame(self._fetch, f"FROM {table}", columns, table)


def _gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield all rows in tables of about INSERT_ROWS; at least one table."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= INSERT_ROWS:
            yield pa.Table.from_batches(held, schema)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)
    else:
        yield schema.empty_table()
