"""The history as a DataFrame: operations of clients and their responses, one row per line (`history_files`).

*Producers reopened under one name.* With deduplication, a region continues the sequence ids of a producer name. A
program that counts its messages from 0 in each session then records other sequence ids than the region stores. Its
receipts show the offset: if the messages stored at all receipts of a session have sequence ids that differ by one
constant, that constant is the session's offset. Only sessions of one producer name with overlapping sequence ids are
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa

from emulator.run.history import run_name
from spark_jobs.engines.frames import DataFrame, F, read
from spark_jobs.sources.export_folder import ExportedRows
from spark_jobs.sources.history_files import ROW_SCHEMA, Slice, copied_files, inspect_file, read_rows
from spark_jobs.sources.run_folder import EvidenceDamage, RunFolder


def read_history(folder: RunFolder) -> tuple[DataFrame, list[EvidenceDamage]]:
    """Return every line as a row in ROW_SCHEMA, and the damages of the files."""
    if folder.export is not None:
        damages = [EvidenceDamage(sentence) for sentence in folder.export.damages]
        return read(ExportedRows(folder.path, folder.export.of("history"), ROW_SCHEMA, {})), damages
    lines, damages = history_lines(folder)
    return read(lines), damages


def history_lines(folder: RunFolder) -> tuple[HistoryLines, list[EvidenceDamage]]:
    """Return the source of all lines, and the damages of the files."""
    present, run = {file.stem for file in folder.history}, run_name(folder.path)
    files = [inspect_file(file, run, present) for file in folder.history]
    slices = tuple(part for file in files for part in file.slices)
    lines = HistoryLines(slices, folder.regions, tuple(folder.namespaces))
    return lines, [*(damage for file in files for damage in file.damages), *copied_files(files)]


def events_of(lines: DataFrame) -> DataFrame:
    """Return the readable lines."""
    return lines.where(F.col("damage").isNull())


def operations(events: DataFrame, op: str, outcome: str | None = None) -> DataFrame:
    """Return the lines of one operation, with one outcome or any."""
    is_wanted = F.col("op") == op
    return events.where(is_wanted if outcome is None else is_wanted & (F.col("outcome") == outcome))


@dataclass(frozen=True)
class HistoryLines:
    """Source of the lines of history files, read by slices."""

    slices: tuple[Slice, ...]
    regions: tuple[str, ...]
    namespaces: tuple[str, ...]
    schema = ROW_SCHEMA

    @property
    def folder(self) -> Path | None:
        return self.slices[0].path.parents[1] if self.slices else None

    def parts(self) -> Sequence[Slice]:
        return self.slices

    def size_bytes(self) -> int:
        return sum(part.stop - part.start for part in self.slices)

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        yield from read_rows(part, self.regions, self.namespaces)


def renumbered(events: DataFrame, stored: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return the events, with publishes under the sequence ids that regions stored, and a sentence for each changed
    session."""
    overlapping = _overlapping(_ranges(events))
    if not overlapping:
        return events, []
    shifts = _shifts(events.where(F.col("session").isin(overlapping)), stored)
    if not shifts:
        return events, []
    pairs = [F.lit(one) for session, shift in sorted(shifts.items()) for one in (session, shift)]
    by = F.coalesce(F.create_map(*pairs)[F.col("session")], F.lit(0))
    number = F.when(F.col("op") == "publish", F.col("sequence_id") + by).otherwise(F.col("sequence_id"))
    sentences = [
        f"The region continued the sequence ids of the producer's name: those of session {session} are {shift} higher"
        " than its program recorded."
        for session, shift in sorted(shifts.items())
    ]
    return events.withColumn("sequence_id", number), sentences


def _ranges(events: DataFrame) -> list[Mapping[str, Any]]:
    requests = operations(events, "publish", "asked")
    ranges = requests.groupBy("topic", "region", "producer", "session").agg(
        F.min("sequence_id").alias("first"), F.max("sequence_id").alias("last")
    )
    return [row.asDict() for row in ranges.collect()]


def _overlapping(ranges: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sessions whose range of sequence ids overlaps that of another session of the same producer name."""
    by_name: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for one in ranges:
        by_name.setdefault((one["topic"], one["region"], one["producer"]), []).append(one)
    found = {
        str(one["session"])
        for sessions in by_name.values()
        for pair in combinations(sessions, 2)
        if pair[0]["first"] <= pair[1]["last"] and pair[1]["first"] <= pair[0]["last"]
        for one in pair
    }
    return sorted(found)


def _shifts(events: DataFrame, stored: DataFrame) -> dict[str, int]:
    place = ["topic", "region", "producer", "ledger_id", "entry_id", "batch_index"]
    receipts = operations(events, "publish", "ok").where(F.col("ledger_id").isNotNull())
    own = stored.where(F.col("region") == F.col("origin_region")).select(
        *place, F.col("sequence_id").alias("stored_id")
    )
    shift = F.col("stored_id") - F.col("sequence_id")
    shifts = (
        receipts.join(own, place, "left")
        .groupBy("session")
        .agg(
            F.min(shift).alias("least"),
            F.max(shift).alias("most"),
            F.count(F.when(F.col("stored_id").isNull(), 1)).alias("nowhere"),
        )
        .where((F.col("least") == F.col("most")) & (F.col("least") != 0) & (F.col("nowhere") == 0))
    )
    return {row["session"]: row["least"] for row in shifts.collect()}
