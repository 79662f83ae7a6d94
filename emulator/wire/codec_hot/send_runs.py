"""Runs of SENDs to other regions: the entries of a log whose ids follow each other, as columns.

The frames of a run are the same for all remote regions, except for the id of their producer there:

    sizes  type  size of the command │ producer id │ sequence id … entry
    └──────────── begins ───────────┘                └───── ends ─────┘

Most entries are plain messages (`wire.codec_hot.send_groups`), whose replicated form is built without decoding their
metadata: `PlainForms.take` compares it with what follows from the entry before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from emulator.model.crc import crc32c
from emulator.model.values import Position
from emulator.wire.codec_hot.message_runs import ID_MAX, RUN_MESSAGES_MIN, MessageRun
from emulator.wire.codec_hot.publishing import EndOfSend, begin_of_send
from emulator.wire.command_types import CommandType
from emulator.wire.entry_layout import CHECKSUM_BYTES, CHECKSUM_MAGIC, HEAD_BYTES, USUAL_MAGIC, read_head
from emulator.wire.frames import BEFORE_BODY_SIZE, SIZES
from emulator.wire.message_metadata import is_plain_rest, may_have_schema
from emulator.wire.protobuf import length_delimited, read_varint, varint, varints
from emulator.wire.source_position import position_property, same_digits

PLAIN_ENTRY_BYTES_MAX: Final = 4_096
"""Size of entries up to which copying them is cheap."""
_SEND: Final = BEFORE_BODY_SIZE[CommandType.SEND]
_CHECKSUM_HEAD: Final = Struct(">HI")
_SIZE: Final = Struct(">I")
_SEQUENCE_ID_TAG: Final = b"\x10"
_ANY_PLAIN_REST: Final = b"\x18\x00"
_EXPECTED_FIRST: Final = 8
"""Number of messages that are expected to follow from one that was read. It grows while they do: messages of producers
in turns do not."""
_NO_END: Final = 2**63
_MAGIC_BYTES: Final = len(CHECKSUM_MAGIC)


class SendRun:
    """The SENDs of entries whose ids follow each other."""

    __slots__ = ("_begins", "command_bytes", "ends", "first_entry_id", "is_plain", "messages", "sizes")

    def __init__(
        self,
        first_entry_id: int,
        ends: list[bytes],
        command_bytes: list[int],
        messages: int,
        *,
        is_plain: bool,
    ) -> None:
        self.first_entry_id = first_entry_id
        self.ends = ends
        """The last fields of each command, and its entry."""
        self.command_bytes = command_bytes
        """Number of bytes of these fields."""
        self.messages = messages
        """Number of messages of each entry."""
        self.is_plain = is_plain
        """Whether the entries are plain messages, which are sent to every region."""
        self.sizes = [len(end) - command for end, command in zip(ends, command_bytes, strict=True)]
        """Sizes of the entries."""
        self._begins: dict[int, list[bytes]] = {}
        """Size of the producer id field -> the bytes before it."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def held_bytes(self) -> int:
        """Size of the bytes that the run holds."""
        return sum(map(len, self.ends))

    def frames(
        self, producer_id: int, begin: int, end: int, previous_entry: int | None, entry_bytes_max: int
    ) -> list[bytes]:
        """Return the frames of the entries with these indexes, in parts. `previous_entry`: the entry before the first
        of them in the stream; None: the one with the id before. None exceeds `entry_bytes_max`."""
        if previous_entry is not None:
            first = EndOfSend(self.ends[begin], self.command_bytes[begin])
            head = begin_of_send(producer_id, first, previous_entry)
            return [head, first.data, *self.frames(producer_id, begin + 1, end, None, entry_bytes_max)]
        producer = b"\x08" + varint(producer_id)
        begins = self._begins.get(len(producer))
        if begins is None:
            begins = self._begins[len(producer)] = self._begins_for(len(producer))
        parts = [producer] * (3 * (end - begin))
        parts[::3] = begins[begin:end]
        parts[2::3] = self.ends[begin:end]
        return parts

    def _begins_for(self, producer_bytes: int) -> list[bytes]:
        known: dict[tuple[int, int], bytes] = {}
        begins: list[bytes] = []
        for of_one in zip(self.sizes, self.command_bytes, strict=True):
            begin = known.get(of_one)
            if begin is None:
                size, command = of_one
                before = _SEND + varint(producer_bytes + command)
                command_size = len(before) + producer_bytes + command
                begin = known[of_one] = SIZES.pack(command_size + size + 4, command_size) + before
            begins.append(begin)
        return begins


class LogEntry(Protocol):
    """An entry of a log."""

    entry_id: int
    data: bytes
    hidden: bool


Run = SendRun | MessageRun


class _Read(NamedTuple):
    """The metadata of a plain message, in parts."""

    begin: bytes
    """Up to the sequence id."""
    sequence_id: int
    rest: bytes


class PlainForms:
    """Builds the runs of plain messages of one region."""

    __slots__ = ("_origin", "_plain_rest")

    def __init__(self, region: str) -> None:
        self._origin = length_delimited(5, region.encode())
        self._plain_rest = _ANY_PLAIN_REST
        """The rest of the newest plain message's metadata, which is often that of the next one."""

    def take(
        self,
        entries: Sequence[LogEntry],
        index: int,
        ledger_id: int,
        end_id: int,
        *,
        until_similar: bool = False,
    ) -> SendRun | None:
        """Return the longest run of plain messages without a schema that begins with the entry of this index and ends
        before `end_id`; None: that entry is another one. `until_similar`: it may end at similar messages, which
        `take_similar` takes."""
        first_id = next_id = entries[index].entry_id
        stop = end_id if end_id >= 0 else first_id + len(entries)
        ends: list[bytes] = []
        command_bytes: list[int] = []
        at, expected, read = index, _EXPECTED_FIRST, None
        while at < len(entries) and next_id < stop:
            if read is None:
                read = self._read_entry(entries[at].data)
                if read is None:
                    break
            position = Position(ledger_id, next_id)
            left = min(expected, len(entries) - at, stop - next_id, same_digits(next_id))
            numbers = varints(read.sequence_id, left)
            count = self._add_forms(ends, entries[at : at + len(numbers)], numbers, read, position)
            if not count:
                break
            command_bytes += [1 + len(numbers[0])] * count
            at, next_id = at + count, next_id + count
            # Nearly always: the next message follows from this one.
            is_same = count == len(numbers)
            read = read._replace(sequence_id=read.sequence_id + count) if is_same else None
            expected = 4 * count if is_same else _EXPECTED_FIRST
            if until_similar and count == _EXPECTED_FIRST == len(numbers):
                if len(ends) > count:  # otherwise `take_similar` did not take these
                    del ends[-count:], command_bytes[-count:]
                break
        return SendRun(first_id, ends, command_bytes, 1, is_plain=True) if ends else None

    def take_similar(
        self, first_id: int, datas: Callable[[int, int], list[bytes]], ledger_id: int, end_id: int
    ) -> MessageRun | None:
        """Return the longest run of plain messages without a schema that begins with the entry of this id, ends before
        `end_id`, and in which only payloads, sequence ids and entry ids differ, the ids by one and not in length. None:
        it would have fewer than `RUN_MESSAGES_MIN` messages. `datas(index, count)` returns the bytes of up to `count`
        entries from an index on, whose ids follow each other; fewer: the next one has another id, or there is none."""
        left = min(same_digits(first_id), end_id - first_id if end_id >= 0 else _NO_END)
        first = datas(0, 1) if left >= RUN_MESSAGES_MIN else []
        read = self._read_entry(first[0]) if first else None
        if read is None:
            return None
        left = min(left, ID_MAX + 1 - read.sequence_id)
        payloads: list[bytes] = []
        number_bytes, expected = len(varint(read.sequence_id)), _EXPECTED_FIRST
        while len(payloads) < left:
            at = len(payloads)
            numbers = varints(read.sequence_id + at, min(expected, left - at))
            if len(numbers[0]) != number_bytes:
                break
            of_part = datas(at, len(numbers))
            if not of_part:
                break
            count = _add_payloads(payloads, of_part, numbers[: len(of_part)], read)
            if count < len(numbers):
                break
            expected = 4 * count
        if len(payloads) < RUN_MESSAGES_MIN:
            return None
        position = position_property(Position(ledger_id, first_id))
        middle = read.rest + self._origin + position[: -len(b"%d" % first_id)]
        return MessageRun(first_id, read.sequence_id, read.begin, middle, payloads)

    def _add_forms(
        self,
        ends: list[bytes],
        entries: Sequence[LogEntry],
        numbers: list[bytes],
        read: _Read,
        position: Position,
    ) -> int:
        """Add the forms of entries from this position on, whose metadata differ only in the sequence id: these numbers,
        of equal length. Return how many are of that form."""
        begin, _, rest = read
        next_id = position.entry
        metadata_bytes = len(begin) + len(numbers[0]) + len(rest)
        end = HEAD_BYTES + metadata_bytes
        digits = len(b"%d" % next_id)
        tail = self._origin + position_property(position)[:-digits]
        new_begin, new_rest = _SIZE.pack(metadata_bytes + len(tail) + digits) + begin, rest + tail
        begin = _SIZE.pack(metadata_bytes) + begin
        for entry, number in zip(entries, numbers, strict=False):
            data = entry.data
            if (
                data[CHECKSUM_BYTES:end] != begin + number + rest
                or entry.entry_id != next_id
                or entry.hidden
                or len(data) > PLAIN_ENTRY_BYTES_MAX
                or not data.startswith(CHECKSUM_MAGIC)
            ):
                break
            body = b"".join((new_begin, number, new_rest, b"%d" % next_id, data[end:]))
            ends.append(
                b"".join((_SEQUENCE_ID_TAG, number, _CHECKSUM_HEAD.pack(USUAL_MAGIC, crc32c(body)), body))
            )
            next_id += 1
        return next_id - position.entry

    def _read_entry(self, data: bytes) -> _Read | None:
        """Return the metadata of an entry in parts; None: it is no plain message, or has a schema."""
        if len(data) < HEAD_BYTES:
            return None
        magic, _, metadata_bytes = read_head(data)
        end = HEAD_BYTES + metadata_bytes
        return self._read(data[HEAD_BYTES:end]) if magic == USUAL_MAGIC and end <= len(data) else None

    def _read(self, metadata: bytes) -> _Read | None:
        """Return the metadata of a plain message in parts; None: it is not plain, or has a schema."""
        try:
            size, name_at = read_varint(metadata, 1)
            begin = metadata[: name_at + size] + _SEQUENCE_ID_TAG
            sequence_id, rest_at = read_varint(metadata, len(begin))
        except IndexError:
            return None
        if not (size and metadata.startswith(b"\x0a") and metadata.startswith(begin)):
            return None
        rest = metadata[rest_at:]
        if rest != self._plain_rest:
            if may_have_schema(rest) or not is_plain_rest(rest):
                return None
            self._plain_rest = rest
        return _Read(begin, sequence_id, rest)


def _add_payloads(payloads: list[bytes], datas: Sequence[bytes], numbers: list[bytes], read: _Read) -> int:
    """Add the payloads of entries whose metadata differ only in the sequence id: these numbers, of equal length. Return
    how many are of that form."""
    end = HEAD_BYTES + len(read.begin) + len(numbers[0]) + len(read.rest)
    begin, rest = _SIZE.pack(end - HEAD_BYTES) + read.begin, read.rest
    if (
        max(map(len, datas)) <= PLAIN_ENTRY_BYTES_MAX
        and [data[CHECKSUM_BYTES:end] for data in datas] == [begin + number + rest for number in numbers]
        and [data[:_MAGIC_BYTES] for data in datas].count(CHECKSUM_MAGIC) == len(datas)
    ):
        payloads += [data[end:] for data in datas]
        return len(datas)
    count = 0
    for data, number in zip(datas, numbers, strict=True):
        if (
            data[CHECKSUM_BYTES:end] != begin + number + rest
            or len(data) > PLAIN_ENTRY_BYTES_MAX
            or not data.startswith(CHECKSUM_MAGIC)
        ):
            break
        payloads.append(data[end:])
        count += 1
    return count
