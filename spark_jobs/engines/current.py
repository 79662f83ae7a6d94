"""Which engine works now. Frames are made by functions that know no engine; this is where they find it.

One at a time in a process: `with in_use(engine)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.engines.contract import Engine, Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_in_use: list[Engine] = []


@contextlib.contextmanager
def in_use(engine: Engine) -> Iterator[Engine]:
    """Within, frames are this engine's."""
    _in_use.append(engine)
    try:
        yield engine
    finally:
        _in_use.remove(engine)


def current() -> Engine:
    assert _in_use, "no engine is in use: frames are made inside of `with in_use(engine)`"
    return _in_use[-1]


def read(source: Source) -> DataFrame:
    return current().read(source)


def small_frame(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """A few literal rows."""
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return current().table(pa.Table.from_pylist(dicts, schema=schema))


def kept(frame: DataFrame) -> DataFrame:
    """The same rows, worked out once however often they are used."""
    return current().kept(frame)


def narrowed(frame: DataFrame) -> DataFrame:
    """The same rows, in few tasks."""
    return current().narrowed(frame)


def fields_of(array: str, field: str) -> Column:
    """Of an array of structs, the array of one field."""
    return current().fields_of(array, field)
