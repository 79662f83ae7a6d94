"""The journals of the regions' transaction coordinators as a table: of transactions, and of transaction keys.

`CoordinatorJournals` has one part per region. `evidence/transaction_journals.py` decodes the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from emulator.errors import StorageError
from emulator.storage.group import decode_group
from spark_jobs.engines.frames import record_batches, schema
from spark_jobs.evidence.transaction_journals import CoordinatorEntry, rows_of
from spark_jobs.sources.contract import LogDamaged, StoredReader
from spark_jobs.sources.region_log import COORDINATORS, STORED_READERS, stored_bytes
from spark_jobs.sources.run_folder import RegionLog, RunFolder, folder_of

JOURNAL_SCHEMA = schema(
    "damage string, region string, coordinator bigint, generation bigint, number bigint, what string,"
    " transaction string, role string, transaction_key string, epoch bigint, process string"
)
"""An entry of a coordinator's journal. `number`: its entry id; a coordinator has two journals, of transactions and of
keys. `role`: role of the client that has the key, empty if clients have no roles. `damage` is null except in rows for
unreadable journals, which set only `region` besides."""


@dataclass(frozen=True)
class CoordinatorJournals:
    """Source of the entries of all regions' coordinators, in JOURNAL_SCHEMA. Logs without a reader are skipped:
    `region_log.slices_of` reports them."""

    logs: tuple[RegionLog, ...]
    bytes_known: int | None
    """Approximate size of the files; None: unknown before reading."""
    schema = JOURNAL_SCHEMA

    @property
    def folder(self) -> Path | None:
        return folder_of(self.logs)

    def parts(self) -> Sequence[RegionLog]:
        return [log for log in self.logs if log.backend in STORED_READERS]

    def size_bytes(self) -> int | None:
        return self.bytes_known

    def read(self, part: RegionLog) -> Iterator[pa.RecordBatch]:
        yield from record_batches(self._rows(part), JOURNAL_SCHEMA)

    def _rows(self, log: RegionLog) -> Iterator[Sequence[Any]]:
        try:
            yield from journal_rows(_entries(log, STORED_READERS[log.backend]))
        except (LogDamaged, StorageError) as damage:
            yield _damage(log.region, str(damage))


def _entries(log: RegionLog, reader: StoredReader) -> Iterator[CoordinatorEntry]:
    for head in reader.read_heads(log):
        if head.topic.startswith(COORDINATORS):
            for group in reader.read_topic(log, head.topic):
                for number, data in enumerate(decode_group(group.data), group.first_entry_id):
                    if number >= group.trimmed_below:
                        yield log.region, group.topic, number, bytes(data)


def journal_rows(entries: Iterable[CoordinatorEntry]) -> Iterator[Sequence[Any]]:
    """Decode the entries of journals, each journal's in order. Of one with an unreadable entry, no row follows it."""
    for (region, name), of_journal in groupby(entries, key=lambda entry: entry[:2]):
        try:
            for row in rows_of(region, name, of_journal):
                yield None, *row
        except ValueError as problem:
            yield _damage(region, f"{name} of {region}: {problem}")


def _damage(region: str, sentence: str) -> Sequence[Any]:
    return sentence, region, *[None] * (len(JOURNAL_SCHEMA) - 2)


def coordinator_journals(folder: RunFolder) -> CoordinatorJournals:
    """Return the source of the journals of a run directory or an export."""
    return CoordinatorJournals(folder.logs, stored_bytes(folder, "entries"))
