"""What an engine is asked for: all that differs between them. Everything else is DataFrame code (`frames.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


class EngineUnavailable(Exception):
    """An engine cannot work here; the message says what to do."""


class Source(Protocol):
    """Evidence that lies in parts, each of which can be read on its own: by any task, on any machine."""

    @property
    def schema(self) -> pa.Schema: ...

    def parts(self) -> Sequence[Any]:
        """Looks at what is there. Parts can be pickled."""
        ...

    def size_bytes(self) -> int | None:
        """About how much there is to read; None when nobody can tell beforehand."""
        ...

    def read(self, part: Any) -> Iterator[pa.RecordBatch]: ...


class Engine(Protocol):
    """Works frames out. One serves one judgement at a time."""

    functions: Any
    """As `pyspark.sql.functions`."""
    window: Any
    """As `pyspark.sql.Window`."""
    works_at_once: int
    """So many questions are worth asking at the same time."""

    def tune(self, evidence_bytes: int) -> None:
        """For this much evidence."""
        ...

    def table(self, rows: pa.Table) -> DataFrame:
        """Rows that are already here."""
        ...

    def read(self, source: Source) -> DataFrame:
        """All parts of a source, wherever they are read."""
        ...

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same rows, worked out once however often they are used."""
        ...

    def narrowed(self, frame: DataFrame) -> DataFrame:
        """The same rows, in as few tasks as the settled amount of evidence wants."""
        ...

    def fields_of(self, array: str, field: str) -> Column:
        """Of an array of structs, the array of one field."""
        ...
