"""Readers of the public tables (`schema.py`): each yields the rows of a run directory's files, in parts.

Parts are slices of one region's log, or of one history file. A reader decodes only what its filter may match.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from emulator.errors import ProtocolError, ServerError, StorageError
from emulator.run.history_schema import LINK_VERBS, REGION_VERBS
from emulator.storage.group import decode_group
from emulator.wire.message_metadata import EntryDetails, read_entry
from spark_jobs.engines.contract import PartitionedSource
from spark_jobs.engines.frames import record_batch
from spark_jobs.evidence.cursors import Range, checked_cursor, cursors_of
from spark_jobs.evidence.metadata_events import as_written
from spark_jobs.frames.history import HistoryLines, history_lines
from spark_jobs.sources.contract import Group, LogDamaged
from spark_jobs.sources.export_folder import Export, ExportedFile, FileDamaged, read_file
from spark_jobs.sources.history_files import Slice
from spark_jobs.sources.metadata import events_in, read_settings
from spark_jobs.sources.region_log import (
    BATCH_ROWS,
    MESSAGES,
    READERS,
    LogPart,
    row_batches,
    size_of,
    slices_of,
)
from spark_jobs.sources.run_folder import RegionLog, RunFolder, folder_of
from spark_jobs.tables.filters import EVERY_ROW, RowFilter
from spark_jobs.tables.schema import TABLES

OnDamage = Literal["fail", "rows", "drop"]
"""What a reader does with evidence that cannot be read: raise EvidenceUnreadable, yield rows with a `damage`, or yield
no row."""
FAULT_OPS = (*REGION_VERBS, *LINK_VERBS, "heal")
_INT64 = 2**63


class EvidenceUnreadable(Exception):
    """A part of the evidence cannot be read; the message is a sentence that names it."""


def table_source(
    folder: RunFolder, name: str, only: RowFilter = EVERY_ROW, on_damage: OnDamage = "fail"
) -> PartitionedSource:
    """Return the source of a table of a run directory or an export. KeyError for an unknown name."""
    if folder.export is not None:
        return ExportedTable(name, only, on_damage, export=folder.export)
    logs = tuple(log for log in folder.logs if only.matches("region", log.region))
    match TABLES[name].name:
        case "messages" | "markers":
            return MessageTable(name, only, on_damage, logs)
        case "entries":
            return EntryTable(name, only, on_damage, logs)
        case "cursors":
            return CursorTable(name, only, on_damage, logs)
        case "metadata_events":
            settings = read_settings(folder)
            topic = next(iter(settings.values())).topic if settings else None
            return EventTable(name, only, on_damage, logs if topic else (), topic or "", folder.clusters)
        case _:
            return HistoryTable(name, only, on_damage, lines=history_lines(folder)[0])


@dataclass(frozen=True)
class TableReader(ABC):
    """The source of one table."""

    name: str
    only: RowFilter = EVERY_ROW
    on_damage: OnDamage = "fail"

    @property
    def schema(self) -> pa.Schema:
        return TABLES[self.name].schema

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part that satisfy the filter. EvidenceUnreadable if `on_damage` is `fail`."""
        for batch in self._batches(part):
            yield self.only.apply(self._without_damages(batch))

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """Directory of the run or export whose files `read` opens; None if it opens no file."""

    @abstractmethod
    def _batches(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, damages included."""

    def _without_damages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if "damage" not in batch.schema.names or self.on_damage == "rows":
            return batch
        damages = batch.column("damage")
        if damages.null_count == len(damages):
            return batch
        if self.on_damage == "fail":
            raise EvidenceUnreadable(f"{damages.drop_null()[0].as_py()} (damage=rows reads the other rows)")
        return batch.filter(pc.is_null(damages))

    def _damage(self, sentence: str, region: str | None) -> tuple[Any, ...]:
        """Return the row of a damage."""
        values = {"damage": sentence, "region": region}
        return tuple(values.get(name) for name in self.schema.names)


@dataclass(frozen=True)
class LogTable(TableReader):
    """A table of what regions store, read by slices of their logs."""

    logs: tuple[RegionLog, ...] = ()

    @property
    def folder(self) -> Path | None:
        return folder_of(self.logs)

    def parts(self) -> Sequence[Any]:
        return [part for log in self.logs for part in slices_of(log)]

    def size_bytes(self) -> int | None:
        return size_of(self.logs)

    def _is_wanted(self, group: Group) -> bool:
        return (
            _matches_topic(self.only, group.topic)
            and self.only.matches("ledger_id", group.ledger_id, pa.int64())
            and self.only.may_match_from("entry_id", group.first_entry_id)
        )


@lru_cache(maxsize=1024)
def _matches_topic(only: RowFilter, topic: str) -> bool:
    return only.matches("topic", topic)


class MessageTable(LogTable):
    """`messages` or `markers`: rows of `region_log`."""

    def _batches(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        for batch in row_batches(part, self._is_wanted):
            yield select_rows(batch, self.name)


def select_rows(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return the rows of `messages` or of `markers` among rows of `region_log`, each with all damages."""
    is_marker = pc.is_valid(batch.column("marker_type"))
    wanted = is_marker if name == "markers" else pc.invert(is_marker)
    rows = batch.filter(pc.or_(wanted, pc.is_valid(batch.column("damage"))))
    schema = TABLES[name].schema
    columns = [rows.column("producer_name" if column == "producer" else column) for column in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class EntryTable(LogTable):
    """`entries`: entries as they are stored, with what their metadata says."""

    def _batches(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        region = part.log.region
        rows: list[tuple[Any, ...]] = []
        if part.damage is not None:
            rows.append(self._damage(part.damage, region))
        try:
            for group in part.groups():
                if group.topic.startswith(MESSAGES) and self._is_wanted(group):
                    rows += self._rows_of(region, group)
                if len(rows) >= BATCH_ROWS:
                    yield record_batch(rows, self.schema)
                    rows = []
        except LogDamaged as damage:
            rows.append(self._damage(str(damage), region))
        yield record_batch(rows, self.schema)

    def _rows_of(self, region: str, group: Group) -> Iterator[tuple[Any, ...]]:
        place = (
            f"the log of {region}, topic {group.topic}, entries from {group.ledger_id}:{group.first_entry_id}"
        )
        try:
            entries = decode_group(group.data, place)
        except StorageError as damage:
            yield self._damage(str(damage), region)
            return
        if not group.has_places(len(entries)):
            yield self._damage(f"{place}: a position that no log can have", region)
            return
        for entry_id, data in enumerate(entries, group.first_entry_id):
            if entry_id >= group.trimmed_below:
                try:
                    yield (region, group.topic, group.ledger_id, entry_id, *_entry(data, region), None)
                except ProtocolError as damage:
                    yield self._damage(f"{place}: entry {entry_id}: {damage}", region)


def _entry(data: bytes, region: str) -> tuple[Any, ...]:
    """Return the columns of an entry from `producer` to `is_sound`. ProtocolError if its metadata is unreadable."""
    try:
        info, is_sound = read_entry(data, verify=True), True
    except ProtocolError as problem:
        if problem.code != ServerError.ChecksumError:
            raise
        info, is_sound = read_entry(data), False
    chunk = (info.chunk_id, info.num_chunks) if info.is_chunk else (None, None)
    return (
        info.producer_name,
        _signed(info.sequence_id),
        _signed(info.publish_time_ms),
        info.replicated_from,
        info.replicated_from or region,
        info.replicate_to or None,
        *(info.source_position or (None, None)),
        None if info.txn is None else f"{info.txn[0]},{info.txn[1]}",
        info.marker_type,
        _messages_in(info),
        *chunk,
        len(data),
        is_sound,
    )


def _messages_in(info: EntryDetails) -> int:
    if info.marker_type is not None or (info.is_chunk and info.chunk_id != info.num_chunks - 1):
        return 0
    return info.num_messages if info.is_batch else 1


def _signed(value: int) -> int:
    return value if value < _INT64 else value - 2 * _INT64


class CursorTable(LogTable):
    """`cursors`: the stored positions of subscriptions."""

    def parts(self) -> Sequence[Any]:
        return self.logs

    def _batches(self, part: RegionLog) -> Iterator[pa.RecordBatch]:
        yield record_batch(list(self._rows(part)), self.schema)

    def _rows(self, log: RegionLog) -> Iterator[tuple[Any, ...]]:
        try:
            values = READERS[log.backend].read_values(log) if log.backend in READERS else []
        except (LogDamaged, StorageError) as damage:
            yield self._damage(str(damage), log.region)
            return
        for key, head, parts in cursors_of(values):
            try:
                position, consumed = checked_cursor(head, parts)
                ranges = _after(position.mark_delete, consumed)
                yield log.region, key.topic, key.subscription, position.mark_delete, ranges, None
            except ValueError as problem:
                what = f"the cursor of {key.subscription} in {log.region} cannot be read: {problem}"
                yield self._damage(what, log.region)


def _after(mark_delete: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges after `mark_delete`, ascending, overlapping and adjacent ones merged."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        first = max(first, mark_delete + 1)
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        elif first <= last:
            joined.append((first, last))
    return joined


@dataclass(frozen=True)
class EventTable(LogTable):
    """`metadata_events`: the events in the regions' logs of the event topic."""

    topic: str = ""
    clusters: Mapping[str, str] = field(default_factory=dict)

    def parts(self) -> Sequence[Any]:
        return self.logs

    def _batches(self, part: RegionLog | LogPart) -> Iterator[pa.RecordBatch]:
        yield record_batch(list(self._rows(part)), self.schema)

    def _rows(self, part: RegionLog | LogPart) -> Iterator[tuple[Any, ...]]:
        log = part if isinstance(part, RegionLog) else part.log
        if log.backend not in READERS:
            yield self._damage(
                f"the log of {log.region} cannot be read: its backend is {log.backend}", log.region
            )
            return
        try:
            for group in self._groups(part):
                entries = decode_group(group.data, f"the event topic in {log.region}")
                for entry_id, data in enumerate(entries, group.first_entry_id):
                    yield from self._events(log.region, group.ledger_id, entry_id, data)
        except (LogDamaged, StorageError, ProtocolError) as damage:
            yield self._damage(str(damage), log.region)

    def _groups(self, part: RegionLog | LogPart) -> Iterator[Group]:
        if isinstance(part, RegionLog):
            return READERS[part.backend].read_topic(part, self.topic)
        return (group for group in part.groups() if group.topic == self.topic)

    def _events(self, region: str, ledger_id: int, entry_id: int, data: bytes) -> Iterator[tuple[Any, ...]]:
        info = read_entry(data)
        if info.marker_type is not None:
            return
        cluster = self.clusters.get(info.replicated_from or region, "")
        for event in events_in(bytes(data[info.payload_offset :]), cluster, info.publish_time_ms):
            stamp = event.stamp
            yield (
                *(
                    region,
                    ledger_id,
                    entry_id,
                    int(event.published_ms),
                    as_written(event.path),
                    event.element,
                ),
                *(event.is_deletion, None if event.value is None else json.dumps(event.value)),
                *(stamp.time_ms, stamp.counter, stamp.source, stamp.sequence, stamp.incarnation, None),
            )


@dataclass(frozen=True)
class HistoryTable(TableReader):
    """`history` or `faults`: lines of history files."""

    lines: HistoryLines = field(kw_only=True)

    @property
    def folder(self) -> Path | None:
        return self.lines.folder

    def parts(self) -> Sequence[Slice]:
        return [part for part in self.lines.parts() if self.only.matches("history_file", part.path.stem)]

    def size_bytes(self) -> int:
        return sum(part.stop - part.start for part in self.parts())

    def _batches(self, part: Slice) -> Iterator[pa.RecordBatch]:
        for batch in self.lines.read(part):
            if self.name == "faults":
                is_fault = pc.is_in(batch.column("op"), pa.array(FAULT_OPS))
                batch = batch.filter(pc.and_(is_fault, pc.equal(batch.column("outcome"), "fact")))
            columns = [batch.column(name) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class ExportedTable(TableReader):
    """Any table of an export."""

    export: Export = field(kw_only=True)

    @property
    def folder(self) -> Path:
        return self.export.folder

    def parts(self) -> Sequence[ExportedFile]:
        return [file for file in self.export.of(self.name) if self.only.matches(file.column, file.value)]

    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.parts())

    def _batches(self, part: ExportedFile) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_file(self.export.folder, part, self.schema)
        except FileDamaged as damage:
            if "damage" not in self.schema.names:
                raise EvidenceUnreadable(str(damage)) from damage
            region = part.value if part.column == "region" else None
            yield record_batch([self._damage(str(damage), region)], self.schema)
