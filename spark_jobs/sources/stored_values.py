"""Small frames of what regions store besides messages: claims about positions, grants, transaction keys.

A snapshot (P; b: X) of region a claims: a subscription that acknowledged everything up to P in a has acknowledged
everything up to X in b that ever reaches a. An update of a region claims that a subscription has acknowledged
everything up to a position. A cursor counts everything up to its mark-delete, and in its ranges, as consumed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from spark_jobs.engines.frames import DataFrame, small_frame
from spark_jobs.evidence.cursors import consumed_ranges, cursors_of
from spark_jobs.evidence.grants import MISSING, UNREADABLE, checked, stored_grants
from spark_jobs.evidence.transaction_journals import CoordinatorEntry, JournalRow, rows_of
from spark_jobs.sources.contract import RegionValue
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


GRANT_SCHEMA = pa.schema(
    {
        "region": pa.string(),
        "log_topic": pa.string(),
        "topic": pa.string(),
        "epoch": pa.int64(),
        "owner": pa.string(),
        "first_entry": pa.int64(),
        "until": pa.int64(),
        "is_bounded": pa.bool_(),
        "problem": pa.string(),
    }
)
"""A grant. `until`: the first entry that it does not cover; null: it lasts to the end of the log, or with `is_bounded`
it is unknown how far. `problem`: a kind of finding, or null."""

TOLD_SCHEMA = pa.schema(
    {"region": pa.string(), "topic": pa.string(), "producer": pa.string(), "epoch": pa.int64()}
)
"""An epoch that a client received, as it says."""

ENTRY_SCHEMA = pa.schema(
    {
        "region": pa.string(),
        "coordinator": pa.int64(),
        "generation": pa.int64(),
        "number": pa.int64(),
        "what": pa.string(),
        "transaction": pa.string(),
        "role": pa.string(),
        "transaction_key": pa.string(),
        "epoch": pa.int64(),
        "process": pa.string(),
    }
)
"""An entry. `number`: its place in its log; a coordinator has two, one of transactions and one of keys. `role`: of
the client that has the key, empty where clients have none."""

KEY_AT = ENTRY_SCHEMA.names.index("transaction_key")


@dataclass(frozen=True, slots=True)
class Promises:
    """What regions have stored about places: (schemas in `promises`)."""

    snapshots: DataFrame
    updates: DataFrame
    cursors: DataFrame


@dataclass(frozen=True, slots=True)
class Ownership:
    """Exclusive access: (schemas in `grants`)."""

    grants: DataFrame
    told: DataFrame
    is_known: bool
    """There is any."""


@dataclass(frozen=True, slots=True)
class KeyEvidence:
    """Entries in the shape of ENTRY_SCHEMA."""

    entries: DataFrame
    is_known: bool
    """There is any of a key."""


def place_number(ledger: int, entry: int) -> int:
    """Orders places of one log as a number."""
    return ledger * LEDGER + entry


def read_promises(
    markers: Iterable[Mapping[str, Any]],
    values: Iterable[RegionValue],
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
    values: Iterable[RegionValue],
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


_GRANT_DAMAGES = {UNREADABLE: "cannot be read", MISSING: "is missing"}


def read_ownership(
    values: Iterable[RegionValue],
    told: Iterable[tuple[str, str, str, int]],
    history_topics: Collection[str],
) -> tuple[Ownership, list[EvidenceDamage]]:
    """Build the frame from the regions' key-value stores (region, key and value) and the responses to clients (region,
    topic, producer, epoch)."""
    grants = [one for of_topic in stored_grants(values) for one in checked(of_topic)]
    rows = [
        (
            *(
                one.region,
                one.topic,
                history_topic(one.topic, history_topics) or one.topic,
                one.epoch,
                one.owner,
            ),
            *(one.first_entry, one.until, one.is_bounded, one.problem),
        )
        for one in grants
    ]
    told_rows = sorted(set(told))
    damages = [
        EvidenceDamage(
            f"the grant of epoch {one.epoch} of {one.topic} in {one.region} {_GRANT_DAMAGES[one.problem]}",
            one.region,
        )
        for one in grants
        if one.problem in _GRANT_DAMAGES
    ]
    frames = small_frame(rows, GRANT_SCHEMA), small_frame(told_rows, TOLD_SCHEMA)
    return Ownership(*frames, is_known=bool(rows or told_rows)), damages


def read_keys(entries: Iterable[CoordinatorEntry], *, told: bool) -> tuple[KeyEvidence, list[EvidenceDamage]]:
    """Build the frame from the coordinators' logs. `told`: a client's history shows that it used a key."""
    rows: list[JournalRow] = []
    damages: list[EvidenceDamage] = []
    for (region, name), of_log in groupby(entries, key=lambda entry: entry[:2]):
        try:
            rows += rows_of(region, name, of_log)
        except ValueError as problem:
            damages.append(EvidenceDamage(f"{name} of {region}: {problem}", region))
    is_known = told or any(row[KEY_AT] is not None for row in rows)
    return KeyEvidence(small_frame(rows, ENTRY_SCHEMA), is_known), damages
