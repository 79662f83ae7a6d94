"""A source of what regions store besides the entries of their topics, with one part per region.

One task reads a region's part: its rows grow with topics, subscriptions, grants and open transactions, not with
messages, because coordinators trim their journals at checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from emulator.errors import StorageError
from spark_jobs.engines.frames import record_batches
from spark_jobs.sources.contract import LogDamaged, StoredReader
from spark_jobs.sources.region_log import STORED_READERS
from spark_jobs.sources.run_folder import RegionLog, folder_of


@dataclass(frozen=True)
class RegionSource(ABC):
    """Source of rows of all regions. Logs without a reader are skipped: `region_log.slices_of` reports them. In a row
    for unreadable data, only `damage` and `region` are set, the first two columns."""

    logs: tuple[RegionLog, ...]
    bytes_known: int | None
    """Approximate size of the files; None: unknown before reading."""
    schema: ClassVar[pa.Schema]

    @property
    def folder(self) -> Path | None:
        return folder_of(self.logs)

    def parts(self) -> Sequence[RegionLog]:
        return [log for log in self.logs if log.backend in STORED_READERS]

    def size_bytes(self) -> int | None:
        return self.bytes_known

    def read(self, part: RegionLog) -> Iterator[pa.RecordBatch]:
        yield from record_batches(self._rows(part), self.schema)

    @abstractmethod
    def rows_of(self, log: RegionLog, reader: StoredReader) -> Iterator[Sequence[Any]]:
        """Yield the rows of a region. Raises LogDamaged and StorageError."""

    def _rows(self, log: RegionLog) -> Iterator[Sequence[Any]]:
        try:
            yield from self.rows_of(log, STORED_READERS[log.backend])
        except (LogDamaged, StorageError) as damage:
            yield damage_row(log.region, str(damage), self.schema)


def damage_row(region: str, sentence: str, schema: pa.Schema) -> Sequence[Any]:
    """Return the row for unreadable data of a region."""
    return sentence, region, *[None] * (len(schema) - 2)
