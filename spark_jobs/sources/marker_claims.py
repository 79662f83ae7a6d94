"""What snapshots and updates of replicated subscriptions claim about positions, as a column of the entries.

A marker has a text, JSON for users, and a `claim`, a struct for queries. Both are null for other entries. A marker
with a position that no log can have is unreadable, as one with a wrong checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from emulator.errors import ProtocolError
from emulator.model import markers
from emulator.run.json_text import parse_json
from emulator.wire.markers import decode_marker
from emulator.wire.message_metadata import EntryInfo
from spark_jobs.evidence.positions import is_place, place_number

_POSITION = pa.struct([("region", pa.string()), ("at", pa.int64())])
CLAIM = pa.struct(
    [
        ("problem", pa.string()),
        ("subscription", pa.string()),
        ("upto", pa.int64()),
        ("positions", pa.list_(pa.field("element", _POSITION))),
    ]
)
"""`problem`: why the marker is unreadable; other fields are null then. `subscription`: null for a snapshot. `upto`:
local position of a snapshot; null for an update. `positions`: those in regions. Positions are `place_number`s."""
Claim = Mapping[str, Any]


def read_marker(data: bytes, info: EntryInfo, *, is_sound: bool) -> tuple[str | None, Claim | None]:
    """Return the text and the claim of the entry of a marker."""
    content = _content(data, info, is_sound=is_sound)
    if content is None:
        return None, None
    claim = claim_of(content)
    problem = claim["problem"]
    return json.dumps(content if problem is None else {"unreadable": problem}), claim


def _content(data: bytes, info: EntryInfo, *, is_sound: bool) -> dict[str, Any] | None:
    """Return a snapshot, an update, or the problem of an unreadable marker; None for other markers."""
    if not is_sound:
        return {"unreadable": "its checksum does not match its bytes"}
    try:
        marker = decode_marker(data, info)
    except ProtocolError as problem:
        return {"unreadable": str(problem)}
    match marker:
        case markers.Snapshot(snapshot_id, local, positions):
            return {"snapshot": snapshot_id, "local": local, "positions": positions}
        case markers.SubscriptionUpdate(subscription, positions):
            return {"subscription": subscription, "positions": positions}
    return None


def claim_of(content: Mapping[str, Any]) -> Claim:
    """Return the claim of a marker from its content."""
    if "unreadable" in content:
        return _unreadable(content["unreadable"])
    local, positions = content.get("local"), content["positions"]
    if wrong := _impossible([place for _, place in positions] + ([] if local is None else [local])):
        return _unreadable(f"it has the position {wrong[0]}:{wrong[1]}, which no log can have")
    return {
        "problem": None,
        "subscription": content.get("subscription"),
        "upto": None if local is None else place_number(*local),
        "positions": [{"region": region, "at": place_number(*place)} for region, place in positions],
    }


def _unreadable(why: str) -> Claim:
    return {"problem": why, "subscription": None, "upto": None, "positions": None}


def _impossible(places: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    return next((place for place in places if not is_place(*place)), None)


def with_claims(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of an export, in the schema of `region_log`, with the claims of their markers: an export has only the
    texts."""
    at = rows.schema.get_field_index("claim")
    texts = rows.column("marker")
    if texts.null_count == len(texts):
        return rows
    claims = [None if text is None else _claim_in(text) for text in texts.to_pylist()]
    return rows.set_column(at, rows.schema.field(at), pa.array(claims, rows.schema.field(at).type))


def _claim_in(text: str) -> Claim:
    try:
        return claim_of(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        return _unreadable(f"it is no marker of an export: {problem!r}")
