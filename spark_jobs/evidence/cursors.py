"""Reads stored cursors, as `emulator/core/cursor/stored_format.py` writes them. With code
of its own: a judge that read them with the code that wrote them would believe its mistakes.

A cursor is a head and parts, one for each 4,096 ids; parts of another generation than the head's mean nothing. An older
head had everything in itself.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping

from emulator.model.stored_keys import CursorKey, CursorPartKey, parse_key

PART_IDS = 4096
_PART = struct.Struct(">BQqBB")
"""Format, number of the write, highest id, a flag, form of the ids."""
_RANGES, _BITMAP = 0, 1
_COUNT, _RANGE = struct.Struct(">H"), struct.Struct(">HH")

Range = tuple[int, int]
"""First and last id."""


def cursors_of(
    values: Iterable[tuple[str, bytes]],
) -> Iterable[tuple[CursorKey, bytes, dict[tuple[int, int], bytes]]]:
    """The cursors among a region's keys and values: key, head, and parts by generation and number."""
    heads: dict[CursorKey, bytes] = {}
    parts: dict[CursorKey, dict[tuple[int, int], bytes]] = {}
    for text, value in values:
        match parse_key(text):
            case CursorKey() as key:
                heads[key] = value
            case CursorPartKey(topic, subscription, part):
                generation, _, number = part.partition("-")
                if generation.isdecimal() and number.isdecimal():
                    of_cursor = parts.setdefault(CursorKey(topic, subscription), {})
                    of_cursor[int(generation), int(number)] = value
    return [(key, head, parts.get(key, {})) for key, head in heads.items()]


def consumed_ranges(head: bytes, parts: Mapping[tuple[int, int], bytes]) -> list[Range]:
    """Ids that a stored cursor counts as consumed as a whole. ValueError for what is no cursor."""
    try:
        state = json.loads(head)
        ranges = [(0, int(state["mark_delete"]))]
        match state["format"]:
            case 1:
                ranges += [(int(first), int(last)) for first, last in state["ranges"]]
            case 2:
                for (generation, number), data in sorted(parts.items()):
                    if generation == state["generation"]:
                        ranges += _ranges_of(data, number * PART_IDS)
            case other:
                raise ValueError(f"format {other!r}; known are 1 and 2")
    except (KeyError, TypeError, struct.error) as problem:
        raise ValueError(f"not a cursor: {problem!r}") from problem
    return [(first, last) for first, last in ranges if first <= last]


def _ranges_of(data: bytes, base: int) -> list[Range]:
    version, _, _, _, form = _PART.unpack_from(data)
    if version != 2:
        raise ValueError(f"a part of format {version}; known is 2")
    at = _PART.size
    if form == _BITMAP:
        return _runs(int.from_bytes(data[at : at + PART_IDS // 8], "little"), base)
    (count,) = _COUNT.unpack_from(data, at)
    offsets = [_RANGE.unpack_from(data, at + _COUNT.size + index * _RANGE.size) for index in range(count)]
    return [(base + first, base + last) for first, last in offsets]


def _runs(bits: int, base: int) -> list[Range]:
    """Of a bitmap, its stretches of ones."""
    runs: list[Range] = []
    for offset in range(PART_IDS):
        if bits >> offset & 1:
            if runs and runs[-1][1] == base + offset - 1:
                runs[-1] = (runs[-1][0], base + offset)
            else:
                runs.append((base + offset, base + offset))
    return runs
