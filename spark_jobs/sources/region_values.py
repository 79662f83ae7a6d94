"""What regions store besides their logs, as a table: positions of subscriptions, and grants of exclusive access.

Values are decoded independently of the broker's code (`spark_jobs/evidence`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.model.stored_keys import CursorKey
from spark_jobs.engines.frames import schema
from spark_jobs.evidence.cursors import Parts, checked_cursor, cursors_of
from spark_jobs.evidence.grants import MISSING, UNREADABLE, StoredGrant, checked, stored_grants
from spark_jobs.sources.contract import StoredReader, StoredValue
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.region_log import stored_bytes
from spark_jobs.sources.region_source import RegionSource, damage_row
from spark_jobs.sources.run_folder import RegionLog, RunFolder

VALUE_SCHEMA = schema(
    "damage string, region string, kind string, log_topic string, topic string, subscription string, first bigint,"
    " last bigint, is_replicated boolean, is_ahead boolean, was_moved boolean, has_claims boolean, epoch bigint,"
    " owner string, is_bounded boolean, problem string"
)
"""A value of a region. `log_topic`: the stored topic, `topic`: its name in the history. `damage` is null except in rows
for unreadable values, which set only `region` besides. `kind`:

position  a stored cursor: everything up to the entry `last` is acknowledged, and its flags (`cursors.StoredPosition`)
range     a range of entries from `first` to `last` that a cursor counts as consumed
grant     a grant of exclusive access from the entry `first`. `last`: the first entry that it does not cover; null: it
          lasts to the end of the log, or with `is_bounded` its end is unknown. `problem`: a kind of finding, or null
"""
POSITION, RANGE, GRANT = "position", "range", "grant"
_NO_FLAGS = (None,) * 4
_NO_GRANT = (None,) * 4
_GRANT_DAMAGES = {UNREADABLE: "cannot be read", MISSING: "is missing"}


@dataclass(frozen=True)
class RegionValues(RegionSource):
    """Source of the values of all regions, in VALUE_SCHEMA."""

    history_topics: frozenset[str]
    schema = VALUE_SCHEMA

    def rows_of(self, log: RegionLog, reader: StoredReader) -> Iterator[Sequence[Any]]:
        yield from value_rows(log.region, reader.read_values(log), self.history_topics)


def value_rows(
    region: str, values: Sequence[tuple[str, StoredValue]], history_topics: Collection[str]
) -> Iterator[Sequence[Any]]:
    """Decode the values of a region, given by key."""
    for key, head, parts in cursors_of(values):
        topic = history_topic(key.topic, history_topics) or key.topic
        try:
            yield from _of_cursor(region, key, topic, head, parts)
        except ValueError as problem:
            why = f"the cursor of {key.subscription} in {region} cannot be read: {problem}"
            yield damage_row(region, why, VALUE_SCHEMA)
    for of_topic in stored_grants((region, value) for value in values):
        topic = history_topic(of_topic[0].topic, history_topics) or of_topic[0].topic
        for grant in checked(of_topic):
            yield from _of_grant(grant, topic)


def _of_cursor(region: str, key: CursorKey, topic: str, head: bytes, parts: Parts) -> Iterator[Sequence[Any]]:
    position, ranges = checked_cursor(head, parts)
    cursor = (key.topic, topic, key.subscription)
    yield None, region, POSITION, *cursor, None, *position, *_NO_GRANT
    for first, last in ranges:
        yield None, region, RANGE, *cursor, first, last, *_NO_FLAGS, *_NO_GRANT


def _of_grant(grant: StoredGrant, topic: str) -> Iterator[Sequence[Any]]:
    covered = (grant.first_entry, grant.until, *_NO_FLAGS)
    owned = (grant.epoch, grant.owner, grant.is_bounded, grant.problem)
    yield None, grant.region, GRANT, grant.topic, topic, None, *covered, *owned
    if grant.problem in _GRANT_DAMAGES:
        why = f"the grant of epoch {grant.epoch} of {grant.topic} in {grant.region} {_GRANT_DAMAGES[grant.problem]}"
        yield damage_row(grant.region, why, VALUE_SCHEMA)


def region_values(folder: RunFolder, history_topics: frozenset[str]) -> RegionValues:
    """Return the source of the values of a run directory or an export."""
    return RegionValues(folder.logs, stored_bytes(folder, "values"), history_topics)
