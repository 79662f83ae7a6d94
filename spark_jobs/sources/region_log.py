"""The stored logs of a run's regions, one row per message: ROW_SCHEMA lists the columns.

Batches are split; markers are rows too (`marker_type`), so that every stored entry is visible. Unreadable data is a
row as well: only `region` and `damage` are set, and the other rows are incomplete.
One part per region and range of rows; rows come as Arrow batches, never one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from emulator.errors import StorageError
from emulator.storage.group import decode_group
from spark_jobs.engines.frames import DataFrame, read, small_frame
from spark_jobs.sources import kafka, sqlite
from spark_jobs.sources.contract import Group, LogDamaged, LogReader, RegionValue, RowRange
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

TRIMMED_SCHEMA = pa.schema(
    {"region": pa.string(), "topic": pa.string(), "below": pa.map_(pa.int64(), pa.int64())}
)
"""Where retention let entries go: per ledger of a region's topic, those with a smaller id than this."""

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


def read_values(folder: RunFolder) -> tuple[list[RegionValue], list[EvidenceDamage]]:
    """Stored cursors and grants of all regions: region, and key with value."""
    found: list[RegionValue] = []
    damages = []
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            continue
        try:
            found += [(log.region, value) for value in reader.read_values(log)]
        except LogDamaged as damage:
            damages.append(EvidenceDamage(str(damage), log.region))
    return found, damages


def read_coordinators(folder: RunFolder) -> tuple[list[tuple[str, str, int, bytes]], list[EvidenceDamage]]:
    """What the coordinators of transactions stored in all regions: region, log, id and content of each entry."""
    found: list[tuple[str, str, int, bytes]] = []
    damages = []
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            continue
        try:
            for head in reader.read_heads(log):
                if head.topic.startswith(COORDINATORS):
                    found += _entries(log.region, reader.read_topic(log, head.topic))
        except (LogDamaged, StorageError) as damage:
            damages.append(EvidenceDamage(str(damage), log.region))
    return found, damages


def _entries(region: str, groups: Iterator[Group]) -> Iterator[tuple[str, str, int, bytes]]:
    for group in groups:
        for number, data in enumerate(decode_group(group.data), group.first_entry_id):
            if number >= group.trimmed_below:
                yield region, group.topic, number, bytes(data)


def read_ends(folder: RunFolder) -> dict[tuple[str, str], int]:
    """By region and topic the highest id, where it is not that of the newest entry. Of what cannot be read nothing:
    others say so."""
    found: dict[tuple[str, str], int] = {}
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            continue
        with contextlib.suppress(LogDamaged):
            found |= {(log.region, topic): end for topic, end in reader.read_ends(log).items()}
    return found


def read_trimmed(
    folder: RunFolder, history_topics: Collection[str]
) -> tuple[DataFrame, list[EvidenceDamage]]:
    """Where retention let entries go, in the shape of TRIMMED_SCHEMA: only in namespaces with a policy that lets go.
    Elsewhere what a log does not hold any more is missing. Ask AFTER the rows were read: what was let go in between
    then counts as trimmed, not as lost."""
    below: dict[tuple[str, str], dict[int, int]] = {}
    damages = []
    for log in folder.logs:
        reader = READERS.get(log.backend)
        if reader is None:
            continue
        try:
            heads = reader.read_heads(log)
        except LogDamaged as damage:
            damages.append(EvidenceDamage(str(damage), log.region))
            continue
        for head in heads:
            if not head.topic.startswith(MESSAGES):
                continue
            if head.first_entry_id > 0 and folder.trims(head.topic):
                topic = history_topic(head.topic, history_topics) or head.topic
                below.setdefault((log.region, topic), {})[head.ledger_id] = head.first_entry_id
    rows = [(region, topic, ledgers) for (region, topic), ledgers in below.items()]
    return small_frame(rows, TRIMMED_SCHEMA), damages
