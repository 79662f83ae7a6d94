"""Who owned a topic and when: the grants that regions stored, and the epochs that clients were told.

Rows `grant/<topic>/<epoch>` of a region's store are read with code of its own: a judge that read them with the code
that wrote them would believe its mistakes. A grant covers the entries from its first one to its end; one without an end
lasts until the next one begins. What a grant in front of a gap covers is not known.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from emulator.model.stored_keys import GrantKey, parse_key
from spark_jobs.engines.frames import DataFrame, small_frame
from spark_jobs.sources.contract import StoredValue
from spark_jobs.sources.history_files import history_topic
from spark_jobs.sources.run_folder import EvidenceDamage

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
nobody knows how far. `problem`: a kind of finding, or null."""

TOLD_SCHEMA = pa.schema(
    {"region": pa.string(), "topic": pa.string(), "producer": pa.string(), "epoch": pa.int64()}
)
"""What a client says that it was told."""

UNREADABLE, MISSING, FALLING, OVERLAPPING = (
    "unreadable grant",
    "missing grant",
    "epoch decreases",
    "grants overlap",
)
"""What can be wrong with a grant, whatever the log holds."""
_DAMAGES = {UNREADABLE: "cannot be read", MISSING: "is missing"}


@dataclass(frozen=True, slots=True)
class Ownership:
    """Exclusive access: (schemas in `grants`)."""

    grants: DataFrame
    told: DataFrame
    is_known: bool
    """There is any."""


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """As its region stored it, and what is wrong with it."""

    region: str
    topic: str
    epoch: int
    """As its key says."""
    owner: str = ""
    first_entry: int = 0
    end_entry: int | None = None
    until: int | None = None
    is_bounded: bool = False
    problem: str | None = None


def read_ownership(
    values: Iterable[tuple[str, tuple[str, StoredValue]]],
    told: Iterable[tuple[str, str, str, int]],
    history_topics: Collection[str],
) -> tuple[Ownership, list[EvidenceDamage]]:
    """From what regions keep beside their logs (region, key and value), and what clients were told (region, topic,
    producer, epoch)."""
    grants = [one for of_topic in _by_topic(values) for one in judged(of_topic)]
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
            f"the grant of epoch {one.epoch} of {one.topic} in {one.region} {_DAMAGES[one.problem]}",
            one.region,
        )
        for one in grants
        if one.problem in _DAMAGES
    ]
    frames = small_frame(rows, GRANT_SCHEMA), small_frame(told_rows, TOLD_SCHEMA)
    return Ownership(*frames, is_known=bool(rows or told_rows)), damages


def _by_topic(values: Iterable[tuple[str, tuple[str, StoredValue]]]) -> Iterable[list[StoredGrant]]:
    grants = []
    for region, (text, value) in values:
        key = parse_key(text)
        if isinstance(key, GrantKey) and key.epoch.isdecimal():
            grants.append(read_grant(region, key.topic, int(key.epoch), value))
    grants.sort(key=lambda one: (one.region, one.topic, one.epoch))
    return [list(group) for _, group in groupby(grants, key=lambda one: (one.region, one.topic))]


def read_grant(region: str, topic: str, epoch: int, value: bytes) -> StoredGrant:
    try:
        row = json.loads(value)
        end = None if row["end_entry"] is None else int(row["end_entry"])
        grant = StoredGrant(region, topic, epoch, str(row["owner"]), int(row["first_entry"]), end)
        return grant if int(row["epoch"]) == epoch else replace(grant, problem=FALLING)
    except (ValueError, KeyError, TypeError):
        return StoredGrant(region, topic, epoch, problem=UNREADABLE)


def judged(grants: Sequence[StoredGrant]) -> Iterable[StoredGrant]:
    """The grants of one topic of one region, each with what it covers and what is wrong with it; those that are missing
    in between, too."""
    expected = 0
    for number, grant in enumerate(grants):
        for epoch in range(expected, grant.epoch):
            yield StoredGrant(grant.region, grant.topic, epoch, is_bounded=True, problem=MISSING)
        expected = grant.epoch + 1
        yield _with_reach(grant, grants[number + 1] if number + 1 < len(grants) else None)


def _with_reach(grant: StoredGrant, after: StoredGrant | None) -> StoredGrant:
    if grant.problem == UNREADABLE:
        return replace(grant, is_bounded=True)
    until = grant.end_entry
    is_next_known = after is not None and after.epoch == grant.epoch + 1 and after.problem != UNREADABLE
    if until is None and after is not None and is_next_known:
        until = after.first_entry
    beyond = after is not None and is_next_known and until is not None and until > after.first_entry
    problem = grant.problem
    if beyond or (until is not None and until < grant.first_entry):
        problem = problem or OVERLAPPING
    return replace(grant, until=until, is_bounded=after is not None, problem=problem)
