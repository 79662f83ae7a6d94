"""Stored grants of exclusive access: the owner of a topic in each epoch.

Rows `grant/<topic>/<epoch>` are decoded independently of the broker's code: a check that used it would share its
defects. A grant covers the entries from its first one to its end, or without an end to the first entry of the next
grant. If the next grant is missing, that range is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from emulator.model.stored_keys import GrantKey, parse_key
from emulator.run.json_text import parse_json
from spark_jobs.evidence.positions import is_entry

NUMBER_MAX = 2**63 - 1
"""Highest epoch that the tables can hold; a row with a higher one is unreadable."""
MISSING_MAX = 1000
"""Maximum number of missing epochs that are listed before one grant: a manipulated key may name any epoch."""

UNREADABLE, MISSING, FALLING, OVERLAPPING = (
    "unreadable grant",
    "missing grant",
    "epoch decreases",
    "grants overlap",
)
"""Problems of a grant that are visible without the region's log."""


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant as its region stored it, the range that it covers, and its problem."""

    region: str
    topic: str
    epoch: int
    """Epoch in the key of the grant."""
    owner: str = ""
    first_entry: int = 0
    end_entry: int | None = None
    until: int | None = None
    is_bounded: bool = False
    problem: str | None = None


def stored_grants(values: Iterable[tuple[str, tuple[str, bytes]]]) -> list[list[StoredGrant]]:
    """Return the grants among keys and values of regions, grouped by region and topic, each group by epoch."""
    grants = []
    for region, (text, value) in values:
        key = parse_key(text)
        if isinstance(key, GrantKey) and key.epoch.isdecimal():
            grants.append(_grant_of(region, key, value))
    grants.sort(key=lambda one: (one.region, one.topic, one.epoch))
    return [list(group) for _, group in groupby(grants, key=lambda one: (one.region, one.topic))]


def _grant_of(region: str, key: GrantKey, value: bytes) -> StoredGrant:
    digits = key.epoch.lstrip("0") or "0"  # the key pads its epoch with zeros
    if len(digits) > len(str(NUMBER_MAX)) or int(digits) > NUMBER_MAX:
        return StoredGrant(region, key.topic, NUMBER_MAX, problem=UNREADABLE)
    return read_grant(region, key.topic, int(digits), value)


def read_grant(region: str, topic: str, epoch: int, value: bytes) -> StoredGrant:
    try:
        row = parse_json(value)
        end = None if row["end_entry"] is None else int(row["end_entry"])
        grant = StoredGrant(region, topic, epoch, str(row["owner"]), int(row["first_entry"]), end)
        if not is_entry(grant.first_entry) or not is_entry(end or 0):
            raise ValueError("an entry id that no log can have")
        return grant if int(row["epoch"]) == epoch else replace(grant, problem=FALLING)
    except (ValueError, KeyError, TypeError, OverflowError):
        return StoredGrant(region, topic, epoch, problem=UNREADABLE)


def checked(grants: Sequence[StoredGrant]) -> Iterable[StoredGrant]:
    """Yield the grants of one topic of one region, each with its range and problem, and one for each missing epoch
    before or between them, at most MISSING_MAX at a time; epochs begin at 0."""
    expected = 0
    for number, grant in enumerate(grants):
        for epoch in range(expected, min(grant.epoch, expected + MISSING_MAX)):
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
