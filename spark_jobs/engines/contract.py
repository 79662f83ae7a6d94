"""The interface of a query engine. All other query code uses DataFrames (`frames.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


class EngineUnavailable(Exception):
    """An engine cannot run here; the message names the next step."""


class PartitionedSource(Protocol):
    """Evidence in parts, each of which can be read on its own: by any task, on any machine."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def folder(self) -> Path | None:
        """Directory of the run whose files `read` opens; None if it opens no file."""
        ...

    def parts(self) -> Sequence[Any]:
        """Return the parts that exist now. Parts can be pickled."""
        ...

    def size_bytes(self) -> int | None:
        """Return the approximate size in bytes; None when it is unknown before reading."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]: ...


class GrowingSource(Protocol):
    """Evidence that grows while it is read. Can be pickled. An offset is a dictionary of JSON values."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def folder(self) -> Path | None:
        """Directory of the run whose files `read` opens; None if it opens no file."""
        ...

    def start(self) -> dict[str, Any]:
        """Return the offset before all evidence."""
        ...

    def latest(self, since: dict[str, Any]) -> dict[str, Any]:
        """Return the offset after the evidence that is durable now, at or after `since`."""
        ...

    def parts(self, since: dict[str, Any], until: dict[str, Any]) -> Sequence[Any]:
        """Return the parts between two offsets. Parts can be pickled."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]: ...


PartFilter = Callable[["DataFrame", Sequence[str]], "DataFrame"]
"""`part(frame, keys)` returns the rows of a frame that belong to one part. Rows with equal values of the keys, in the
same order and of the same types, belong to the same part, also of different frames."""


class QueryEngine(Protocol):
    """Computes frames, for one verdict at a time."""

    functions: Any
    """Functions with the names and semantics of `pyspark.sql.functions`."""
    window: Any
    """Windows with the names and semantics of `pyspark.sql.Window`."""
    parallel_queries: int
    """Number of queries to submit at the same time."""

    def tune(self, evidence_bytes: int) -> None:
        """Choose settings for this much evidence."""
        ...

    def table(self, rows: pa.Table) -> DataFrame:
        """Return a frame of rows that are in memory."""
        ...

    def read(self, source: PartitionedSource) -> DataFrame:
        """Return a frame of all parts of a source; any task may read a part."""
        ...

    def follow(
        self,
        source: GrowingSource,
        on_rows: Callable[[QueryEngine, DataFrame | None], None],
        wait: Callable[[], bool],
    ) -> None:
        """Pass the new rows of a source to `on_rows` in the order in which they become durable, or None if there are
        none; None also after the last rows. `wait` blocks until the source should be read again, and returns whether
        that is for the last time. `on_rows` may be called in another thread, and binds the engine that it receives."""
        ...

    def cached(self, frame: DataFrame) -> DataFrame:
        """Return a frame of the same rows that are computed only once."""
        ...

    def cached_in_parts(self, rows_of: Callable[[PartFilter], DataFrame]) -> DataFrame:
        """Return a frame of the rows that `rows_of` returns for each part of the evidence, computed only once. An
        engine with little memory computes one part after the other."""
        ...

    def release(self, frame: DataFrame) -> None:
        """Free the rows of a cached frame that is no longer used."""
        ...

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """Return a frame of the same rows in as few tasks as the amount of evidence allows."""
        ...

    def clustered(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Return a frame of the same rows; of large evidence, those with equal keys are in one task. Group by these
        keys afterwards if tasks have few rows with equal keys: then no task aggregates single rows."""
        ...

    def selected(self, frame: DataFrame, columns: Mapping[str, str | Column]) -> DataFrame:
        """Return a frame of these columns, given by name; text is an expression in SQL that all engines share."""
        ...

    def fields_of(self, array: str, field: str) -> Column:
        """Return the array of one field of an array of structs."""
        ...
