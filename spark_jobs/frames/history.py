"""The history as a DataFrame: operations of clients and their responses, one row per line (`history_files`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from emulator.run.history import run_name
from spark_jobs.engines.frames import DataFrame, F, read
from spark_jobs.sources.history_files import ROW_SCHEMA, HistoryFile, Slice, look_at, read_rows
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder


def look_at_all(folder: RunFolder) -> list[HistoryFile]:
    """Every file of the run's history."""
    there = {file.stem for file in folder.history}
    run = run_name(folder.path)
    return [look_at(file, run, there) for file in folder.history]


def read_history(folder: RunFolder) -> tuple[DataFrame, list[EvidenceDamage]]:
    """Every line as a row in the shape of ROW_SCHEMA, and why the files are not whole."""
    files = look_at_all(folder)
    slices = tuple(part for file in files for part in file.slices)
    lines = read(HistoryLines(slices, folder.regions, tuple(folder.namespaces)))
    return lines, [damage for file in files for damage in file.damages]


def events_of(lines: DataFrame) -> DataFrame:
    """The good ones."""
    return lines.where(F.col("damage").isNull())


@dataclass(frozen=True)
class HistoryLines:
    """The lines of whole files, as a source."""

    slices: tuple[Slice, ...]
    regions: tuple[str, ...]
    namespaces: tuple[str, ...]
    schema = ROW_SCHEMA

    def parts(self) -> Sequence[Slice]:
        return self.slices

    def size_bytes(self) -> int:
        return sum(part.stop - part.start for part in self.slices)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        yield from read_rows(part, self.regions, self.namespaces)
