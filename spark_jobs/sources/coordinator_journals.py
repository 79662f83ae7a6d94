"""The journals of the regions' transaction coordinators as a table: of transactions, and of transaction keys.

`evidence/transaction_journals.py` decodes the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from emulator.storage.group import decode_group
from spark_jobs.engines.frames import schema
from spark_jobs.evidence.transaction_journals import CoordinatorEntry, rows_of
from spark_jobs.sources.contract import StoredReader
from spark_jobs.sources.region_log import COORDINATORS, stored_bytes
from spark_jobs.sources.region_source import RegionSource, damage_row
from spark_jobs.sources.run_folder import RegionLog, RunFolder

JOURNAL_SCHEMA = schema(
    "damage string, region string, coordinator bigint, generation bigint, number bigint, what string,"
    " transaction string, role string, transaction_key string, epoch bigint, process string, status string"
)
"""An entry of a coordinator's journal. `number`: its entry id; a coordinator has two journals, of transactions and of
keys. `role`: role of the client that has the key, empty if clients have no roles. `status`: of a decision. `damage` is
null except in rows for unreadable journals, which set only `region` besides."""


class CoordinatorJournals(RegionSource):
    """Source of the entries of all regions' coordinators, in JOURNAL_SCHEMA."""

    schema = JOURNAL_SCHEMA

    def rows_of(self, log: RegionLog, reader: StoredReader) -> Iterator[Sequence[Any]]:
        yield from journal_rows(_entries(log, reader))


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
            yield damage_row(region, f"{name} of {region}: {problem}", JOURNAL_SCHEMA)


def coordinator_journals(folder: RunFolder) -> CoordinatorJournals:
    """Return the source of the journals of a run directory or an export."""
    return CoordinatorJournals(folder.logs, stored_bytes(folder, "entries"))
