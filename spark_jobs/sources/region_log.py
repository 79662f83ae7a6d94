"""The stored logs of a run's regions, one row per message: ROW_SCHEMA lists the columns.

Batches are split; markers are rows too (`marker_type`), so that every stored entry is visible. Unreadable data is a
row as well: only `region` and `damage` are set, and the other rows are incomplete.
One part per region and range of rows; rows come as Arrow batches, never one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from emulator.errors import StorageError
from emulator.storage.group import decode_group
from spark_jobs.engines.frames import DataFrame, read, schema, small_frame
from spark_jobs.evidence.transaction_journals import CoordinatorEntry
from spark_jobs.sources import kafka, sqlite
from spark_jobs.sources.contract import LogDamaged, LogReader, RegionValue, RowRange
from spark_jobs.sources.entry_columns import ROW_SCHEMA, EntryColumns
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.run_folder import EvidenceDamage, RegionLog, RunFolder

MESSAGES = "persistent://"
"""How the names of logs begin that topics are. Others are the region's own: what it compacted, for one, is stored twice
and published once."""
COORDINATORS = ("internal://pulsar/system/__transaction_log_", "internal://pulsar/system/__transaction_key_")
"""Logs of the coordinators of transactions, and of their keys."""
BATCH_ROWS = 16_384
"""Rows of one Arrow batch, about."""

TRIMMED_SCHEMA = schema("region string, topic string, below map<bigint, bigint>")
"""Where retention removed entries: per ledger of a region's topic, those with a smaller id than this."""

T = TypeVar("T")
READERS: dict[str, LogReader] = {"sqlite": sqlite, "kafka": kafka}
"""The reader of each backend."""


@dataclass(frozen=True)
class LogSlice:
    """A range of one region's log, or the reason why there is none."""

    log: RegionLog
    rows: RowRange | None
    damage: str | None = None


@dataclass(frozen=True)
class RegionLogs:
    """All logs of a run, as a source."""

    logs: tuple[RegionLog, ...]
    schema = ROW_SCHEMA

    def parts(self) -> Sequence[LogSlice]:
        return [part for log in self.logs for part in _slices(log)]

    def size_bytes(self) -> int | None:
        """Of files. The size of a log in Kafka is not known before it was read."""
        if any(log.backend == "kafka" for log in self.logs):
            return None
        return sum(log.size_bytes for log in self.logs)

    def read(self, part: LogSlice) -> Iterator[pa.RecordBatch]:
        columns = EntryColumns(part.log.region)
        if part.damage is not None:
            columns.add_damage(part.damage)
        if part.rows is not None:
            try:
                for group in READERS[part.log.backend].read_groups(part.log, part.rows):
                    if group.topic.startswith(MESSAGES):
                        columns.add_group(group)
                    if len(columns) >= BATCH_ROWS:
                        yield columns.take()
            except LogDamaged as damage:
                columns.add_damage(str(damage))
        # Also when there is nothing: Spark learns from the first batch that it gets columns and not rows.
        yield columns.take()


def _slices(log: RegionLog) -> list[LogSlice]:
    reader = READERS.get(log.backend)
    if reader is None:
        return [LogSlice(log, None, f"the log of {log.region} cannot be read: its backend is {log.backend}")]
    try:
        return [LogSlice(log, rows) for rows in reader.plan(log)]
    except LogDamaged as damage:
        return [LogSlice(log, None, str(damage))]


def read_region_logs(folder: RunFolder) -> DataFrame:
    """All rows of all regions of a run."""
    return read(RegionLogs(folder.logs))


def _read_each(
    folder: RunFolder, read: Callable[[RegionLog, LogReader], Iterable[T]]
) -> tuple[list[T], list[EvidenceDamage]]:
    """What `read` yields of each log that can be read, and a damage for each other one. A log without a reader is
    reported by its part."""
    found: list[T] = []
    damages = []
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            continue
        try:
            found += read(log, reader)
        except (LogDamaged, StorageError) as damage:
            damages.append(EvidenceDamage(str(damage), log.region))
    return found, damages


def read_values(folder: RunFolder) -> tuple[list[RegionValue], list[EvidenceDamage]]:
    """Stored cursors and grants of all regions: region, and key with value."""
    return _read_each(folder, lambda log, reader: [(log.region, value) for value in reader.read_values(log)])


def read_coordinators(folder: RunFolder) -> tuple[list[CoordinatorEntry], list[EvidenceDamage]]:
    """What the coordinators of transactions stored in all regions."""

    def entries(log: RegionLog, reader: LogReader) -> Iterator[CoordinatorEntry]:
        for head in reader.read_heads(log):
            if head.topic.startswith(COORDINATORS):
                for group in reader.read_topic(log, head.topic):
                    for number, data in enumerate(decode_group(group.data), group.first_entry_id):
                        if number >= group.trimmed_below:
                            yield log.region, group.topic, number, bytes(data)

    return _read_each(folder, entries)


def read_ends(folder: RunFolder) -> dict[tuple[str, str], int]:
    """By region and topic the highest id, where it is not that of the newest entry. Of what cannot be read nothing:
    other readers report it."""
    ends, _ = _read_each(
        folder,
        lambda log, reader: [((log.region, topic), end) for topic, end in reader.read_ends(log).items()],
    )
    return dict(ends)


def read_trimmed(
    folder: RunFolder, history_topics: Collection[str]
) -> tuple[DataFrame, list[EvidenceDamage]]:
    """Where retention removed entries, in the shape of TRIMMED_SCHEMA: only in namespaces with a policy that trims.
    Elsewhere what a log does not hold any more is missing. Call it AFTER the rows were read: what was trimmed in
    between then counts as trimmed, not as lost."""
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
