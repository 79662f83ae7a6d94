"""The query API of the checks: PySpark's DataFrames, functions and windows, implemented by the bound engine.

`verify.evaluate_run` binds the engine (`use_engine`) for the duration of one verdict. The binding belongs to the
current context and to the threads of `parallel`, not to the process: two threads may use two engines at once.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from spark_jobs.engines.contract import PartFilter, PartitionedSource, QueryEngine

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Window
    from pyspark.sql import functions as F

__all__ = ["Column", "DataFrame", "F", "PartFilter", "Window"]

BATCH_ROWS = 16_384
"""Maximum number of rows of one batch."""
_engine: ContextVar[QueryEngine] = ContextVar("engine")
P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def use_engine(engine: QueryEngine) -> Iterator[QueryEngine]:
    """Bind the engine of all frames that are created within the block."""
    token = _engine.set(engine)
    try:
        yield engine
    finally:
        _engine.reset(token)


def bound_engine() -> QueryEngine:
    engine = _engine.get(None)
    assert engine is not None, "no engine is bound: frames are made inside of `with use_engine(engine)`"
    return engine


if not TYPE_CHECKING:

    class _Namespace:
        """Forwards each access to the attribute of the bound engine with this name."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(getattr(bound_engine(), self._name), attribute)

    Column = DataFrame = Any
    F = _Namespace("functions")
    Window = _Namespace("window")


def read(source: PartitionedSource) -> DataFrame:
    return bound_engine().read(source)


_ARROW_TYPES = {
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "int": pa.int32(),
    "map<bigint, bigint>": pa.map_(pa.int64(), pa.int64()),
    "string": pa.string(),
}
_COLUMN = re.compile(r"(\w+) (\w+(?:<[^>]*>)?)")


def schema(columns: str) -> pa.Schema:
    """Parse `name type, name type`, with Spark's names of types. KeyError for a type that is not in `_ARROW_TYPES`."""
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in _COLUMN.findall(columns)])


def record_batch(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to columns."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def record_batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert rows to columns, in at least one batch: Spark detects from the first one that there are columns."""
    remaining = iter(rows)
    while some := list(islice(remaining, BATCH_ROWS)):
        yield record_batch(some, schema)
    yield record_batch([], schema)


def small_frame(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Return a frame of a few literal rows."""
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return bound_engine().table(pa.Table.from_pylist(dicts, schema=schema))


def cached(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows, which are computed only once."""
    return bound_engine().cached(frame)


def cached_in_parts(rows_of: Callable[[PartFilter], DataFrame]) -> DataFrame:
    """Return a frame of the rows that `rows_of(part)` returns for each part, computed only once. Every frame that it
    joins or groups has to be filtered by `part` with the keys of the join or group, or with some of them."""
    return bound_engine().cached_in_parts(rows_of)


def release(*frames: DataFrame) -> None:
    """Free the rows of cached frames that are no longer used."""
    for frame in frames:
        bound_engine().release(frame)


def coalesced(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows, in few tasks."""
    return bound_engine().coalesced(frame)


def clustered(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a frame of the same rows, to be grouped by keys that few rows of a task share."""
    return bound_engine().clustered(frame, keys)


def selected(frame: DataFrame, columns: Mapping[str, str | Column]) -> DataFrame:
    """Return a frame of these columns, given by name; text is an expression in SQL that both engines share."""
    return bound_engine().selected(frame, columns)


def fields_of(array: str, field: str) -> Column:
    """Return the array of one field of an array of structs."""
    return bound_engine().fields_of(array, field)


def parallel() -> Executor:
    """Return an executor of queries: threads if the bound engine computes several concurrently, else this thread."""
    queries = bound_engine().parallel_queries
    return SequentialExecutor() if queries == 1 else BoundThreads(queries)


def split_for_threads(items: Sequence[T]) -> list[Sequence[T]]:
    """Return two halves if the bound engine computes several queries concurrently, else all items as one part."""
    half = (len(items) + 1) // 2 if bound_engine().parallel_queries > 1 else len(items)
    return [part for part in (items[:half], items[half:]) if part]


class BoundThreads(ThreadPoolExecutor):
    """Threads that use the bound engine of the submitting thread."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        context = copy_context()
        return super().submit(lambda: context.run(work, *args, **kwargs))


class SequentialExecutor(Executor):
    """Executes submitted work immediately in the calling thread, so that an interrupt of the thread ends it. `submit`
    raises the errors of the work."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work(*args, **kwargs))
        return done
