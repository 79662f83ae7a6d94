"""DuckDB as an engine."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from spark_jobs.engines.contract import EngineUnavailable, PartitionedSource
from spark_jobs.engines.embedded import functions
from spark_jobs.engines.embedded.frames import QueryFrame
from spark_jobs.engines.embedded.windows import Window

LARGE_BYTES = 32 * 1024 * 1024
"""Evidence of this size is kept in a file, compressed."""
MEMORY = "2GB"
"""Of what is then worked on. The rest goes to that file and comes back."""


@contextlib.contextmanager
def embedded_engine(evidence_bytes: int = 0) -> Iterator[EmbeddedEngine]:
    """Until the end of the block. Raises EngineUnavailable for what fails within."""
    with tempfile.TemporaryDirectory(prefix="geoemu-verdict-") as folder:
        engine = EmbeddedEngine(Path(folder) if evidence_bytes >= LARGE_BYTES else None)
        with _explained(engine):
            yield engine


@contextlib.contextmanager
def _explained(engine: EmbeddedEngine) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as problem:
        raise EngineUnavailable(
            f"the embedded engine failed, so there is no verdict: {str(problem).splitlines()[0]}"
        ) from problem
    finally:
        engine.close()


class EmbeddedEngine:
    """A database in this process: in memory, or for much evidence in a folder that the caller removes."""

    functions: Any = functions
    window: Any = Window
    parallel_queries = 1

    def __init__(self, folder: Path | None = None) -> None:
        self._database = duckdb.connect(":memory:" if folder is None else str(folder / "evidence.duckdb"))
        if folder is not None:
            self._database.execute(f"SET memory_limit = '{MEMORY}'")
        self._database.execute("CREATE MACRO size(one) AS len(one)")
        self._tables = 0
        self._turn = threading.RLock()

    def close(self) -> None:
        self._database.close()

    def tune(self, evidence_bytes: int) -> None:
        """It is as quick with little as with much."""

    def table(self, rows: pa.Table) -> Any:
        return self._table_of(rows)

    def read(self, source: PartitionedSource) -> Any:
        """Batch by batch, so that what was read does not wait in memory for the rest; by this thread, because DuckDB
        would ask for each in another one and what is read from may not be passed around."""
        frame = self._table_of(source.schema.empty_table())
        for part in source.parts():
            for batch in source.read(part):
                self._add(frame, batch)
        return frame

    def cached(self, frame: Any) -> Any:
        return self._table_as(frame.sql, frame.columns) if frame.table is None else frame

    def coalesced(self, frame: Any) -> Any:
        return frame

    def fields_of(self, array: str, field: str) -> Any:
        return functions.transform(array, lambda one: one[field])

    def fetched(self, sql: str) -> list[Any]:
        with self._turn:
            return self._database.execute(sql).fetchall()

    def _table_of(self, rows: pa.Table) -> QueryFrame:
        with self._arrived(rows) as name:
            return self._table_as(f"SELECT * FROM {name}", rows.schema.names)

    def _add(self, frame: QueryFrame, rows: pa.RecordBatch) -> None:
        with self._arrived(pa.Table.from_batches([rows])) as name:
            self._database.execute(f"INSERT INTO {frame.table} SELECT * FROM {name}")

    @contextlib.contextmanager
    def _arrived(self, rows: pa.Table) -> Iterator[str]:
        """What is in memory under a name that queries know."""
        with self._turn:
            self._database.register("arrived", rows)
            try:
                yield "arrived"
            finally:
                self._database.unregister("arrived")

    def _table_as(self, sql: str, columns: list[str]) -> QueryFrame:
        with self._turn:
            self._tables += 1
            table = f"kept_{self._tables}"
            self._database.execute(f"CREATE TABLE {table} AS {sql}")
        return QueryFrame(self, f"FROM {table}", columns, table)
