"""What regions store besides their logs, as a table: positions of subscriptions.

`RegionValues` has one part per region. Values are decoded independently of the broker's code (`spark_jobs/evidence`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from emulator.errors import StorageError
from emulator.model.stored_keys import CursorKey
from spark_jobs.engines.frames import record_batches, schema
from spark_jobs.evidence.cursors import Parts, checked_cursor, cursors_of
from spark_jobs.sources.contract import LogDamaged, StoredValue
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.region_log import STORED_READERS, stored_bytes
from spark_jobs.sources.run_folder import RegionLog, RunFolder

VALUE_SCHEMA = schema(
    "damage string, region string, kind string, log_topic string, topic string, subscription string, first bigint,"
    " last bigint, is_replicated boolean, is_ahead boolean, was_moved boolean, has_claims boolean"
)
"""A value of a region. `log_topic`: the stored topic, `topic`: its name in the history. `damage` is null except in rows
for unreadable values, which set only `region` besides. `kind`:

position  a stored cursor: everything up to the entry `last` is acknowledged, and its flags (`cursors.StoredPosition`)
range     a range of entries from `first` to `last` that a cursor counts as consumed
"""
POSITION, RANGE = "position", "range"
_FLAGS = VALUE_SCHEMA.names[VALUE_SCHEMA.names.index("is_replicated") :]
_NO_FLAGS = (None,) * len(_FLAGS)


@dataclass(frozen=True)
class RegionValues:
    """Source of the values of all regions, in VALUE_SCHEMA. Logs without a reader are skipped: `region_log.slices_of`
    reports them."""

    logs: tuple[RegionLog, ...]
    history_topics: frozenset[str]
    bytes_known: int | None
    """Approximate size of the files; None: unknown before reading."""
    schema = VALUE_SCHEMA

    def parts(self) -> Sequence[RegionLog]:
        return [log for log in self.logs if log.backend in STORED_READERS]

    def size_bytes(self) -> int | None:
        return self.bytes_known

    def read(self, part: RegionLog) -> Iterator[pa.RecordBatch]:
        yield from record_batches(self._rows(part), VALUE_SCHEMA)

    def _rows(self, log: RegionLog) -> Iterator[Sequence[Any]]:
        try:
            values = STORED_READERS[log.backend].read_values(log)
        except (LogDamaged, StorageError) as damage:
            yield _damage(log, str(damage))
            return
        yield from self._of_cursors(log, values)

    def _of_cursors(
        self, log: RegionLog, values: Sequence[tuple[str, StoredValue]]
    ) -> Iterator[Sequence[Any]]:
        for key, head, parts in cursors_of(values):
            try:
                yield from self._of_cursor(log, key, head, parts)
            except ValueError as problem:
                yield _damage(
                    log, f"the cursor of {key.subscription} in {log.region} cannot be read: {problem}"
                )

    def _of_cursor(
        self, log: RegionLog, key: CursorKey, head: bytes, parts: Parts
    ) -> Iterator[Sequence[Any]]:
        position, ranges = checked_cursor(head, parts)
        topic = history_topic(key.topic, self.history_topics) or key.topic
        cursor = (key.topic, topic, key.subscription)
        yield None, log.region, POSITION, *cursor, None, *position
        for first, last in ranges:
            yield None, log.region, RANGE, *cursor, first, last, *_NO_FLAGS


def _damage(log: RegionLog, sentence: str) -> Sequence[Any]:
    return sentence, log.region, *[None] * (len(VALUE_SCHEMA) - 2)


def region_values(folder: RunFolder, history_topics: frozenset[str]) -> RegionValues:
    """Return the source of the values of a run directory or an export."""
    return RegionValues(folder.logs, history_topics, stored_bytes(folder, "values"))
