"""Spark's readers of evidence, and the data sources that consist of them.

The engine reads and follows runs with sources of its own; the public format `geoemu` (`tables/data_source.py`) reads
the tables of a run. Both use these readers: a source in parts for `read`, a growing one for `readStream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.engines.shared_folder import SharedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.engines.contract import GrowingSource, PartitionedSource


class EvidencePart(InputPartition):
    """The part of a source that one task reads."""


class EvidenceReader:
    """Reads each part in a task."""

    def __init__(self, source: PartitionedSource | GrowingSource) -> None:
        self._source: Any = source
        self._shared = None if source.folder is None else SharedFolder.seen_here(source.folder)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part. Spark replaces an empty list of parts by one without a value. Raises RunNotShared
        in a task that does not see the run."""
        if self._shared is not None:
            self._shared.require()
        if partition.value is None:
            yield pa.RecordBatch.from_pylist([], schema=self._source.schema)
        else:
            yield from self._source.read(partition.value)


class PartReader(EvidenceReader, DataSourceReader):
    """Lists the parts on the driver."""

    def partitions(self) -> list[InputPartition]:
        return [EvidencePart(part) for part in self._source.parts()]


class GrowingReader(EvidenceReader, DataSourceStreamReader):
    """Determines offsets and parts in a process of Spark beside the driver."""

    def initialOffset(self) -> dict[str, Any]:
        offset: dict[str, Any] = self._source.start()
        return offset

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        offset: dict[str, Any] = self._source.latest(start)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [EvidencePart(part) for part in self._source.parts(start, end)]


def register_source(
    session: SparkSession, source_format: str, source: PartitionedSource | GrowingSource
) -> None:
    """Register a source as the data source `source_format`, which replaces the previous one."""

    class EvidenceSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_format

        def schema(self) -> StructType:
            return from_arrow_schema(source.schema)

        def reader(self, schema: StructType) -> DataSourceReader:
            return PartReader(source)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return GrowingReader(source)

    session.dataSource.register(EvidenceSource)
