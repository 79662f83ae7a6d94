"""Stored positions of subscriptions, in the format of `emulator/core/cursor/stored_format.py`.

Independent of the broker's code: a check that used it would share its defects. A cursor is a head and parts of 4,096
entry ids each; parts of another generation than the head's are ignored. A head of format 1 contains all ids itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key
from emulator.run.json_text import parse_json
from spark_jobs.evidence.positions import is_entry

PART_IDS = 4096
CLAIMS = -1
"""Number of the part with acknowledgements of other regions for entries that were not read yet."""
_CLAIMS_NAME = "claims"
_PART = struct.Struct(">BQqBB")
"""Header of a part: format, number of the write, highest entry id, a flag, encoding of the ids."""
_BITMAP = 1
_COUNT, _RANGE, _BATCH = struct.Struct(">H"), struct.Struct(">HH"), struct.Struct(">HI")

Range = tuple[int, int]
"""First and last entry id, inclusive."""
Parts = Mapping[tuple[int, int], bytes]
"""Parts of a cursor by generation and part number."""


class DecodedCursor(NamedTuple):
    """A cursor of the current format, decoded."""

    mark_delete: int
    """Everything up to and including this entry is acknowledged."""
    acked: Mapping[int, int]
    """Part number -> bitmap of the acknowledged entry ids in the part."""
    open_messages: Mapping[int, int]
    """Entry id -> bitmap of the messages in its batch that are not acknowledged."""

    def is_done(self, entry: int, batch_index: int) -> bool:
        """Return whether a message is acknowledged: its entry, or its index in the batch (`batch_index` >= 0)."""
        if entry <= self.mark_delete:
            return True
        part, offset = divmod(entry, PART_IDS)
        if self.acked.get(part, 0) >> offset & 1:
            return True
        bits = self.open_messages.get(entry) if batch_index >= 0 else None
        return bits is not None and not bits >> batch_index & 1

    @property
    def acked_ranges(self) -> list[Range]:
        """Ranges of acknowledged entry ids after mark-delete, ascending, adjacent ones merged."""
        joined: list[Range] = []
        for part, bits in sorted(self.acked.items()):
            for first, last in _ranges_in(bits, part * PART_IDS):
                first = max(first, self.mark_delete + 1)
                if joined and joined[-1][1] == first - 1:
                    joined[-1] = (joined[-1][0], last)
                elif first <= last:
                    joined.append((first, last))
        return joined


class StoredPosition(NamedTuple):
    """The head of a stored cursor of any format."""

    mark_delete: int
    is_replicated: bool
    is_ahead: bool
    """Whether consumers of the region acknowledged what no update of another region covers."""
    was_moved: bool
    """Whether a seek moved the cursor."""
    has_claims: bool
    """Whether it has acknowledgements of other regions that it did not apply yet."""


def read_position(head: bytes, parts: Parts) -> StoredPosition:
    """Decode the head of a cursor whose ranges `consumed_ranges` has read. ValueError if it is not a cursor."""
    state = parse_json(head)
    if not isinstance(state.get("generation", 0), int):
        raise ValueError(f"generation {state['generation']!r} is no number")
    is_ahead = state.get("ahead_of_peers", state.get("leads"))
    return StoredPosition(
        int(state["mark_delete"]),
        bool(state.get("replicated")),
        bool(is_ahead),
        bool(state.get("generation")),
        (state.get("generation", 0), CLAIMS) in parts,
    )


def checked_cursor(head: bytes, parts: Parts) -> tuple[StoredPosition, list[Range]]:
    """Decode a cursor and its ranges. ValueError if it is not a cursor, or has an entry id that no log can have."""
    ranges, position = consumed_ranges(head, parts), read_position(head, parts)
    ids = (position.mark_delete, *(entry for one in ranges for entry in one))
    if wrong := next((entry for entry in ids if not is_entry(entry)), None):
        raise ValueError(f"{wrong} is no entry id")
    return position, ranges


def cursors_of(values: Iterable[tuple[str, bytes]]) -> list[tuple[CursorKey, bytes, Parts]]:
    """Return the cursors among a region's keys and values: key, head and parts. Parts without a head are ignored."""
    return _grouped((parse_key(text), value) for text, value in values)


def cursors_in(rows: Iterable[tuple[StoredKey | None, bytes]]) -> dict[CursorKey, DecodedCursor]:
    """Return the decoded cursors among parsed keys and values."""
    return {key: read_cursor(head, parts) for key, head, parts in _grouped(rows)}


def _grouped(rows: Iterable[tuple[StoredKey | None, bytes]]) -> list[tuple[CursorKey, bytes, Parts]]:
    heads: dict[CursorKey, bytes] = {}
    parts: dict[CursorKey, dict[tuple[int, int], bytes]] = {}
    for key, value in rows:
        if isinstance(key, CursorKey):
            heads[key] = value
        elif isinstance(key, CursorPartKey):
            generation, _, number = key.part.partition("-")
            if generation.isdecimal() and (number.isdecimal() or number == _CLAIMS_NAME):
                of_cursor = parts.setdefault(CursorKey(key.topic, key.subscription), {})
                of_cursor[int(generation), CLAIMS if number == _CLAIMS_NAME else int(number)] = value
    return [(key, head, parts.get(key, {})) for key, head in heads.items()]


def read_cursor(head: bytes, parts: Parts) -> DecodedCursor:
    """Decode a cursor of the current format. ValueError for another one."""
    state = parse_json(head)
    if state["format"] != 2:
        raise ValueError(f"cursor of format {state['format']!r}; the checks read 2")
    acked: dict[int, int] = {}
    open_messages: dict[int, int] = {}
    for (generation, number), data in parts.items():
        if generation == state["generation"] and number != CLAIMS:
            acked[number], end = _acked_bits(data)
            open_messages |= _open_messages(data, end, number * PART_IDS)
    return DecodedCursor(state["mark_delete"], acked, open_messages)


def consumed_ranges(head: bytes, parts: Parts) -> list[Range]:
    """Return the ranges of entry ids that a stored cursor counts as completely acknowledged; ranges of different parts
    are not merged. ValueError if the values are not a cursor."""
    try:
        state = parse_json(head)
        ranges = [(0, int(state["mark_delete"]))]
        match state["format"]:
            case 1:
                ranges += [(int(first), int(last)) for first, last in state["ranges"]]
            case 2:
                for (generation, number), data in sorted(parts.items()):
                    if generation == state["generation"] and number != CLAIMS:
                        ranges += _ranges_in(_acked_bits(data)[0], number * PART_IDS)
            case other:
                raise ValueError(f"format {other!r}; known are 1 and 2")
    except (KeyError, TypeError, struct.error) as problem:
        raise ValueError(f"not a cursor: {problem!r}") from problem
    return [(first, last) for first, last in ranges if first <= last]


def _acked_bits(data: bytes) -> tuple[int, int]:
    """Return a part's bitmap of acknowledged ids, and the offset at which its partly acknowledged batches begin."""
    version, _, _, _, form = _PART.unpack_from(data)
    if version != 2:
        raise ValueError(f"a part of format {version}; known is 2")
    at = _PART.size
    if form == _BITMAP:
        end = at + PART_IDS // 8
        return int.from_bytes(data[at:end], "little"), end
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    bits = 0
    for index in range(count):
        first, last = _RANGE.unpack_from(data, at + index * _RANGE.size)
        if first <= last:
            bits |= (1 << (last + 1)) - (1 << first)
    return bits, at + count * _RANGE.size


def _open_messages(data: bytes, at: int, base: int) -> dict[int, int]:
    found = {}
    while at < len(data):
        offset, length = _BATCH.unpack_from(data, at)
        at += _BATCH.size + length
        found[base + offset] = int.from_bytes(data[at - length : at], "little")
    return found


def _ranges_in(bits: int, base: int) -> list[Range]:
    """Return the ranges of consecutive one bits."""
    return [(base + run.start(), base + run.end() - 1) for run in re.finditer("1+", f"{bits:b}"[::-1])]
