"""Which engine works now. Frames are made by functions that know no engine; this is where they find it.

One at a time in a process: `with in_use(engine)`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from spark_jobs.engines.contract import Engine, Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_in_use: list[Engine] = []
P = ParamSpec("P")
T = TypeVar("T")


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


def side_by_side() -> Executor:
    """Asks several questions at the same time, if the engine in use is the quicker for it; else one after the other."""
    works = current().works_at_once
    return InTurn() if works == 1 else ThreadPoolExecutor(works)


def parted(works: Sequence[T]) -> list[Sequence[T]]:
    """One question about all of them, or two to be asked side by side."""
    half = (len(works) + 1) // 2 if current().works_at_once > 1 else len(works)
    return [part for part in (works[:half], works[half:]) if part]


class InTurn(Executor):
    """Does everything here and now: whoever interrupts this thread interrupts the work."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work(*args, **kwargs))
        return done
