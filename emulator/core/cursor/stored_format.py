"""The stored format of a cursor: one head, and one part per 4,096 ids with acknowledgements beyond mark-delete.

    head              mark-delete, generation, properties, replication state
    part (g, n)       generation g: acknowledged ids among the 4,096 from n * 4,096 on, and partly acknowledged batches
    part (g, claims)  generation g: what other regions claim of entries that were not read yet, JSON

Only changed values are written, so one acknowledgement among 45,000 unacknowledged ids costs one part.

A store does not order the writes of two keys (S1), so a crash may leave any mix of older and newer values. Any mix is
correct (TS3). Within one generation acknowledgements only grow, so consumers acknowledged everything in the union of
head and parts. The union contains every confirmed acknowledgement, because a confirmation waits for every value.

State that does not only grow (highest acknowledged id, ahead of peers) is read from the newest value: each value
contains the number of its write. A seek revokes acknowledgements, so it begins a new generation, whose number is in the
name of each part. Parts of other generations are ignored and deleted later. No generation is reused while a part of it
may exist.

In format 1 the head contained everything. Such a head is replaced only after the parts are durable.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from emulator.core.cursor.cursor import Cursor, UnappliedUpdate, bits_of
from emulator.core.cursor.id_set import PART_BITS, PART_IDS, runs_of
from emulator.errors import StorageDamaged

FORMAT_VERSION = 2
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    struct.error,
)
"""Errors that decoding damaged bytes may raise."""
_PART_HEAD = struct.Struct(">BQqBB")
"""Format, number of the write, highest acknowledged id, ahead of peers, encoding of the ids."""
_RANGES, _BITMAP = 0, 1
_COUNT = struct.Struct(">H")
_RANGE = struct.Struct(">HH")
"""First and last offset of a range of ids in the part, both included."""
_BATCH = struct.Struct(">HI")
"""Offset of a batch in the part, number of bytes that follow."""
_BITMAP_BYTES = PART_IDS // 8
_encode = json.JSONEncoder(separators=(",", ":")).encode
"""As `json.dumps`, which creates an encoder at each call unless all its options are defaults."""
CLAIMS = -1
"""Number of the part that contains claims."""
_CLAIMS_NAME = "claims"


class PartName(NamedTuple):
    """The name of one stored part of a cursor."""

    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.generation}-{_CLAIMS_NAME if self.number == CLAIMS else self.number}"

    @classmethod
    def parse(cls, text: str) -> PartName:
        """Parse the result of `str`. Raises StorageDamaged for any other text."""
        generation, _, number = text.partition("-")
        if generation.isdecimal() and number == _CLAIMS_NAME:
            return cls(int(generation), CLAIMS)
        if not (generation.isdecimal() and number.isdecimal()):
            raise StorageDamaged(f"{text!r} does not name a part of a cursor")
        return cls(int(generation), int(number))


class CursorChanges(NamedTuple):
    """The writes that make the current cursor durable."""

    puts: list[dict[PartName | None, bytes]]
    """Groups of values by part, None for the head. Each group is put once the group before it is durable; the cursor is
    durable when all groups are."""
    deletes: list[PartName]
    """Parts to delete once the puts are durable."""


class _NewestState(NamedTuple):
    """State that is read from the newest stored value only: the one with the highest `write`."""

    write: int
    highest_acked: int
    ahead_of_peers: bool


class CursorParts:
    """A cursor and the names of its stored parts. Created by `load`, or from a cursor that is not stored yet."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._stored: set[PartName] = set()
        """Parts that are stored or being written."""
        self._writes = 0
        """Number of the newest write."""
        self._writes_head_last = False
        """Whether the stored head has format 1: it is replaced only after the parts are durable."""

    # Writing.

    @property
    def stored_parts(self) -> list[PartName]:
        """All parts that must be deleted with the cursor."""
        return sorted(self._stored)

    def take_changes(self) -> CursorChanges:
        """Return the changes since the last call, which then count as stored. The caller must write them, or load the
        cursor again."""
        cursor = self.cursor
        self._writes += 1
        head: dict[PartName | None, bytes] = {None: self._head()} if cursor.head_changed else {}
        parts: dict[PartName | None, bytes] = {}
        for number in sorted(cursor.changed_parts):
            if not self._is_below_mark_delete(number):
                name = PartName(cursor.generation, number)
                parts[name] = self._part(number)
                self._stored.add(name)
        if cursor.claims.has_changes:
            name = PartName(cursor.generation, CLAIMS)
            parts[name] = _encode(cursor.claims.as_json()).encode()
            self._stored.add(name)
        puts = [parts, head] if self._writes_head_last else [parts | head]
        deletes = sorted(
            name
            for name in self._stored
            if name.generation != cursor.generation or self._is_below_mark_delete(name.number)
        )
        self._stored.difference_update(deletes)
        self._writes_head_last, cursor.head_changed, cursor.claims.has_changes = False, False, False
        cursor.changed_parts.clear()
        return CursorChanges([one for one in puts if one], deletes)

    def _is_below_mark_delete(self, number: int) -> bool:
        return number != CLAIMS and (number + 1) << PART_BITS <= self.cursor.mark_delete + 1

    def _head(self) -> bytes:
        cursor = self.cursor
        state: dict[str, object] = {
            "format": FORMAT_VERSION,
            "write": self._writes,
            "generation": cursor.generation,
            "mark_delete": cursor.mark_delete,
            "highest_acked": cursor.highest_acked,
            "ahead_of_peers": cursor.ahead_of_peers,
            "replicated": cursor.replicated,
        }
        if cursor.properties:
            state["properties"] = cursor.properties
        if cursor.replication_disabled:
            state["replication_disabled"] = True
        if cursor.claims.first:
            state["claims_from"] = cursor.claims.first
        if cursor.unapplied:
            state["unapplied"] = {source: [*update] for source, update in cursor.unapplied.items()}
        return _encode(state).encode()

    def _part(self, number: int) -> bytes:
        cursor, base = self.cursor, number << PART_BITS
        form, ids = _encode_ids(cursor.acked_bits(number))
        head = _PART_HEAD.pack(
            FORMAT_VERSION, self._writes, cursor.highest_acked, cursor.ahead_of_peers, form
        )
        batches = {
            entry_id - base: bits
            for entry_id, bits in cursor.open_bits.items()
            if entry_id >> PART_BITS == number
        }
        return b"".join((head, ids, *(_encode_batch(*batch) for batch in sorted(batches.items()))))

    # Reading.

    @classmethod
    def load(cls, head: bytes, parts: Mapping[PartName, bytes]) -> CursorParts:
        """Decode stored values, in any mix of older and newer ones. Raises StorageDamaged for values that
        `take_changes` did not return: a guess would lose messages."""
        try:
            state = json.loads(head)
            match state["format"]:
                case 1:
                    return cls._load_format_1(state, parts)
                case 2:
                    return cls._load(state, parts)
                case other:
                    raise ValueError(f"format {other!r}; known are 1 and {FORMAT_VERSION}")
        except UNREADABLE as problem:
            raise StorageDamaged(
                f"stored cursor cannot be read: {type(problem).__name__}: {problem}"
            ) from None

    @classmethod
    def _load(cls, state: Mapping[str, object], parts: Mapping[PartName, bytes]) -> CursorParts:
        cursor = Cursor(_int(state["mark_delete"]))
        cursor.generation = _int(state["generation"])
        cursor.newest_generation = max(cursor.generation, *(name.generation for name in parts), 0)
        cursor.replicated = bool(state["replicated"])
        cursor.properties = _texts(state.get("properties", {}))
        cursor.replication_disabled = bool(state.get("replication_disabled", False))
        cursor.unapplied = _unapplied(state.get("unapplied", {}))
        cursor.claims.first = _int(state.get("claims_from", 0))
        newest = _NewestState(
            _int(state["write"]), _int(state["highest_acked"]), bool(state["ahead_of_peers"])
        )
        self = cls(cursor)
        self._stored.update(parts)
        acked: dict[int, int] = {}
        for name, data in parts.items():
            if name == (cursor.generation, CLAIMS):
                cursor.claims.load(json.loads(data))
            elif name.generation == cursor.generation and not self._is_below_mark_delete(name.number):
                newest = max(newest, _decode_part(data, name.number, acked, cursor.open_bits))
        cursor.restore(acked)
        for entry_id in [one for one in cursor.open_bits if cursor.is_acked(one)]:
            del cursor.open_bits[entry_id]
        self._writes, cursor.highest_acked, cursor.ahead_of_peers = newest
        cursor.version, cursor.head_changed = 0, False
        return self

    @classmethod
    def _load_format_1(cls, state: Mapping[str, object], parts: Mapping[PartName, bytes]) -> CursorParts:
        """Decode format 1, one JSON object. Parts exist if a crash interrupted its replacement."""
        ranges, batches = state["ranges"], state["batches"]
        if not isinstance(ranges, list) or not isinstance(batches, dict):
            raise TypeError("ranges or batches have the wrong form")
        cursor = Cursor(_int(state["mark_delete"]))
        for first, last in ranges:
            cursor.ack_range(int(first), int(last))
        for entry_id, words in batches.items():
            cursor.open_bits[int(entry_id)] = bits_of(words)
            cursor.changed_parts.add(int(entry_id) >> PART_BITS)
        cursor.highest_acked, cursor.ahead_of_peers = _int(state["acked_upto"]), bool(state["leads"])
        cursor.replicated = bool(state["replicated"])
        cursor.newest_generation = 1 + max((name.generation for name in parts), default=-1)
        cursor.generation, cursor.version = cursor.newest_generation, 0
        self = cls(cursor)
        self._stored.update(parts)
        self._writes_head_last = True
        return self


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


def _unapplied(value: object) -> dict[str, UnappliedUpdate]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} are not updates")
    return {
        str(source): UnappliedUpdate(_int(entry_id), tuple(map(str, named)))
        for source, (entry_id, named) in value.items()
    }


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for pair in value.items() for one in pair):
        raise TypeError(f"{value!r} are not properties")
    return value


def _encode_ids(bits: int) -> tuple[int, bytes]:
    """Encode ids as ranges or as a bitmap, whichever is shorter."""
    ranges = (bits & ~(bits << 1)).bit_count()
    if _COUNT.size + ranges * _RANGE.size >= _BITMAP_BYTES:
        return _BITMAP, bits.to_bytes(_BITMAP_BYTES, "little")
    return _RANGES, _COUNT.pack(ranges) + b"".join(_RANGE.pack(*run) for run in runs_of(bits))


def _encode_batch(offset: int, bits: int) -> bytes:
    length = (bits.bit_length() + 7) // 8
    return _BATCH.pack(offset, length) + bits.to_bytes(length, "little")


def _decode_part(data: bytes, number: int, acked: dict[int, int], open_bits: dict[int, int]) -> _NewestState:
    """Decode a part into `acked` (part -> one bit per id) and `open_bits`."""
    version, write, highest_acked, ahead_of_peers, form = _PART_HEAD.unpack_from(data)
    if version != FORMAT_VERSION:
        raise ValueError(f"part {number} has format {version} instead of {FORMAT_VERSION}")
    at = _PART_HEAD.size
    if form == _BITMAP:
        bitmap = _slice(data, at, _BITMAP_BYTES)
        acked[number], at = int.from_bytes(bitmap, "little"), at + _BITMAP_BYTES
    else:
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        bits = 0
        for first, last in _RANGE.iter_unpack(_slice(data, at, count * _RANGE.size)):
            bits |= (1 << (last + 1)) - (1 << first)
        acked[number], at = bits, at + count * _RANGE.size
    while at < len(data):
        offset, length = _BATCH.unpack_from(data, at)
        at += _BATCH.size
        open_bits[(number << PART_BITS) + offset] = int.from_bytes(_slice(data, at, length), "little")
        at += length
    return _NewestState(write, highest_acked, bool(ahead_of_peers))


def _slice(data: bytes, at: int, length: int) -> bytes:
    part = data[at : at + length]
    if len(part) != length:
        raise ValueError("a part ends early")
    return part
