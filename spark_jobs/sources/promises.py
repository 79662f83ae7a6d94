"""What regions have stored about places: snapshots, updates and cursors, as small frames.

A snapshot (P; b: X) of region a promises: whoever has acknowledged everything up to P in a has acknowledged everything
up to X in b that ever reaches a. An update of a region says that a subscription has acknowledged everything up to a
place. A cursor counts everything up to its mark-delete, and in its ranges, as consumed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_jobs.engines.frames import DataFrame, small_frame
from spark_jobs.sources.contract import StoredValue
from spark_jobs.sources.cursors import consumed_ranges, cursors_of
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.run_folder import EvidenceDamage

LEDGER = 1 << 40
"""Room for entry ids where a place is one number, `ledger * LEDGER + entry`."""

_TEXTS, _NUMBERS = pa.string(), pa.int64()


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(fields)


SNAPSHOT_SCHEMA = _schema(
    topic=_TEXTS, region=_TEXTS, position=_TEXTS, upto=_NUMBERS, other_region=_TEXTS, other_upto=_NUMBERS
)
"""Everything in `other_region` up to `other_upto` that reaches `region` stands there at or before `upto`. `position`:
where the marker is. Places are `place_number`s."""

UPDATE_SCHEMA = _schema(
    topic=_TEXTS, subscription=_TEXTS, source_region=_TEXTS, position=_TEXTS, region=_TEXTS, upto=_NUMBERS
)
"""The subscription has acknowledged everything up to `upto` in `region`, says `source_region`."""

CURSOR_SCHEMA = _schema(
    topic=_TEXTS, subscription=_TEXTS, region=_TEXTS, first=_NUMBERS, last=_NUMBERS, end=_NUMBERS
)
"""Entries from `first` to `last` count as consumed, a row per range; `end`: the newest entry of the log."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What regions have stored about places: (schemas in `promises`)."""

    snapshots: DataFrame
    updates: DataFrame
    cursors: DataFrame


def place_number(ledger: int, entry: int) -> int:
    """Orders places of one log as a number."""
    return ledger * LEDGER + entry


def read_promises(
    markers: Iterable[Mapping[str, Any]],
    values: Iterable[tuple[str, tuple[str, StoredValue]]],
    ends: Mapping[tuple[str, str], tuple[int, int]],
    history_topics: Collection[str],
) -> tuple[Promises, list[EvidenceDamage]]:
    """From rows of `region_log` with a `marker`, and what regions keep beside their logs (region, key and value).
    `ends`: by region and topic, ledger and newest entry."""
    damages: list[EvidenceDamage] = []
    snapshots: list[Sequence[Any]] = []
    updates: list[Sequence[Any]] = []
    for row in markers:
        said = json.loads(row["marker"])
        if "unreadable" in said:
            place = f"{row['topic']} {row['ledger_id']}:{row['entry_id']}"
            damages.append(
                EvidenceDamage(
                    f"the marker at {place} in {row['region']}: {said['unreadable']}", row["region"]
                )
            )
        topic = history_topic(row["topic"], history_topics) or row["topic"]
        position = f"{row['ledger_id']}:{row['entry_id']}"
        if "snapshot" in said and row["origin_region"] == row["region"]:
            for other, place in said["positions"]:
                upto = place_number(*said["local"])
                snapshots.append((topic, row["region"], position, upto, other, place_number(*place)))
        elif "subscription" in said and row["origin_region"] == row["region"]:
            for region, place in said["positions"]:
                where = (topic, said["subscription"], row["origin_region"], position)
                updates.append((*where, region, place_number(*place)))
    cursors = list(_cursors(values, ends, history_topics, damages))
    promises = Promises(
        small_frame(snapshots, SNAPSHOT_SCHEMA),
        small_frame(updates, UPDATE_SCHEMA),
        small_frame(cursors, CURSOR_SCHEMA),
    )
    return promises, damages


def _cursors(
    values: Iterable[tuple[str, tuple[str, StoredValue]]],
    ends: Mapping[tuple[str, str], tuple[int, int]],
    history_topics: Collection[str],
    damages: list[EvidenceDamage],
) -> Iterable[Sequence[Any]]:
    by_region: dict[str, list[tuple[str, bytes]]] = {}
    for region, value in values:
        by_region.setdefault(region, []).append(value)
    for region, of_region in by_region.items():
        for key, head, parts in cursors_of(of_region):
            if (region, key.topic) not in ends:
                continue
            ledger, end = ends[region, key.topic]
            topic = history_topic(key.topic, history_topics) or key.topic
            try:
                ranges = consumed_ranges(head, parts)
            except ValueError as problem:
                what = f"the cursor of {key.subscription} in {region} cannot be read: {problem}"
                damages.append(EvidenceDamage(what, region))
                continue
            for first, last in ranges:
                places = (place_number(ledger, entry) for entry in (first, last, end))
                yield topic, key.subscription, region, *places
