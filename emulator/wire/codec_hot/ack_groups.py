"""Groups of ACKs: plain acknowledgements of one consumer that follow each other in a stream, as runs of entry ids.

An ACK is *plain* if it acknowledges one whole entry individually and expects no response: its command has a consumer
id, the type, and a ledger id with an entry id, in their shortest form, and nothing else.

`take_acks` is the only place that decides this. It ends a group at the first ACK that is not plain, of another
consumer, or of another ledger. Invariant: for a plain ACK `decode_ack` returns the group's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from emulator.wire.codec_hot.consuming import AckCommand
from emulator.wire.command_types import CommandType
from emulator.wire.frames import BEFORE_BODY_SIZE, Frame
from emulator.wire.protobuf import VARINT_LOW, read_varint, varint, varints_from

_ACK: Final = BEFORE_BODY_SIZE[CommandType.ACK]
_ID_BYTES_MAX: Final = 9
"""Size of the largest id that is not negative."""
_NO_ACK: Final = b""
"""No ACK begins with it and an entry id."""


class AckGroup(NamedTuple):
    """At least one plain acknowledgement."""

    ledger_id: int
    runs: list[tuple[int, int]]
    """The entry ids in the order of the stream, as runs: (first, last), both included, of ids that follow each other.
    An id may occur several times."""
    commands: int
    """Number of ACKs, which is the number of ids."""


def take_acks(first: AckCommand, frames: Sequence[Frame], begin: int) -> AckGroup | None:
    """Return the longest group that begins with the frame of index `begin`; None: that ACK is not plain. `first`: the
    same ACK, decoded."""
    ledger_id = first.ids[0][0] if first.ids else -1
    heads = _heads(first.consumer_id, ledger_id)
    entry_id = _entry_id(frames[begin][1], heads)
    if entry_id < 0:
        return None
    runs: list[tuple[int, int]] = []
    first_id, next_id = entry_id, entry_id + 1
    end_id = next_id
    commands = 1
    for _, command, _ in islice(frames, begin + 1, None):
        if next_id == end_id:
            table, rest, end_id = varints_from(next_id)
            head = heads[len(table[next_id & VARINT_LOW]) + len(rest)]
        if command != head + table[next_id & VARINT_LOW] + rest:
            entry_id = _entry_id(command, heads)
            if entry_id < 0:
                break
            runs.append((first_id, next_id - 1))
            first_id = next_id = entry_id
            end_id = entry_id + 1
        next_id += 1
        commands += 1
    runs.append((first_id, next_id - 1))
    return AckGroup(ledger_id, runs, commands)


@lru_cache(maxsize=4096)
def _heads(consumer_id: int, ledger_id: int) -> list[bytes]:
    """Return the bytes of plain ACKs before the entry id, by the size of its varint."""
    before_id = b"\x08" + varint(consumer_id) + b"\x10\x00\x1a"
    before_entry_id = b"\x08" + varint(ledger_id) + b"\x10"
    heads = [_NO_ACK]
    for entry_bytes in range(1, _ID_BYTES_MAX + 1):
        id_bytes = len(before_entry_id) + entry_bytes
        before = before_id + varint(id_bytes) + before_entry_id
        heads.append(_ACK + varint(len(before) + entry_bytes) + before)
    return [*heads, _NO_ACK]


def _entry_id(command: bytes, heads: list[bytes]) -> int:
    """Return the entry id of a plain ACK with one of these heads; -1: the command is another one."""
    at = len(heads[1])
    size = len(command) - at
    if not (0 < size <= _ID_BYTES_MAX and command.startswith(heads[size])):
        return -1
    number = command[at:]
    try:
        entry_id, _ = read_varint(number, 0)
    except IndexError:
        return -1
    return entry_id if varint(entry_id) == number else -1
