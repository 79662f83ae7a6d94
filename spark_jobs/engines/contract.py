"""The interface of an engine. Everything else is DataFrame code (`frames.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def parts(self) -> Sequence[Any]:
        """List the parts that there are now. Parts can be pickled."""
        ...

    def size_bytes(self) -> int | None:
        """About how much there is to read; None when that is not known before it was read."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]: ...


class QueryEngine(Protocol):
    """Computes frames, for one verdict at a time."""

    functions: Any
    """As `pyspark.sql.functions`."""
    window: Any
    """As `pyspark.sql.Window`."""
    parallel_queries: int
    """Number of queries that are faster when they are submitted at the same time."""

    def tune(self, evidence_bytes: int) -> None:
        """Choose settings for this much evidence."""
        ...

    def table(self, rows: pa.Table) -> DataFrame:
        """A frame of rows that are in memory."""
        ...

    def read(self, source: PartitionedSource) -> DataFrame:
        """All parts of a source, wherever they are read."""
        ...

    def cached(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once however often they are used."""
        ...

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """The same rows, in as few tasks as the amount of evidence requires."""
        ...

    def fields_of(self, array: str, field: str) -> Column:
        """Of an array of structs, the array of one field."""
        ...
