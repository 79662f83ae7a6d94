"""DuckDB as an engine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from spark_jobs.engines.contract import EngineUnavailable, Source
from spark_jobs.engines.embedded import functions
from spark_jobs.engines.embedded.frames import Frame
from spark_jobs.engines.embedded.windows import Window


@contextlib.contextmanager
def embedded_engine() -> Iterator[EmbeddedEngine]:
    """Until the end of the block. Raises EngineUnavailable for what fails within."""
    engine = EmbeddedEngine()
    try:
        yield engine
    except duckdb.Error as problem:
        raise EngineUnavailable(
            f"the embedded engine failed, so there is no verdict: {str(problem).splitlines()[0]}"
        ) from problem
    finally:
        engine.close()


class EmbeddedEngine:
    """A database in the memory of this process."""

    functions: Any = functions
    window: Any = Window

    def __init__(self) -> None:
        self._database = duckdb.connect()
        self._database.execute("CREATE MACRO size(one) AS len(one)")
        self._tables = 0
        self._turn = threading.RLock()

    def close(self) -> None:
        self._database.close()

    def tune(self, evidence_bytes: int) -> None:
        """It is as quick with little as with much."""

    def table(self, rows: pa.Table) -> Any:
        return self._table_of("arrived", rows)

    def read(self, source: Source) -> Any:
        """Batch by batch: what was read does not wait in memory for the rest."""
        batches = (batch for part in source.parts() for batch in source.read(part))
        return self._table_of("arrived", pa.RecordBatchReader.from_batches(source.schema, batches))

    def kept(self, frame: Any) -> Any:
        return self._table_as(frame.sql, frame.columns)

    def narrowed(self, frame: Any) -> Any:
        return frame

    def fields_of(self, array: str, field: str) -> Any:
        return functions.transform(array, lambda one: one[field])

    def fetched(self, sql: str) -> list[Any]:
        with self._turn:
            return self._database.execute(sql).fetchall()

    def _table_of(self, name: str, rows: Any) -> Frame:
        """Of columns that are or will be in memory."""
        with self._turn:
            self._database.register(name, rows)
            try:
                return self._table_as(f"SELECT * FROM {name}", rows.schema.names)
            finally:
                self._database.unregister(name)

    def _table_as(self, sql: str, columns: list[str]) -> Frame:
        with self._turn:
            self._tables += 1
            table = f"kept_{self._tables}"
            self._database.execute(f"CREATE TABLE {table} AS {sql}")
        return Frame(self, f"FROM {table}", columns)
