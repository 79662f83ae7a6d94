"""The logs and histories of a run that still grows, read in steps.

An *offset* names what was read: the next entry of each topic in each region's log, and the bytes and lines of each
history file. `latest` determines the logs' ends first and those of the histories afterwards. So the evidence up to an
offset contains the request of every stored message that a client published, because clients record a request before
they send it. A line counts only when its newline is written.

Logs that cannot be read yet (the region is starting) are read later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_jobs.engines.frames import DataFrame, F
from spark_jobs.sources.contract import Group, LogDamaged
from spark_jobs.sources.entry_columns import ROW_SCHEMA as ENTRY_SCHEMA
from spark_jobs.sources.history_files import ROW_SCHEMA as LINE_SCHEMA
from spark_jobs.sources.history_files import SLICE_BYTES, Slice, read_rows
from spark_jobs.sources.region_log import MESSAGES, READERS, row_batches
from spark_jobs.sources.run_folder import RegionLog, RunFolder, looks_like_a_run, open_run_folder

Offset = dict[str, Any]
"""`logs`: region -> topic -> next entry; `lines`: history file -> `bytes` and `lines`. JSON values."""
ENTRY, LINE = "entry", "line"
GROWN_SCHEMA = pa.schema([(ENTRY, pa.struct(list(ENTRY_SCHEMA))), (LINE, pa.struct(list(LINE_SCHEMA)))])
"""A row of a log, or a line of a history; the other one is null."""
PART_ENTRIES = 100_000
"""Number of entries that one task reads."""


NOTHING = {"bytes": 0, "lines": 0}


class RunVanished(Exception):
    """The run directory no longer exists; the message is a sentence without its full stop."""


@dataclass(frozen=True)
class NewEntries:
    """Ranges of one region's log."""

    log: RegionLog
    ranges: Mapping[str, tuple[int, int]]
    damage = None

    def groups(self) -> Iterator[Group]:
        yield from READERS[self.log.backend].read_between(self.log, self.ranges)


@dataclass(frozen=True)
class NewLines:
    """Complete lines of one history file."""

    lines: Slice
    regions: tuple[str, ...]
    namespaces: tuple[str, ...]


GrowingPart = NewEntries | NewLines


@dataclass(frozen=True)
class GrowingRun:
    """Source of the rows that a run directory gains. It can be pickled."""

    path: Path
    in_network: bool = False
    schema = GROWN_SCHEMA

    @property
    def folder(self) -> Path:
        return self.path

    def start(self) -> Offset:
        return {"logs": {}, "lines": {}}

    def latest(self, since: Offset) -> Offset:
        """Return the offset up to which evidence is durable now, at or after `since`. Raises RunVanished."""
        logs = log_ends(existing_run(self.path, in_network=self.in_network), since["logs"])
        return {"logs": logs, "lines": line_ends(self.path, since["lines"])}

    def parts(self, since: Offset, until: Offset) -> list[GrowingPart]:
        """Return the parts between two offsets; each can be read by any task."""
        folder = existing_run(self.path, in_network=self.in_network)
        lines = new_lines(folder, since["lines"], until["lines"])
        return [*new_entries(folder.logs, since["logs"], until["logs"]), *lines]

    def read(self, part: GrowingPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part in GROWN_SCHEMA."""
        if isinstance(part, NewLines):
            batches = read_rows(part.lines, part.regions, part.namespaces)
            yield from (_wrapped(LINE, batch) for batch in batches)
        else:
            yield from (_wrapped(ENTRY, batch) for batch in row_batches(part))


def existing_run(path: Path, *, in_network: bool) -> RunFolder:
    """Return the run directory. Raises RunVanished."""
    if not looks_like_a_run(path):
        raise RunVanished(f"the run directory {path} no longer exists")
    return open_run_folder(path, in_network=in_network)


def log_ends(folder: RunFolder, since: Mapping[str, Any]) -> dict[str, Any]:
    """Return region -> topic -> next entry, at or after `since`."""
    return {**since, **{log.region: _next_entries(log, since.get(log.region, {})) for log in folder.logs}}


def line_ends(run: Path, since: Mapping[str, Any]) -> dict[str, Any]:
    """Return history file -> end of its last complete line, at or after `since`. The files are listed again: a program
    may have begun its history since the run directory was opened."""
    files = sorted((run / "history").glob("*.jsonl"))
    return {**since, **{file.name: _complete_lines(file, since.get(file.name, NOTHING)) for file in files}}


def new_entries(
    logs: Iterable[RegionLog], since: Mapping[str, Any], until: Mapping[str, Any]
) -> list[NewEntries]:
    """Return the parts of logs between two results of `log_ends`."""
    found: list[NewEntries] = []
    for log in logs:
        before, ends = (offset.get(log.region, {}) for offset in (since, until))
        found += _entry_parts(log, {topic: (before.get(topic, 0), end) for topic, end in ends.items()})
    return found


def new_lines(folder: RunFolder, since: Mapping[str, Any], until: Mapping[str, Any]) -> list[NewLines]:
    """Return the parts of histories between two results of `line_ends`."""
    found: list[NewLines] = []
    for file in folder.history:
        read = since.get(file.name, NOTHING)
        slices = _line_slices(file, read, until.get(file.name, read)["bytes"])
        found += [NewLines(lines, folder.regions, tuple(folder.namespaces)) for lines in slices]
    return found


def entries_of(grown: DataFrame) -> DataFrame:
    """Return the rows of logs, in the schema `region_log.ROW_SCHEMA`."""
    return _unwrapped(grown, ENTRY, ENTRY_SCHEMA)


def lines_of(grown: DataFrame) -> DataFrame:
    """Return the lines of histories, in the schema `history_files.ROW_SCHEMA`."""
    return _unwrapped(grown, LINE, LINE_SCHEMA)


def _unwrapped(grown: DataFrame, name: str, schema: pa.Schema) -> DataFrame:
    rows = grown.where(F.col(name).isNotNull())
    return rows.select(*(F.col(f"{name}.{column}").alias(column) for column in schema.names))


def _wrapped(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in GROWN_SCHEMA whose field `name` contains the columns of a batch."""
    columns = [
        pa.StructArray.from_arrays(batch.columns, fields=list(field.type))
        if field.name == name
        else pa.nulls(len(batch), field.type)
        for field in GROWN_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=GROWN_SCHEMA)


def _next_entries(log: RegionLog, before: Mapping[str, int]) -> dict[str, int]:
    reader = READERS.get(log.backend)
    try:
        ends = reader.next_entries(log) if reader is not None else {}
    except LogDamaged:
        ends = {}
    # Entries that were read may be trimmed now, and the region may have lost its log.
    return {**before, **{topic: max(end, before.get(topic, 0)) for topic, end in _messages(ends)}}


def _messages(ends: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((topic, end) for topic, end in ends.items() if topic.startswith(MESSAGES))


def _entry_parts(log: RegionLog, ranges: Mapping[str, tuple[int, int]]) -> Iterator[NewEntries]:
    """Yield parts of about PART_ENTRIES entries."""
    part: dict[str, tuple[int, int]] = {}
    room = PART_ENTRIES
    for topic, (start, stop) in ranges.items():
        for first in range(start, stop, PART_ENTRIES):
            part[topic] = (first, min(stop, first + PART_ENTRIES))
            room -= part[topic][1] - first
            if room <= 0:
                yield NewEntries(log, part)
                part, room = {}, PART_ENTRIES
    if part:
        yield NewEntries(log, part)


def _complete_lines(file: Path, before: Mapping[str, int]) -> dict[str, int]:
    """Return the end of the last complete line."""
    at, lines, read = before["bytes"], before["lines"], before["bytes"]
    try:
        with file.open("rb") as stream:
            stream.seek(at)
            while data := stream.read(SLICE_BYTES):
                if (last := data.rfind(b"\n")) >= 0:
                    at, lines = read + last + 1, lines + data.count(b"\n")
                read += len(data)
    except OSError:
        return dict(before)
    return {"bytes": at, "lines": lines}


def _line_slices(file: Path, read: Mapping[str, int], stop: int) -> Iterator[Slice]:
    """Yield slices of complete lines of about SLICE_BYTES each."""
    at, line = read["bytes"], read["lines"] + 1
    with file.open("rb") as stream:
        while at < stop:
            stream.seek(at)
            data = stream.read(min(SLICE_BYTES, stop - at))
            if at + len(data) < stop:
                data += stream.readline()
            if not data:
                return
            yield Slice(file, at, at + len(data), line)
            at, line = at + len(data), line + data.count(b"\n")
