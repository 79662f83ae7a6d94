"""Follow a growing source with Structured Streaming.

The stream reads a data source of Python: a process of Spark determines offsets, and tasks read the parts between two of
them. The query is stateless for Spark: what is known of the run is in checkpointed frames, which the driver's function
combines with each batch. So a stream that is started again begins with the first row.

The public format `geoemu` has a stream per table, each with offsets of its own. Here one offset covers all logs and
histories, logs first: that the request of every stored message is known depends on it. So the format would add a stream
and would not replace this one.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.engines.contract import GrowingSource
from spark_jobs.engines.shared_folder import SharedFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_FORMAT = "growing_evidence"
TRIGGER = "1 second"
"""Interval at which Spark asks the source for new rows."""


def stream(
    session: SparkSession,
    source: GrowingSource,
    on_batch: Callable[[DataFrame], None],
    on_idle: Callable[[], None],
    wait: Callable[[], bool],
) -> None:
    """Pass each micro-batch to `on_batch`. `on_idle` is called after each `wait` without a batch, except before the
    first one, and once after the last one. Neither is called concurrently. Raises StreamingQueryException for errors of
    the source and of `on_batch`."""
    register_stream(session, source)
    lock, numbers = threading.Lock(), _Numbers()

    def process(batch: DataFrame, _: int) -> None:
        with lock:
            numbers.batches += 1
            on_batch(batch)

    with tempfile.TemporaryDirectory(prefix="geoemu-stream-", ignore_cleanup_errors=True) as folder:
        rows = session.readStream.format(STREAM_FORMAT).load()
        writer = rows.writeStream.foreachBatch(process).option("checkpointLocation", folder)
        query = writer.trigger(processingTime=TRIGGER).start()
        try:
            while not wait():
                if (problem := query.exception()) is not None:
                    raise problem
                with lock:
                    if numbers.is_idle():
                        on_idle()
            query.processAllAvailable()
            with lock:
                on_idle()
        finally:
            query.stop()


class _Numbers:
    """Counts batches."""

    def __init__(self) -> None:
        self.batches = self._seen = 0

    def is_idle(self) -> bool:
        """Return whether there was a batch, but none since the previous call."""
        before, self._seen = self._seen, self.batches
        return self.batches == before > 0


def register_stream(session: SparkSession, source: GrowingSource) -> None:
    """Register a source as the data source STREAM_FORMAT, which replaces the previous one."""

    class GrowingDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return STREAM_FORMAT

        def schema(self) -> StructType:
            return from_arrow_schema(source.schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return GrowingReader(source)

    session.dataSource.register(GrowingDataSource)


class GrowingPartition(InputPartition):
    """The part of a growing source that one task reads."""


class GrowingReader(DataSourceStreamReader):
    """Determines offsets and parts in a process of Spark, and reads each part in a task."""

    def __init__(self, source: GrowingSource) -> None:
        self._source = source
        self._shared = SharedFolder.seen_here(source.folder)

    def initialOffset(self) -> dict[str, Any]:
        return self._source.start()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return self._source.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [GrowingPartition(part) for part in self._source.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._shared.require()
        yield from self._source.read(partition.value)
