"""Changes of the files of an export (`geoemu export`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.sources.export_folder import MANIFEST
from spark_jobs.tables.export import export_run

from .kinds import in_json, in_sequence, incomplete, invalid
from .runs import EAST, WEST


def exported(*changes: Callable[[Path], object]) -> Callable[[Path], None]:
    """Replace the run directory by an export of it, and change that."""

    def change(path: Path) -> None:
        run = path.rename(path.with_name("exported-run"))
        export_run(run, path)
        shutil.rmtree(run)

    return in_sequence(change, *changes)


def file_of(table: str, value: str, number: int = 0) -> str:
    return f"tables/{table}/{value}/part-{number:05}.parquet"


def flipped(file: str) -> Callable[[Path], None]:
    """Change a byte in the middle of a file."""

    def change(path: Path) -> None:
        data = bytearray((path / file).read_bytes())
        data[len(data) // 3] ^= 1
        (path / file).write_bytes(data)

    return change


def without_row(
    file: str, is_dropped: Callable[[Mapping[str, Any]], bool], *, listed: bool = True
) -> Callable[[Path], None]:
    """Write a Parquet file again without the rows that match. `listed`: the manifest names its new size and rows."""

    def change(path: Path) -> None:
        table = pq.ParquetFile(path / file).read()
        rows = [row for row in table.to_pylist() if not is_dropped(row)]
        assert len(rows) < table.num_rows
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path / file, write_page_checksum=True)
        if listed:
            numbers = {"rows": len(rows), "size_bytes": (path / file).stat().st_size}
            in_json(MANIFEST, lambda manifest: _listed(manifest, file).update(numbers))(path)

    return change


def _listed(manifest: Mapping[str, Any], file: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (one for one in manifest["files"] if one["path"] == file)
    return found


def unlisted(file: str) -> Callable[[Path], None]:
    """Remove a file from the manifest and from the export."""

    def change(path: Path) -> None:
        manifest = json.loads((path / MANIFEST).read_text())
        manifest["files"].remove(_listed(manifest, file))
        (path / MANIFEST).write_text(json.dumps(manifest))
        (path / file).unlink()

    return change


MESSAGES = file_of("messages", f"region={WEST}")
PUBLISHES = file_of("history", f"history_file=orders-{EAST}", 2)

EXPORTS = [
    incomplete(
        "a file of an export removed",
        f"{MESSAGES} is missing",
        on_disk=exported(lambda path: (path / MESSAGES).unlink()),
    ),
    incomplete(
        "a byte of an exported table changed",
        f"{MESSAGES} cannot be read",
        on_disk=exported(flipped(MESSAGES)),
    ),
    incomplete(
        "a message removed from an exported table",
        f"{MESSAGES} has ",
        on_disk=exported(without_row(MESSAGES, lambda row: row["entry_id"] == 5, listed=False)),
    ),
    invalid(
        "INV-2",
        "a message removed from an exported table, and the manifest changed accordingly",
        "missing",
        "1 copy of 12 acknowledged messages missing (us-west 1)",
        on_disk=exported(without_row(MESSAGES, lambda row: row["entry_id"] == 5)),
    ),
    invalid(
        "INV-3",
        "a publish removed from an exported history, and the manifest changed accordingly",
        "never published",
        "1 message stored that no client published",
        on_disk=exported(without_row(PUBLISHES, lambda row: row["sequence_id"] == 3)),
    ),
    invalid(
        "INV-2",
        "an exported table removed, and the manifest changed accordingly",
        "behind",
        "12 copies of 12 acknowledged messages missing (us-west 12)",
        on_disk=exported(unlisted(MESSAGES)),
    ),
]
