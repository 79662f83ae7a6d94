"""The stored logs of a run's regions, one row per message: ROW_SCHEMA lists the columns.

Batches are split; markers are rows too (`marker_type`). A chunked message is the row of its last chunk. Unreadable data
is a row with only `region` and `damage`. The source has one part per region and range of rows, and yields rows in
Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from emulator.errors import StorageError
from spark_jobs.engines.frames import DataFrame, read, schema, small_frame
from spark_jobs.evidence.positions import is_entry
from spark_jobs.sources import export_log, kafka, sqlite
from spark_jobs.sources.contract import Group, LogDamaged, LogReader, RowRange, StoredReader
from spark_jobs.sources.entry_columns import ROW_SCHEMA, EntryColumns
from spark_jobs.sources.export_folder import EXPORT_BACKEND, ExportedRows
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.marker_claims import with_claims
from spark_jobs.sources.run_folder import EvidenceDamage, RegionLog, RunFolder, folder_of

MESSAGES = "persistent://"
"""Prefix of the names of topics' logs. Other logs are internal to the region, such as copies of compacted messages."""
COORDINATORS = ("internal://pulsar/system/__transaction_log_", "internal://pulsar/system/__transaction_key_")
"""Prefixes of the journals of transaction coordinators: of transactions, and of transaction keys."""
BATCH_ROWS = 16_384
"""Approximate number of rows of one Arrow batch."""

TRIMMED_SCHEMA = schema("region string, topic string, below map<bigint, bigint>")
"""`below`: ledger of a region's topic -> entry id below which retention removed the entries."""

T = TypeVar("T")
READERS: dict[str, LogReader] = {"sqlite": sqlite, "kafka": kafka}
"""The reader of each backend."""
STORED_READERS: dict[str, StoredReader] = {**READERS, EXPORT_BACKEND: export_log}
"""The reader of what regions store besides the entries of topics, of each backend and of exports."""


@dataclass(frozen=True)
class LogSlice:
    """A range of one region's log, or the reason why the log cannot be read."""

    log: RegionLog
    rows: RowRange | None
    damage: str | None = None

    def groups(self) -> Iterator[Group]:
        """Yield the group commits of the slice. Raises LogDamaged."""
        if self.rows is not None:
            yield from READERS[self.log.backend].read_groups(self.log, self.rows)


class LogPart(Protocol):
    """Group commits of one region's log that one task reads."""

    @property
    def log(self) -> RegionLog: ...

    @property
    def damage(self) -> str | None:
        """Why the log cannot be read; None if it can."""
        ...

    def groups(self) -> Iterator[Group]: ...


@dataclass(frozen=True)
class RegionLogs:
    """Source of the rows of all logs of a run."""

    logs: tuple[RegionLog, ...]
    schema = ROW_SCHEMA

    @property
    def folder(self) -> Path | None:
        return folder_of(self.logs)

    def parts(self) -> Sequence[LogSlice]:
        return [part for log in self.logs for part in slices_of(log)]

    def size_bytes(self) -> int | None:
        return size_of(self.logs)

    def read(self, part: LogSlice) -> Iterator[pa.RecordBatch]:
        yield from row_batches(part)


def row_batches(
    part: LogPart, is_wanted: Callable[[Group], bool] = lambda _: True
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, without those of unwanted group commits, which are not decoded."""
    columns = EntryColumns(part.log.region)
    if part.damage is not None:
        columns.add_damage(part.damage)
    try:
        for group in part.groups():
            if group.topic.startswith(MESSAGES) and is_wanted(group):
                columns.add_group(group)
            if len(columns) >= BATCH_ROWS:
                yield columns.take()
    except LogDamaged as damage:
        columns.add_damage(str(damage))
    # Also an empty batch: Spark detects from the first one that the source yields columns and not rows.
    yield columns.take()


def slices_of(log: RegionLog) -> list[LogSlice]:
    """Divide a log into slices, one per task; an unreadable log is one slice with the reason."""
    reader = READERS.get(log.backend)
    if reader is None:
        return [LogSlice(log, None, f"the log of {log.region} cannot be read: its backend is {log.backend}")]
    try:
        return [LogSlice(log, rows) for rows in reader.plan(log)]
    except LogDamaged as damage:
        return [LogSlice(log, None, str(damage))]


def read_region_logs(folder: RunFolder) -> DataFrame:
    """Return all rows of all regions of a run."""
    if folder.export is not None:
        files = folder.export.of("messages", "markers")
        return read(ExportedRows(folder.path, files, ROW_SCHEMA, {"producer_name": "producer"}, with_claims))
    return read(RegionLogs(folder.logs))


def _read_each(
    folder: RunFolder, read: Callable[[RegionLog, StoredReader], Iterable[T]]
) -> tuple[list[T], list[EvidenceDamage]]:
    """Return the results of `read` for all logs, and a damage for each unreadable one. Logs without a reader are
    skipped: `slices_of` reports them."""
    found: list[T] = []
    damages = []
    for log in folder.logs:
        reader = STORED_READERS.get(log.backend)
        if reader is None:
            continue
        try:
            found += read(log, reader)
        except (LogDamaged, StorageError) as damage:
            damages.append(EvidenceDamage(str(damage), log.region))
    return found, damages


def stored_bytes(folder: RunFolder, table: str) -> int | None:
    """Return the size of the files from which a table of `export_log.SCHEMAS` is read: the whole logs, or the files of
    an export; None with Kafka, where it is unknown before reading."""
    if folder.export is not None:
        return sum(file.size_bytes for file in folder.export.of(export_log.table_name(table)))
    return size_of(folder.logs)


def size_of(logs: Iterable[RegionLog]) -> int | None:
    """Return the size of the logs' files; None with Kafka, where it is unknown before reading."""
    logs = list(logs)
    return None if any(log.backend == "kafka" for log in logs) else sum(log.size_bytes for log in logs)


def read_ends(folder: RunFolder) -> dict[tuple[str, str], int]:
    """Return the highest entry id by region and topic, where it may be larger than that of the newest entry. Unreadable
    logs are skipped: other readers report them."""
    ends, _ = _read_each(
        folder,
        lambda log, reader: [
            ((log.region, topic), end) for topic, end in reader.read_ends(log).items() if is_entry(end)
        ],
    )
    return dict(ends)


def read_trimmed(
    folder: RunFolder, history_topics: Collection[str]
) -> tuple[DataFrame, list[EvidenceDamage]]:
    """Return which entries retention removed, in TRIMMED_SCHEMA: only for topics with a policy that trims. In other
    topics an absent entry is missing. Call it AFTER reading the rows: an entry that is trimmed in between then counts
    as trimmed, not as lost."""
    heads, damages = _read_each(
        folder, lambda log, reader: [(log.region, head) for head in reader.read_heads(log)]
    )
    below: dict[tuple[str, str], dict[int, int]] = {}
    for region, head in heads:
        if head.topic.startswith(MESSAGES) and head.first_entry_id > 0 and folder.trims(head.topic):
            topic = history_topic(head.topic, history_topics) or head.topic
            below.setdefault((region, topic), {})[head.ledger_id] = head.first_entry_id
    rows = [(region, topic, ledgers) for (region, topic), ledgers in below.items()]
    return small_frame(rows, TRIMMED_SCHEMA), damages
