"""Follow a growing source with Structured Streaming.

The stream reads a data source of Python: a process of Spark determines offsets, and tasks read the parts between two of
them. The query is stateless for Spark: what is known of the run is in checkpointed frames, which the driver's function
combines with each batch. So a stream that is started again begins with the first row.

Decision 0020 has the reason why this is not the public format `geoemu`.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_jobs.engines.contract import GrowingSource
from spark_jobs.engines.evidence_readers import register_source

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
    register_source(session, STREAM_FORMAT, source)
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
