"""Stored positions of subscriptions, in the format of `emulator/core/cursor/stored_format.py`.

They are read by code of its own: a check that used the code that wrote them would share its defects. A cursor is a head
and parts of 4,096 ids each; parts of another generation than the head's mean nothing. An older head (format 1) had all
ids in itself.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey, parse_key

PART_IDS = 4096
_PART = struct.Struct(">BQqBB")
"""Format, number of the write, highest id, a flag, form of the ids."""
_BITMAP = 1
_COUNT, _RANGE, _BATCH = struct.Struct(">H"), struct.Struct(">HH"), struct.Struct(">HI")

Range = tuple[int, int]
"""First and last id."""
Parts = Mapping[tuple[int, int], bytes]
"""By generation and number."""


class DecodedCursor(NamedTuple):
    """A cursor of the current format, decoded."""

    mark_delete: int
    """Everything up to and including this entry is acknowledged."""
    acked: Mapping[int, int]
    """Part -> a bit for each of its ids that is acknowledged."""
    open_messages: Mapping[int, int]
    """Entry id -> a bit for each message of the batch that is not acknowledged."""

    def is_done(self, entry: int, batch_index: int) -> bool:
        """Whether a message counts as consumed: its entry, or its part of the batch (`batch_index` >= 0)."""
        if entry <= self.mark_delete:
            return True
        part, offset = divmod(entry, PART_IDS)
        if self.acked.get(part, 0) >> offset & 1:
            return True
        bits = self.open_messages.get(entry) if batch_index >= 0 else None
        return bits is not None and not bits >> batch_index & 1

    @property
    def acked_ranges(self) -> list[Range]:
        """Ranges of acknowledged ids beyond mark-delete, ascending, adjacent ones joined."""
        joined: list[Range] = []
        for part, bits in sorted(self.acked.items()):
            for first, last in _ranges_in(bits, part * PART_IDS):
                first = max(first, self.mark_delete + 1)
                if joined and joined[-1][1] == first - 1:
                    joined[-1] = (joined[-1][0], last)
                elif first <= last:
                    joined.append((first, last))
        return joined


def cursors_of(values: Iterable[tuple[str, bytes]]) -> list[tuple[CursorKey, bytes, Parts]]:
    """The cursors among a region's keys and values: key, head and parts. Parts without a head are nothing."""
    return _grouped((parse_key(text), value) for text, value in values)


def cursors_in(rows: Iterable[tuple[StoredKey | None, bytes]]) -> dict[CursorKey, DecodedCursor]:
    """The same of parsed keys, decoded."""
    return {key: read_cursor(head, parts) for key, head, parts in _grouped(rows)}


def _grouped(rows: Iterable[tuple[StoredKey | None, bytes]]) -> list[tuple[CursorKey, bytes, Parts]]:
    heads: dict[CursorKey, bytes] = {}
    parts: dict[CursorKey, dict[tuple[int, int], bytes]] = {}
    for key, value in rows:
        if isinstance(key, CursorKey):
            heads[key] = value
        elif isinstance(key, CursorPartKey):
            generation, _, number = key.part.partition("-")
            if generation.isdecimal() and number.isdecimal():
                of_cursor = parts.setdefault(CursorKey(key.topic, key.subscription), {})
                of_cursor[int(generation), int(number)] = value
    return [(key, head, parts.get(key, {})) for key, head in heads.items()]


def read_cursor(head: bytes, parts: Parts) -> DecodedCursor:
    """Decode a cursor of the current format. ValueError for another one."""
    state = json.loads(head)
    if state["format"] != 2:
        raise ValueError(f"cursor of format {state['format']!r}; the checks read 2")
    acked: dict[int, int] = {}
    open_messages: dict[int, int] = {}
    for (generation, number), data in parts.items():
        if generation == state["generation"]:
            acked[number], end = _acked_bits(data)
            open_messages |= _open_messages(data, end, number * PART_IDS)
    return DecodedCursor(state["mark_delete"], acked, open_messages)


def consumed_ranges(head: bytes, parts: Parts) -> list[Range]:
    """Ids that a stored cursor counts as consumed as a whole, of each part its own ranges. ValueError for what is no
    cursor."""
    try:
        state = json.loads(head)
        ranges = [(0, int(state["mark_delete"]))]
        match state["format"]:
            case 1:
                ranges += [(int(first), int(last)) for first, last in state["ranges"]]
            case 2:
                for (generation, number), data in sorted(parts.items()):
                    if generation == state["generation"]:
                        ranges += _ranges_in(_acked_bits(data)[0], number * PART_IDS)
            case other:
                raise ValueError(f"format {other!r}; known are 1 and 2")
    except (KeyError, TypeError, struct.error) as problem:
        raise ValueError(f"not a cursor: {problem!r}") from problem
    return [(first, last) for first, last in ranges if first <= last]


def _acked_bits(data: bytes) -> tuple[int, int]:
    """Of a part: a bit for each acknowledged id, and where the batches acknowledged in part begin."""
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
    """The runs of ones."""
    return [(base + run.start(), base + run.end() - 1) for run in re.finditer("1+", f"{bits:b}"[::-1])]
