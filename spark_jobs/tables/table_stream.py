"""The public tables of a run that still grows, in steps: the stream of the data source `geoemu`.

An offset names what was read: of a table of logs, the next entry of each topic in each region; of a table of histories,
the bytes and lines of each file. A stream that starts again from Spark's checkpoint continues there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_jobs.frames.history import HistoryLines
from spark_jobs.sources.growing import (
    NewEntries,
    NewLines,
    existing_run,
    line_ends,
    log_ends,
    new_entries,
    new_lines,
)
from spark_jobs.sources.run_folder import RunFolder, folder_of
from spark_jobs.tables.filters import RowFilter
from spark_jobs.tables.readers import HistoryTable, OnDamage, TableReader, table_source

OF_LOGS = ("entries", "messages", "markers", "metadata_events")
OF_LINES = ("history", "faults")
STREAMED = (*OF_LOGS, *OF_LINES)
"""Tables that only gain rows."""
Offset = Mapping[str, Any]


@dataclass(frozen=True)
class TableStream:
    """The new rows of one table of a run directory. Can be pickled."""

    path: Path
    in_network: bool
    table: TableReader
    folder: Path | None
    """Directory of the run whose files `read` opens; None if it opens no file."""

    @classmethod
    def of(cls, run: RunFolder, name: str, only: RowFilter, on_damage: OnDamage) -> TableStream:
        if name in OF_LINES:
            no_lines = HistoryLines((), run.regions, tuple(run.namespaces))
            table: Any = HistoryTable(name, only, on_damage, lines=no_lines)
        else:
            table = table_source(run, name, only, on_damage)
        return cls(run.path, run.in_network, table, run.path if name in OF_LINES else folder_of(run.logs))

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def start(self) -> dict[str, Any]:
        return {}

    def latest(self, since: Offset) -> dict[str, Any]:
        """Return the offset up to which evidence is durable now, at or after `since`. Raises RunVanished."""
        run = existing_run(self.path, in_network=self.in_network)
        return line_ends(self.path, since) if self.table.name in OF_LINES else log_ends(run, since)

    def parts(self, since: Offset, until: Offset) -> Sequence[NewEntries | NewLines]:
        """Return the parts between two offsets; each can be read by any task."""
        run = existing_run(self.path, in_network=self.in_network)
        if self.table.name in OF_LINES:
            lines = new_lines(run, since, until)
            return [part for part in lines if self.table.only.matches("history_file", part.lines.path.stem)]
        logs = [log for log in run.logs if self.table.only.matches("region", log.region)]
        return new_entries(logs, since, until)

    def read(self, part: NewEntries | NewLines) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        yield from self.table.read(part.lines if isinstance(part, NewLines) else part)
