"""The history as a DataFrame: what clients asked and what they were told, one row per line (`history_files`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from emulator.history import run_name
from spark_jobs.history_files import ROW_SCHEMA, HistoryFile, Slice, look_at, read_rows
from spark_jobs.run_folder import Damage, RunFolder, open_run_folder

EVENT_SCHEMA = from_arrow_schema(ROW_SCHEMA)
LOCAL_BYTES = 8 * 1024 * 1024
"""So much is read here before a task has begun."""


def look_at_all(folder: RunFolder) -> list[HistoryFile]:
    """Every file of the run's history."""
    there = {file.stem for file in folder.history}
    run = run_name(folder.path)
    return [look_at(file, run, there) for file in folder.history]


def read_history(spark: SparkSession, folder: RunFolder) -> tuple[DataFrame, list[Damage]]:
    """Every line as a row in the shape of ROW_SCHEMA, and why the files are not whole."""
    files = look_at_all(folder)
    damages = [damage for file in files for damage in file.damages]
    slices = [part for file in files for part in file.slices]
    if sum(part.stop - part.start for part in slices) > LOCAL_BYTES:
        spark.dataSource.register(HistorySource)
        return spark.read.format("history").load(str(folder.path)), damages
    batches = [batch for part in slices for batch in read_rows(part, folder.regions, folder.namespaces)]
    table = pa.Table.from_batches(batches) if batches else pa.Table.from_pylist([], ROW_SCHEMA)
    return spark.createDataFrame(table, EVENT_SCHEMA), damages


def events_of(lines: DataFrame) -> DataFrame:
    """The good ones."""
    return lines.where(F.col("damage").isNull())


class HistorySource(DataSource):
    """Option `path`: the run directory, as every executor sees it."""

    @classmethod
    def name(cls) -> str:
        return "history"

    def schema(self) -> StructType:
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return HistoryReader(Path(self.options["path"]))


class HistorySlice(InputPartition):
    """What one task reads."""

    def __init__(self, part: Slice, regions: tuple[str, ...], namespaces: tuple[str, ...]) -> None:
        self.part = part
        self.regions = regions
        self.namespaces = namespaces


class HistoryReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def partitions(self) -> list[InputPartition]:
        folder = open_run_folder(self._run)
        namespaces = tuple(folder.namespaces)
        return [
            HistorySlice(part, folder.regions, namespaces)
            for file in look_at_all(folder)
            for part in file.slices
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, HistorySlice)
        yield from read_rows(partition.part, partition.regions, partition.namespaces)
