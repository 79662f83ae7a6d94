"""Export a run: all public tables as partitioned Parquet, and what else a verdict reads (`sources/export_folder.py`).

The export is written to a new directory beside DIR, which becomes DIR when it is complete. Memory is bounded: batches
are written as they are read. Files are read in the order in which a verdict reads them, so that an export of a run that
is still growing gives the verdict of that moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from emulator.errors import StorageError
from emulator.run.limits import LIMITS_FILE
from emulator.run.manifest import MADE_BY_FILE
from emulator.run.service_contract import ANSWERS_FILE
from emulator.storage.group import decode_group
from spark_jobs.engines.contract import PartitionedSource
from spark_jobs.engines.frames import record_batch
from spark_jobs.engines.shared_folder import SharedFolder
from spark_jobs.frames.history import history_lines
from spark_jobs.sources.contract import LogDamaged, StoredReader
from spark_jobs.sources.export_folder import EVIDENCE, TABLES, Export, ExportedFile, file_path
from spark_jobs.sources.export_log import SCHEMAS, table_name
from spark_jobs.sources.metadata import read_settings, store_path
from spark_jobs.sources.policies import DELIVERIES_FILE
from spark_jobs.sources.region_log import COORDINATORS, READERS, LogSlice, row_batches, slices_of
from spark_jobs.sources.run_folder import RegionLog, RunFolder, looks_like_a_run, open_run_folder
from spark_jobs.sources.sqlite import connect_read_only
from spark_jobs.tables import schema
from spark_jobs.tables.readers import HistoryTable, select_rows, table_source

GROUP_ROWS = 100_000
"""Approximate number of rows of one Parquet row group."""
SMALL_FILES = ("run.json", "topology.json", MADE_BY_FILE, LIMITS_FILE, ANSWERS_FILE)
"""Files of a run directory that a verdict reads, besides those of regions, clusters and histories."""
OF_REGION = ("region.json", DELIVERIES_FILE)


class ExportRefused(Exception):
    """A run cannot be exported; the message is a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export contains."""

    folder: Path
    rows: dict[str, int]
    """Number of rows of each public table."""
    size_bytes: int

    def as_json(self) -> str:
        return json.dumps({"export": str(self.folder), "rows": self.rows, "size_bytes": self.size_bytes})

    def as_text(self) -> str:
        """Return the text that the command line prints: the number of rows of each table, and the directory."""
        lines = [f"{name:<16}{rows:>12,} rows" for name, rows in self.rows.items()]
        size, command = f"{self.size_bytes / 1e6:,.1f} MB", f"`geoemu verify {self.folder}`"
        return "\n".join([*lines, f"{self.folder}: {size}; {command} computes its verdict"])


WriteTask = Callable[[], list[ExportedFile]]
"""Writes one part of a table, on any machine that sees the run and the new directory. Can be pickled."""
PerformTasks = Callable[[Iterable[WriteTask]], Iterable[ExportedFile]]


def performed(task: WriteTask) -> list[ExportedFile]:
    """Perform a task. Executors import this module, and not those that compute verdicts, which need more packages."""
    return task()


def perform_here(tasks: Iterable[WriteTask]) -> Iterator[ExportedFile]:
    """Perform tasks one by one in this process."""
    for task in tasks:
        yield from performed(task)


def export_run(
    run: Path, to: Path, *, in_network: bool = False, perform: PerformTasks = perform_here
) -> ExportResult:
    """Write the tables of a run to a new directory. `in_network`: see `open_run_folder`. `perform`: performs the tasks
    of one step, and returns the files that they wrote. Raises ExportRefused if the run or the directory cannot be used,
    OSError if a file cannot be written."""
    if not looks_like_a_run(run):
        raise ExportRefused(f"{run} is not a run directory")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ExportRefused(f"{to} exists already; name a new directory")
    folder = open_run_folder(run, in_network=in_network)
    if folder.export is not None:
        raise ExportRefused(f"{run} is an export already")
    to = to.resolve()
    unfinished = to.with_name(f"{to.name}.partial-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        export = _write(folder, unfinished, perform)
        if to.exists():
            to.rmdir()
        os.rename(unfinished, to)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    rows = {name: sum(file.rows for file in export.of(name)) for name in schema.TABLES}
    return ExportResult(to, rows, export.size_bytes)


def _write(folder: RunFolder, target: Path, perform: PerformTasks) -> Export:
    _copy_small_files(folder, target)
    shared = () if perform is perform_here else (folder.path, target)
    place = _Place(target, tuple(map(SharedFolder.seen_here, shared)))
    files: list[ExportedFile] = []
    lines, damages = history_lines(folder)
    for name in ("history", "faults"):
        of_lines = HistoryTable(name, on_damage="rows" if name == "history" else "drop", lines=lines)
        files += perform(_part_tasks(place, name, of_lines, lambda part: str(part.path.stem)))
    files += perform(
        partial(_write_messages, place, part, number)
        for log in folder.logs
        for number, part in enumerate(slices_of(log))
    )
    read_at_ms = time.time() * 1000
    log_damages: list[tuple[str, str, str]] = []
    for log in folder.logs:
        files += _write_stored(folder, target, log, log_damages)
    for name in ("entries", "cursors", "metadata_events"):
        source = table_source(folder, name, on_damage="rows")
        files += perform(_part_tasks(place, name, source, _region_of))
    export = Export(
        target, tuple(files), read_at_ms, tuple(one.sentence for one in damages), tuple(log_damages)
    )
    export.write()
    return export


@dataclass(frozen=True, slots=True)
class _Place:
    """The new directory, and the directories that each task on another machine must see."""

    target: Path
    shared: tuple[SharedFolder, ...]

    def checked(self) -> Path:
        """Return the new directory. Raises RunNotShared."""
        for one in self.shared:
            one.require()
        return self.target


def _region_of(part: Any) -> str:
    """Return the region of a slice of a log, or of a log."""
    return str(part.region if isinstance(part, RegionLog) else part.log.region)


def _copy_small_files(folder: RunFolder, target: Path) -> None:
    for name in SMALL_FILES:
        _copy(folder.path / name, target / name)
    for of_region in sorted((folder.path / "regions").glob("*/")):
        (target / "regions" / of_region.name).mkdir(parents=True)
        for name in OF_REGION:
            _copy(of_region / name, target / "regions" / of_region.name / name)
    for cluster in sorted(set(folder.clusters.values())):
        _copy_store(store_path(folder.path, cluster), store_path(target, cluster))


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)


def _copy_store(source: Path, target: Path) -> None:
    """Copy a configuration store with its newest commits; one that cannot be read, byte by byte."""
    if not source.is_file():
        return
    target.parent.mkdir(parents=True)
    try:
        with contextlib.ExitStack() as resources:
            connection = connect_read_only(source, resources)
            copy = resources.enter_context(contextlib.closing(sqlite3.connect(target)))
            connection.backup(copy)
    except (sqlite3.Error, OSError):
        shutil.copyfile(source, target)


def _write_messages(place: _Place, part: LogSlice, number: int) -> list[ExportedFile]:
    """Write `messages` and `markers` of one slice in one pass. Damages are rows of `messages` only."""
    target, region = place.checked(), part.log.region
    with contextlib.ExitStack() as resources:
        writers = {
            name: resources.enter_context(
                TableWriter(target, TABLES, name, "region", region, number, schema.TABLES[name].schema)
            )
            for name in ("messages", "markers")
        }
        for batch in row_batches(part):
            writers["messages"].add(select_rows(batch, "messages"))
            readable = batch.filter(batch.column("damage").is_null())
            writers["markers"].add(select_rows(readable, "markers"))
    return [file for writer in writers.values() for file in writer.written()]


def _part_tasks(
    place: _Place, name: str, source: PartitionedSource, value_of: Callable[[Any], str]
) -> Iterator[WriteTask]:
    for number, part in enumerate(source.parts()):
        yield partial(_write_part, place, name, source, part, value_of(part), number)


def _write_part(
    place: _Place, name: str, source: PartitionedSource, part: Any, value: str, number: int
) -> list[ExportedFile]:
    column = schema.TABLES[name].partitioned_by
    with TableWriter(place.checked(), TABLES, name, column, value, number, source.schema) as writer:
        for batch in source.read(part):
            writer.add(batch)
    return list(writer.written())


def _write_stored(
    folder: RunFolder, target: Path, log: RegionLog, damages: list[tuple[str, str, str]]
) -> Iterator[ExportedFile]:
    """Write what a region stores besides the entries of topics; `damages` receives what cannot be read."""
    reader = READERS.get(log.backend)
    if reader is None:
        return
    settings = read_settings(folder)
    topics = {one.topic for one in settings.values()}
    reads: dict[str, Callable[[], Iterable[Sequence[Any]]]] = {
        "heads": lambda: reader.read_heads(log),
        "ends": lambda: list(reader.read_ends(log).items()),
        "values": lambda: reader.read_values(log),
        "entries": lambda: _internal_entries(log, reader, topics),
    }
    for name, read in reads.items():
        writer = TableWriter(target, EVIDENCE, name, "region", log.region, 0, SCHEMAS[name])
        try:
            with writer:
                for row in read():
                    writer.add(record_batch([row], SCHEMAS[name]))
        except (LogDamaged, StorageError) as damage:
            damages.append((log.region, name, str(damage)))
            continue
        yield from writer.written(table_name(name))


def _internal_entries(
    log: RegionLog, reader: StoredReader, topics: Iterable[str]
) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield the entries of the journals of transactions, and of the metadata event topic."""
    wanted = set(topics)
    for head in reader.read_heads(log):
        if head.topic in wanted or head.topic.startswith(COORDINATORS):
            for group in reader.read_topic(log, head.topic):
                for number, data in enumerate(decode_group(group.data), group.first_entry_id):
                    if number >= group.trimmed_below:
                        yield group.topic, group.ledger_id, number, bytes(data)


class TableWriter:
    """Writes the Parquet file of one part of a table; none if the part has no rows."""

    def __init__(
        self, target: Path, kind: str, name: str, column: str, value: str, number: int, columns: pa.Schema
    ) -> None:
        self._target = target
        self._name, self._column, self._value = name, column, value
        self._path = file_path(kind, name, column, value, number)
        names = [one for one in columns.names if one != column]
        self._schema = pa.schema([columns.field(one) for one in names])
        self._batches: list[pa.RecordBatch] = []
        self._buffered = self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch.select(self._schema.names))
        self._buffered += batch.num_rows
        if self._buffered >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._buffered:
            return
        if self._writer is None:
            path = self._target / self._path
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._rows += self._buffered
        self._batches, self._buffered = [], 0

    def written(self, table: str | None = None) -> Iterator[ExportedFile]:
        """Yield the written file, after the end of the block. `table`: its name in the manifest."""
        if self._rows:
            size = (self._target / self._path).stat().st_size
            yield ExportedFile(table or self._name, self._column, self._value, self._path, self._rows, size)
