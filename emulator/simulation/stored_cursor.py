"""A subscription's stored position, read by code of the judges' own.

Judges do not use `emulator.core.cursor.cursor` nor what stores it: a mistake there must not excuse itself. The
format is that of `core/cursor/stored_format.py`: a head, and parts of 4,096 ids each, of which those of the head's
generation count.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from emulator.model.stored_keys import CursorKey, CursorPartKey, StoredKey

FORMAT = 2
PART_IDS = 4_096
_PART_HEAD = struct.Struct(">BQqBB")
_COUNT = struct.Struct(">H")
_RUN = struct.Struct(">HH")
_BATCH = struct.Struct(">HI")


class StoredCursor(NamedTuple):
    """What lies on a disk."""

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
    def acked_ranges(self) -> list[tuple[int, int]]:
        """Runs of acknowledged ids beyond mark-delete, ends included, ascending."""
        ids = [
            part * PART_IDS + offset
            for part, bits in sorted(self.acked.items())
            for offset in range(bits.bit_length())
            if bits >> offset & 1
        ]
        runs: list[tuple[int, int]] = []
        for entry_id in ids:
            if entry_id <= self.mark_delete:
                continue
            if runs and runs[-1][1] == entry_id - 1:
                runs[-1] = (runs[-1][0], entry_id)
            else:
                runs.append((entry_id, entry_id))
        return runs


def cursors_in(rows: Iterable[tuple[StoredKey | None, bytes]]) -> dict[CursorKey, StoredCursor]:
    """The cursors among these keys and values. Parts without a head are nothing."""
    heads: dict[CursorKey, bytes] = {}
    parts: dict[CursorKey, dict[str, bytes]] = {}
    for key, value in rows:
        if isinstance(key, CursorKey):
            heads[key] = value
        elif isinstance(key, CursorPartKey):
            parts.setdefault(CursorKey(key.topic, key.subscription), {})[key.part] = value
    return {key: _read(head, parts.get(key, {})) for key, head in heads.items()}


def _read(head: bytes, parts: Mapping[str, bytes]) -> StoredCursor:
    state = json.loads(head)
    if state["format"] != FORMAT:
        raise ValueError(f"cursor of format {state['format']!r}; the checks read {FORMAT}")
    acked: dict[int, int] = {}
    open_messages: dict[int, int] = {}
    for name, data in parts.items():
        generation, _, number = name.partition("-")
        if int(generation) == state["generation"]:
            acked[int(number)] = _read_part(data, int(number) * PART_IDS, open_messages)
    return StoredCursor(state["mark_delete"], acked, open_messages)


def _read_part(data: bytes, base: int, open_messages: dict[int, int]) -> int:
    """Its acknowledged ids, a bit each; batches that are acknowledged in part are added to `open_messages`."""
    form, at = _PART_HEAD.unpack_from(data)[4], _PART_HEAD.size
    if form == 1:
        end = at + PART_IDS // 8
        bits = int.from_bytes(data[at:end], "little")
    else:
        (runs,) = _COUNT.unpack_from(data, at)
        at, end = at + _COUNT.size, at + _COUNT.size + runs * _RUN.size
        bits = 0
        for first, last in _RUN.iter_unpack(data[at:end]):
            bits |= (1 << (last + 1)) - (1 << first)
    while end < len(data):
        offset, length = _BATCH.unpack_from(data, end)
        at, end = end + _BATCH.size, end + _BATCH.size + length
        open_messages[base + offset] = int.from_bytes(data[at:end], "little")
    return bits
