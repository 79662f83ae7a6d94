"""Groups of SENDs between regions: plain messages of one stream that follow each other, as columns.

A SEND of another region's replicator is *plain* if nothing but its position, its producer and the bytes of its entry
distinguishes it from the other messages of the stream:

    command    producer id, sequence id       and a predecessor that was admitted; nothing else that counts
    entry      magic, checksum, metadata      with a checksum, which is right; within the limit of its payload
    metadata   producer name, sequence id     of any producer there; the sequence id of the command
               the rest                       `is_plain_rest`: no batch, chunk, marker, transaction, delay …
               origin, source position        the other region's own name; the form that regions append, at the end
    order      source position                above those before it

`PlainReplicas.take` is the only place that decides this, and verifies all that the other region states. It ends a group
at the first SEND that is not plain, which is decoded alone by `decode_send` and `scan_entry`. Invariant: for a plain
SEND these two return the values of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from emulator.errors import ProtocolError
from emulator.model.crc import crc32c
from emulator.model.values import Position
from emulator.wire.codec_hot.publishing import NO_PREVIOUS_ENTRY, SendCommand, decode_send
from emulator.wire.command_types import CommandType
from emulator.wire.entry_layout import CHECKSUM_BYTES, HEAD_BYTES, USUAL_MAGIC, payload_from, read_head
from emulator.wire.frames import Frame, command_bytes
from emulator.wire.message_metadata import REMEMBERED_REST_BYTES_MAX, is_plain_rest
from emulator.wire.protobuf import UNREADABLE, Malformed, length_delimited, read_varint, varint, varints
from emulator.wire.source_position import appended_position, same_digits

SEQUENCE_ID_MAX: Final = 2**63 - 1
_CHECKSUM_HEAD: Final = Struct(">HI")
_SIZE: Final = Struct(">I")
_EXPECTED_FIRST: Final = 8
"""Number of messages that are expected to follow from one that was decoded. It grows while they do."""
_NAME_TAG: Final = b"\x0a"
_SEQUENCE_ID_TAG: Final = b"\x10"
ANY_PLAIN_REST: Final = b"\x18\x00"
"""A publish time alone."""


class ReplicaGroup(NamedTuple):
    """At least one plain message of another region."""

    last: Position
    """Source position of the last one; the others have lower ones."""
    entries: list[bytes]


class _Read(NamedTuple):
    """A plain message, and the bytes that the next one often has, too."""

    sequence_id: int
    position: Position
    head: bytes
    """The command up to the sequence id, with which it ends; empty: it is in another form."""
    begin: bytes
    """The metadata up to the sequence id."""
    middle: bytes
    """The metadata between the sequence id and the entry id, with which it ends."""


def _ids_left(read: _Read) -> int:
    """Return how many entry ids after that of a message have the same length and are allowed, as its sequence ids."""
    next_id = read.position.entry + 1
    return min(same_digits(next_id), SEQUENCE_ID_MAX - max(read.sequence_id, next_id - 1))


def may_follow(send: SendCommand, position: Position, newest: tuple[int, int]) -> bool:
    """Whether a message follows the highest admitted position, and the one before it in the stream was admitted."""
    ledger_id, entry_id = position
    previous = entry_id - 1 if send.previous_entry is None else send.previous_entry
    return (
        send.sequence_id <= SEQUENCE_ID_MAX
        and send.txn_least is None
        and position > newest
        and (previous == NO_PREVIOUS_ENTRY or (ledger_id, previous) <= newest)
    )


class PlainReplicas:
    """Recognises the plain messages of one stream from another region."""

    __slots__ = ("_begin", "_command_begin", "_origin", "_plain_rest", "_producer_id")

    def __init__(self, producer_id: int, region: str) -> None:
        self._producer_id = producer_id
        self._command_begin = b"\x08" + varint(producer_id) + _SEQUENCE_ID_TAG
        self._origin = length_delimited(5, region.encode())
        self._begin = b""
        """The newest plain message's metadata up to its sequence id; empty: there was none."""
        self._plain_rest = ANY_PLAIN_REST
        """The rest of the newest plain message's metadata. A large one is not kept."""

    def take(
        self, frames: Sequence[Frame], index: int, *, newest: Position, payload_bytes_max: int
    ) -> ReplicaGroup | None:
        """Return the longest group that begins with the frame of this index; None: that frame is no plain SEND of the
        stream. `newest`: the highest admitted position of the region; each of the group is above the one before."""
        entries: list[bytes] = []
        at, expected = index, _EXPECTED_FIRST
        while at < len(frames):
            read = self._checked(frames[at], newest, payload_bytes_max)
            if read is None:
                break
            entries.append(frames[at][2])
            at, newest = at + 1, read.position
            # Nearly always: the sequence id and the entry id after the last ones.
            while read.head and (left := min(expected, len(frames) - at, _ids_left(read))) > 0:
                numbers = varints(read.sequence_id + 1, left)
                count = self._add_next(
                    entries, frames[at : at + len(numbers)], numbers, read, payload_bytes_max
                )
                at += count
                newest = Position(newest.ledger, newest.entry + count)
                if count < len(numbers):
                    expected = _EXPECTED_FIRST
                    break
                expected = 4 * count
                read = read._replace(sequence_id=read.sequence_id + count, position=newest)
        return ReplicaGroup(newest, entries) if entries else None

    def _add_next(
        self,
        entries: list[bytes],
        frames: Sequence[Frame],
        numbers: list[bytes],
        read: _Read,
        payload_bytes_max: int,
    ) -> int:
        """Add the entries of frames that differ from the message before only in their sequence ids, these numbers of
        equal length, their entry ids and their payloads. Return how many are of that form."""
        _, position, head, begin, middle = read
        last_id = position.entry
        metadata_bytes = len(begin) + len(numbers[0]) + len(middle) + len(b"%d" % (last_id + 1))
        begin = _SIZE.pack(metadata_bytes) + begin
        end = HEAD_BYTES + metadata_bytes
        bytes_max = end + payload_bytes_max
        for (_, command, entry), number in zip(frames, numbers, strict=False):
            if (
                entry[CHECKSUM_BYTES:end] != begin + number + middle + b"%d" % (last_id + 1)
                or command != head + number
                or len(entry) > bytes_max
                or not entry.startswith(
                    _CHECKSUM_HEAD.pack(USUAL_MAGIC, crc32c(payload_from(entry, CHECKSUM_BYTES)))
                )
            ):
                break
            entries.append(entry)
            last_id += 1
        return last_id - position.entry

    def _checked(self, frame: Frame, newest: Position, payload_bytes_max: int) -> _Read | None:
        """Decode one message, and check its entry; None: it is not plain."""
        type_, command, entry = frame
        if len(entry) < HEAD_BYTES:
            return None
        magic, checksum, metadata_bytes = read_head(entry)
        end = HEAD_BYTES + metadata_bytes
        if magic != USUAL_MAGIC or end > len(entry) or len(entry) - end > payload_bytes_max:
            return None
        read = self._read(type_, command, entry[HEAD_BYTES:end], newest)
        is_right = read is not None and crc32c(payload_from(entry, CHECKSUM_BYTES)) == checksum
        return read if is_right else None

    def _read(self, type_: int, command: bytes, metadata: bytes, newest: Position) -> _Read | None:
        """Decode one message; None: it is not plain."""
        if type_ != CommandType.SEND:
            return None
        try:
            send = decode_send(command)
            begin, rest_at = self._begin_of(metadata, send.sequence_id)
            origin_at = metadata.rfind(self._origin, rest_at)
            position = appended_position(metadata[origin_at + len(self._origin) :])
        except (ProtocolError, IndexError, *UNREADABLE):
            return None
        if send.producer_id != self._producer_id or send.run_messages:
            return None
        if origin_at < 0 or position is None:
            return None
        if not may_follow(send, position, newest):
            return None
        rest = metadata[rest_at:origin_at]
        if rest != self._plain_rest and not is_plain_rest(rest):
            return None
        self._begin = begin
        if len(rest) <= REMEMBERED_REST_BYTES_MAX:
            self._plain_rest = rest
        middle = metadata[rest_at : -len(b"%d" % position.entry)]
        return _Read(send.sequence_id, position, self._head_of(command, send.sequence_id), begin, middle)

    def _begin_of(self, metadata: bytes, sequence_id: int) -> tuple[bytes, int]:
        """Return the beginning of the metadata and the offset of its rest. Raises one of UNREADABLE, or
        IndexError, if it has no producer name, or another sequence id."""
        begin = self._begin
        if not begin or not metadata.startswith(begin):
            size, name_at = read_varint(metadata, len(_NAME_TAG))
            name = metadata[name_at : name_at + size]
            begin = metadata[: name_at + size] + _SEQUENCE_ID_TAG
            if not metadata.startswith(_NAME_TAG) or not name.decode():
                raise Malformed("no producer name")
        number = varint(sequence_id)
        if not metadata.startswith(begin + number):
            raise Malformed("another sequence id")
        return begin, len(begin) + len(number)

    def _head_of(self, command: bytes, sequence_id: int) -> bytes:
        number = varint(sequence_id)
        usual = command_bytes(CommandType.SEND, self._command_begin + number)
        return command[: -len(number)] if command == usual else b""
