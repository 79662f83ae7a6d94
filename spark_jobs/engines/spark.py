"""The query engine that runs Spark through PySpark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame as Frame
from pyspark.sql import Window, functions
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.engines.contract import GrowingSource, PartFilter, PartitionedSource, QueryEngine
from spark_jobs.engines.evidence_readers import register_source
from spark_jobs.engines.session import (
    LARGE_BYTES,
    OPTIMISED_BYTES,
    SparkUnavailable,
    in_a_sentence,
    spark_session,
    tune,
)
from spark_jobs.engines.streams import stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOCAL_BYTES = 8 * 1024 * 1024
"""Sources up to this size are read by this process: that takes less time than starting a Python worker."""
SMALL_PARALLEL_QUERIES = 3
SOURCE_FORMAT = "evidence"
_registering = threading.Lock()


@contextlib.contextmanager
def spark_engine(master: str | None = None, *, evidence_bytes: int = 0) -> Iterator[SparkEngine]:
    """Start an engine whose session ends with the block. Raises SparkUnavailable, also for Spark's errors within it."""
    with spark_session(master, evidence_bytes=evidence_bytes) as session:
        try:
            yield SparkEngine(session)
        except (PySparkException, Py4JError) as problem:
            # Raised inside of the session's block, which replaces it if the cluster provides no executor.
            raise SparkUnavailable(
                f"Spark failed, so there is no result: {in_a_sentence(problem)}"
            ) from problem


class SparkEngine:
    """An engine that uses a session of the caller, who ends it."""

    functions: Any = functions
    window: Any = Window

    def __init__(
        self, session: SparkSession, *, local_bytes: int = LOCAL_BYTES, evidence_bytes_min: int = 0
    ) -> None:
        """`evidence_bytes_min`: smaller evidence is evaluated as if it had this size."""
        self.session = session
        self._local_bytes = local_bytes
        self._evidence_bytes_min = evidence_bytes_min
        self._is_small = self._stores_columns = False
        self._stored: list[DataFrame] = []
        """Cached frames of the current verdict, if it is on large evidence."""
        self.parallel_queries = 1

    def tune(self, evidence_bytes: int) -> None:
        evidence_bytes = max(evidence_bytes, self._evidence_bytes_min)
        self._is_small = evidence_bytes < LARGE_BYTES
        self._stores_columns = evidence_bytes >= OPTIMISED_BYTES
        while self._stored:
            self._stored.pop().unpersist()
        # A small verdict mostly loads and compiles Java classes, which concurrent queries spread over the cores. A
        # large one has enough tasks for all cores, and memory for one query only.
        self.parallel_queries = SMALL_PARALLEL_QUERIES if self._is_small else 1
        tune(self.session, evidence_bytes)

    def table(self, rows: pa.Table) -> DataFrame:
        """Return a frame from columns, because for rows Spark must start a Python worker. For small evidence one task
        is faster than two and their exchange."""
        # A column without chunks has no type.
        rows = _without_empty_batches(rows) if rows.num_rows else rows.schema.empty_table()
        frame = self.session.createDataFrame(rows, from_arrow_schema(rows.schema))
        return frame.coalesce(1) if self._is_small else frame

    def read(self, source: PartitionedSource) -> DataFrame:
        size_bytes = source.size_bytes()
        if size_bytes is not None and size_bytes <= self._local_bytes:
            batches = (batch for part in source.parts() for batch in source.read(part))
            return self.table(pa.Table.from_batches(batches, source.schema))
        with _registering:  # another thread would replace the source before it is loaded
            register_source(self.session, SOURCE_FORMAT, source)
            return self.session.read.format(SOURCE_FORMAT).load()

    def follow(
        self,
        source: GrowingSource,
        on_rows: Callable[[QueryEngine, DataFrame | None], None],
        wait: Callable[[], bool],
    ) -> None:
        """Stream the source. The query has a session of its own, to which the frames of all batches belong."""
        of_stream = self

        def on_batch(batch: DataFrame) -> None:
            nonlocal of_stream
            if of_stream is self:
                of_stream = self._with(batch.sparkSession)
            # Checkpointed, because entries and lines are selected from it: the source is read once.
            on_rows(of_stream, of_stream.cached(batch))

        stream(self.session, source, on_batch, lambda: on_rows(of_stream, None), wait)

    def _with(self, session: SparkSession) -> SparkEngine:
        """Return an engine with the same settings and the session of a stream, a copy of this one."""
        engine = SparkEngine(session, local_bytes=self._local_bytes)
        engine._is_small, engine.parallel_queries = self._is_small, self.parallel_queries
        return engine

    def cached(self, frame: DataFrame) -> DataFrame:
        """Return a frame whose rows are computed at its first use and stored. Unlike that of `persist`, its plan ends
        there: Spark would otherwise analyse the plan again for each of the dozens of frames derived from it."""
        return self._in_columns(frame) if self._stores_columns else frame.localCheckpoint(eager=False)

    def _in_columns(self, frame: DataFrame) -> DataFrame:
        """Store rows as compressed columns, in memory or on disk, in a fifth of the space of a checkpoint. A checkpoint
        takes less time while it is in memory."""
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._stored.append(frame)
        session, java = self.session._jsparkSession, self.session._jvm
        found = session.sharedState().cacheManager().lookupCachedData(frame._jdf)
        assert java is not None, "a live session has a Java"
        rows = java.org.apache.spark.sql.classic.Dataset.ofRows(session, found.get().cachedRepresentation())
        return Frame(rows, self.session)

    def cached_in_parts(self, rows_of: Callable[[PartFilter], DataFrame]) -> DataFrame:
        """Compute all parts at once: Spark divides the rows into tasks, which spill."""
        return self.cached(rows_of(lambda frame, _: frame))

    def release(self, frame: DataFrame) -> None:
        """Do nothing: Spark removes a checkpoint once the frame is garbage, and `tune` removes columns."""

    def coalesced(self, frame: DataFrame) -> DataFrame:
        """Return the frame in as many tasks as a shuffle has partitions: every task of a stage contains the plans of
        all its branches."""
        return frame.coalesce(int(self.session.conf.get("spark.sql.shuffle.partitions") or 1))

    def clustered(self, frame: DataFrame, keys: Sequence[str]) -> DataFrame:
        return frame if self._is_small else frame.repartition(*keys)

    def selected(self, frame: DataFrame, columns: Mapping[str, str | Column]) -> DataFrame:
        """Pass text to Java as it is: a column made from it would take three more calls."""
        if all(isinstance(value, str) for value in columns.values()):
            return frame.selectExpr(*(f"{value} AS {name}" for name, value in columns.items()))
        return frame.select(
            *(
                functions.expr(f"{value} AS {name}") if isinstance(value, str) else value.alias(name)
                for name, value in columns.items()
            )
        )

    def fields_of(self, array: str, field: str) -> Column:
        return functions.col(f"{array}.{field}")


def _without_empty_batches(rows: pa.Table) -> pa.Table:
    """Return the table without batches of no rows: Spark ends reading at the first of them."""
    return pa.Table.from_batches([batch for batch in rows.to_batches() if batch.num_rows], rows.schema)
