"""The property of a replicated entry that contains its position in the log of its origin."""

from __future__ import annotations

from typing import Final

from emulator.model.values import AFTER_EVERYTHING, BEFORE_EVERYTHING, SOURCE_POSITION_PROPERTY, Position
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import Malformed, length_delimited, new_tuple, parse, tag, varint

PROPERTIES: Final = tag(4, 2)
POSITION_KEY: Final = SOURCE_POSITION_PROPERTY.encode()
_POSITION_KEY_FIELD: Final = length_delimited(1, POSITION_KEY)
_POSITION_PAIR: Final = _POSITION_KEY_FIELD + tag(2, 2)
_TEXT_AT: Final = len(_POSITION_PAIR) + 1
_MIN: Final = BEFORE_EVERYTHING.entry
_MAX: Final = AFTER_EVERYTHING.entry


def source_position(last: bytes, metadata: bytes) -> Position | None:
    """Return the position in the last property of the metadata that has one, because the last one counts in the maps of
    clients; None: no property has one. `last`: the last property, empty if there is none. Raises one of UNREADABLE for
    an invalid position."""
    if last.startswith(_POSITION_PAIR) and len(last) > _TEXT_AT == len(last) - last[_TEXT_AT - 1]:
        return _position(last[_TEXT_AT:])  # the form that regions append
    if POSITION_KEY not in metadata:
        return None
    # Access to a repeated field is slow.
    for pair in reversed(pb.LeanPairs.FromString(metadata).properties):
        found = _position_in(pair)
        if found is not None:
            return found
    return None


def _position_in(pair: bytes) -> Position | None:
    """Return the position in a serialized KeyValue; None if its key is another one."""
    if POSITION_KEY not in pair:
        return None
    property_ = parse(pb.KeyValue, pair)
    return _position(property_.value.encode()) if property_.key == SOURCE_POSITION_PROPERTY else None


def _position(text: bytes) -> Position:
    ledger_text, _, entry_text = text.partition(b":")
    ledger, entry = int(ledger_text), int(entry_text)
    if not (_MIN <= ledger <= _MAX and _MIN <= entry <= _MAX):
        raise Malformed(f"not a position: {text!r}")
    return new_tuple(Position, (ledger, entry))


_POSITION_HEADS: Final = [
    PROPERTIES + varint(len(_POSITION_PAIR) + 1 + size) + _POSITION_PAIR + varint(size)
    for size in range(len(str(AFTER_EVERYTHING)) + 1)
]
"""Size of the position's text -> the bytes of the property before that text."""
_HEAD_BYTES: Final = len(_POSITION_HEADS[0])
_PROPERTY_BYTES_MAX: Final = _HEAD_BYTES + len(str(AFTER_EVERYTHING))


def position_property(position: Position) -> bytes:
    """Return the property with a source position, as a field of the metadata."""
    text = b"%d:%d" % position
    return _POSITION_HEADS[len(text)] + text


def same_digits(number: int) -> int:
    """Return the number of integers from this one on that have as many decimal digits."""
    return int(10 ** len(b"%d" % number)) - number


_LAST_DIGITS: Final = [b"%03d" % number for number in range(1_000)]


def decimals(first: int, count: int) -> tuple[bytes, list[bytes]]:
    """Return (begin, ends) of the decimal texts of up to `count` numbers from this one on: each is `begin` and one of
    `ends`. At least one, up to the next multiple of 1,000."""
    thousands, low = divmod(first, 1_000)
    if thousands:
        return b"%d" % thousands, _LAST_DIGITS[low : low + count]
    return b"", [b"%d" % number for number in range(first, min(first + count, 1_000))]


def appended_position(property_: bytes) -> Position | None:
    """Return the position in a field that `position_property` returned; None for all other bytes."""
    if len(property_) > _PROPERTY_BYTES_MAX:
        return None
    ledger, _, entry = property_[_HEAD_BYTES:].partition(b":")
    if not (ledger.isdigit() and entry.isdigit()):
        return None
    position = new_tuple(Position, (int(ledger), int(entry)))
    return position if max(position) <= _MAX and position_property(position) == property_ else None
