"""The files of an export (`geoemu export`): a run as partitioned Parquet, and its manifest.

    export.json         the manifest, written last: without it, the export is incomplete
    tables/<table>/<column>=<value>/part-<n>.parquet
                        the public tables (docs/reference/tables.md), with checksums of their pages
    evidence/<name>/region=<region>/part-0.parquet
                        what else the verdict reads from the regions' stores
    run.json, topology.json, regions/, configuration/, …
                        small files of the run directory, as they were

Executors read the Parquet files; each file that is missing or damaged becomes a damage of the evidence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

MANIFEST = "export.json"
TABLES, EVIDENCE = "tables", "evidence"
EXPORT_BACKEND = "export"
"""Backend of the regions' logs in an export."""
SCHEMA_VERSION = 1
"""Version of the tables' schema. A column that is renamed or removed, or whose type or meaning changes, increments it;
a new column does not."""


class ExportUnreadable(Exception):
    """A directory is not a complete export of a known version; the message is a sentence without its full stop."""


class FileDamaged(Exception):
    """A file of an export is missing or damaged; the message is a sentence without its full stop."""


@dataclass(frozen=True)
class ExportedFile:
    """One Parquet file of an export."""

    table: str
    """Name of a public table, or of a table in `evidence/`."""
    column: str
    """Column by which the table is partitioned. The file does not contain it."""
    value: str
    """Value of that column in all rows of the file."""
    path: str
    """Path, relative to the directory of the export."""
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Export:
    """The manifest of an export."""

    folder: Path
    files: tuple[ExportedFile, ...]
    read_at_ms: float
    """Time at which all logs had been read, in milliseconds since 1970."""
    damages: tuple[str, ...] = ()
    """Damages of the history files: missing ends, changed lines."""
    log_damages: tuple[tuple[str, str, str], ...] = ()
    """Region, table in `evidence/` and reason, of what could not be read."""

    def of(self, *tables: str) -> tuple[ExportedFile, ...]:
        return tuple(file for file in self.files if file.table in tables)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def write(self) -> None:
        """Write the manifest, which completes the export."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "read_at_ms": self.read_at_ms,
            "damages": list(self.damages),
            "log_damages": [list(one) for one in self.log_damages],
            "files": [asdict(file) for file in self.files],
        }
        (self.folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")


def read_export(folder: Path) -> Export | None:
    """Return the export in a directory; None for any other directory. Raises ExportUnreadable."""
    path = folder / MANIFEST
    if not path.exists():
        if (folder / TABLES).is_dir():
            raise ExportUnreadable(
                f"{folder} is an incomplete export: {MANIFEST}, which is written last, is missing"
            )
        return None
    try:
        raw = json.loads(path.read_bytes())
        version = raw["schema_version"]
        if version != SCHEMA_VERSION:
            raise ExportUnreadable(
                f"{path} has schema version {version!r}; this geoemu reads version {SCHEMA_VERSION}"
            )
        return _export_of(folder, raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise ExportUnreadable(f"{path} cannot be read: {problem!r}") from problem


def _export_of(folder: Path, raw: Mapping[str, Any]) -> Export:
    files = tuple(ExportedFile(**one) for one in raw["files"])
    for one in files:
        if not (isinstance(one.rows, int) and isinstance(one.size_bytes, int)):
            raise TypeError(f"rows and size_bytes of {one.path} must be integers")
        if ".." in Path(one.path).parts or Path(one.path).is_absolute():
            raise ValueError(f"{one.path} is outside of the export")
    log_damages = tuple((str(region), str(name), str(why)) for region, name, why in raw["log_damages"])
    damages = tuple(map(str, raw["damages"]))
    return Export(folder, files, float(raw["read_at_ms"]), damages, log_damages)


def file_path(kind: str, table: str, column: str, value: str, number: int) -> str:
    """Return the path of a file, relative to the export. `kind`: TABLES or EVIDENCE."""
    return f"{kind}/{table}/{column}={quote(value, safe='')}/part-{number:05}.parquet"


@dataclass(frozen=True)
class ExportedRows:
    """The source of the rows of some files."""

    folder: Path
    files: tuple[ExportedFile, ...]
    schema: pa.Schema
    renamed: Mapping[str, str]
    """Column of `schema` -> its name in the files, if that differs."""
    completed: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    """Computes the columns that the files do not have."""

    def parts(self) -> Sequence[ExportedFile]:
        return self.files

    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def read(self, part: ExportedFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; a damaged file becomes a row with its `damage`."""
        try:
            for batch in read_file(self.folder, part, self.schema, self.renamed):
                yield batch if self.completed is None else self.completed(batch)
        except FileDamaged as damage:
            values = {"damage": str(damage), **({part.column: part.value} if part.column == "region" else {})}
            arrays = [pa.array([values.get(field.name)], field.type) for field in self.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def read_file(
    folder: Path, file: ExportedFile, schema: pa.Schema, renamed: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as columns of `schema`; columns that the file does not have are null. FileDamaged if the
    file is missing, damaged, or has another number of rows."""
    import pyarrow.parquet as pq

    path, rows = folder / file.path, 0
    try:
        if (size := path.stat().st_size) != file.size_bytes:
            raise FileDamaged(f"{file.path} has {size:,} bytes instead of {file.size_bytes:,}")
        with pq.ParquetFile(path, page_checksum_verification=True) as opened:
            for batch in opened.iter_batches():
                rows += batch.num_rows
                yield _as(batch, schema, file, renamed or {})
    except FileNotFoundError:
        raise FileDamaged(f"{file.path} is missing") from None
    except (OSError, ValueError, KeyError, OverflowError, MemoryError, pa.ArrowException) as problem:
        reason = " ".join(str(problem).split()) or type(problem).__name__
        raise FileDamaged(f"{file.path} cannot be read: {reason}") from problem
    if rows != file.rows:
        raise FileDamaged(f"{file.path} has {rows:,} rows instead of {file.rows:,}")


def _as(
    batch: pa.RecordBatch, schema: pa.Schema, file: ExportedFile, renamed: Mapping[str, str]
) -> pa.RecordBatch:
    columns = []
    for field in schema:
        name = renamed.get(field.name, field.name)
        if name == file.column:
            columns.append(_partition(batch, file))
        elif name in batch.schema.names:
            columns.append(batch.column(name).cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _partition(batch: pa.RecordBatch, file: ExportedFile) -> pa.Array:
    """Return the column by which the table is partitioned. The row of an unreadable line names no file."""
    values = pa.repeat(pa.scalar(file.value), batch.num_rows)
    if "damage" not in batch.schema.names or file.column == "region":
        return values
    import pyarrow.compute as pc

    return pc.if_else(pc.is_null(batch.column("damage")), values, pa.scalar(None, pa.string()))
