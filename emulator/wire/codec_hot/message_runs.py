"""Runs of messages: plain messages of one producer that follow each other in a log, in one SEND to another region.

    command    producer id, sequence id      of the first message; `run_messages`, their number
    entry      magic, checksum               of all that follows: one for the run
               size, metadata                of the first message in its replicated form
               sizes, payloads               the size of each payload, 4 bytes each; then the payloads

Of the messages after the first one only payloads are sent. Their metadata has the sequence ids and the entry ids that
follow, which have as many bytes, and is otherwise that of the first. The receiving region builds their entries, each
with a checksum of its own, from bytes that it has verified.

Invariant: a run has the outcome of the SENDs of its messages (`ReceivedRun.messages`). `read_run` is the gate for all
that another region states in a run, before memory for its messages is used.
"""

from __future__ import annotations

from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from emulator.model.crc import crc32c
from emulator.model.values import Position
from emulator.wire.codec_hot.publishing import SendCommand, begin_of_send, end_of_send, send_header
from emulator.wire.entry_layout import (
    CHECKSUM_BYTES,
    CHECKSUM_MAGIC,
    HEAD_BYTES,
    USUAL_MAGIC,
    assemble,
    metadata_bounds,
)
from emulator.wire.protobuf import (
    UNREADABLE,
    Malformed,
    length_delimited,
    malformed,
    read_varint,
    varint,
    varints,
)
from emulator.wire.source_position import appended_position, decimals, same_digits

RUN_MESSAGES_MIN: Final = 8
"""Minimum number of messages of a run that is built. It takes no more processor time than a SEND for each, and fewer
bytes of a link."""
RUN_MESSAGES_MAX: Final = 4_096
RUN_METADATA_BYTES_MAX: Final = 1_048_576
"""Maximum size of the metadata of all messages of a run, of which only those of the first are sent: a frame must not
use many times its own size in memory."""
_RUN_BYTES_MAX: Final = 262_144
"""Size of a run from which on it is sent in several frames, so that the other region handles the first one while it
receives the next."""
ID_MAX: Final = 2**63 - 1
"""Maximum sequence id and entry id of the messages of a run."""
_SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">I")
_CHECKSUM_HEAD: Final = Struct(">HI")
_NAME_TAG: Final = b"\x0a"
_SEQUENCE_ID_TAG: Final = b"\x10"


class MessageRun:
    """The messages of a run that is sent to other regions, or of parts of it."""

    __slots__ = (
        "_begin",
        "_middle",
        "_packed_sizes",
        "_payloads",
        "_sequence_id",
        "first_entry_id",
        "is_plain",
        "messages",
        "sizes",
    )

    def __init__(
        self, first_entry_id: int, sequence_id: int, begin: bytes, middle: bytes, payloads: list[bytes]
    ) -> None:
        """`begin` and `middle`: the metadata in its replicated form up to the sequence id, and between it and the entry
        id, with which it ends."""
        self.first_entry_id = first_entry_id
        self._sequence_id = sequence_id
        self._begin = begin
        self._middle = middle
        self._payloads = b"".join(payloads)
        payload_sizes = [len(payload) for payload in payloads]
        self._packed_sizes = pack(f">{len(payloads)}I", *payload_sizes)
        head_bytes = HEAD_BYTES + len(self._metadata(0))
        self.sizes = [head_bytes + size for size in payload_sizes]
        """Sizes of the entries in their replicated form."""
        self.messages = 1
        """Number of messages of each entry."""
        self.is_plain = True
        """Whether the entries are plain messages, which are sent to every region."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def held_bytes(self) -> int:
        """Size of the bytes that the run holds."""
        return len(self._payloads) + len(self._packed_sizes) + len(self._begin) + len(self._middle)

    def frames(
        self, producer_id: int, begin: int, end: int, previous_entry: int | None, entry_bytes_max: int
    ) -> list[bytes]:
        """Return the frames of the entries with these indexes, in parts. `previous_entry`: the entry before the first
        of them in the stream; None: the one with the id before. `entry_bytes_max`: maximum size of the entry of a frame
        in the remote region, which none of these exceeds alone."""
        parts: list[bytes] = []
        bytes_max = min(entry_bytes_max, _RUN_BYTES_MAX)
        while begin < end:
            stop = end
            while stop > begin + 1 and not self._fits(begin, stop, bytes_max):
                stop -= (stop - begin) // 2
            parts += self._frame(producer_id, begin, stop, previous_entry)
            begin, previous_entry = stop, None
        return parts

    def _fits(self, begin: int, end: int, bytes_max: int) -> bool:
        count, metadata_bytes = end - begin, len(self._metadata(begin))
        payload_bytes = sum(self.sizes[begin:end]) - count * (HEAD_BYTES + metadata_bytes)
        return (
            count <= RUN_MESSAGES_MAX
            and count * metadata_bytes <= RUN_METADATA_BYTES_MAX
            and HEAD_BYTES + metadata_bytes + count * _SIZE_BYTES + payload_bytes <= bytes_max
        )

    def _frame(self, producer_id: int, begin: int, end: int, previous_entry: int | None) -> list[bytes]:
        metadata, payloads = self._metadata(begin), self._payloads_of(begin, end)
        sequence_id = self._sequence_id + begin
        if end - begin == 1:
            form = end_of_send(sequence_id, 1, 0, marker=False, data=assemble(metadata, payloads))
            return [begin_of_send(producer_id, form, previous_entry), form.data]
        sizes = self._packed_sizes[begin * _SIZE_BYTES : end * _SIZE_BYTES]
        head = b"".join((_SIZE.pack(len(metadata)), metadata, sizes))
        header = send_header(
            producer_id,
            sequence_id,
            data_length=CHECKSUM_BYTES + len(head) + len(payloads),
            previous_entry=previous_entry,
            run_messages=end - begin,
        )
        return [header, CHECKSUM_MAGIC, _SIZE.pack(crc32c(payloads, crc32c(head))), head, payloads]

    def _metadata(self, index: int) -> bytes:
        number = varint(self._sequence_id + index)
        return b"".join((self._begin, number, self._middle, b"%d" % (self.first_entry_id + index)))

    def _payloads_of(self, begin: int, end: int) -> bytes:
        if end - begin == len(self.sizes):
            return self._payloads
        head_bytes = HEAD_BYTES + len(self._metadata(begin))
        start = sum(self.sizes[:begin]) - begin * head_bytes
        size = sum(self.sizes[begin:end]) - (end - begin) * head_bytes
        return self._payloads[start : start + size]


class ReceivedRun(NamedTuple):
    """The messages of a run from another region."""

    send: SendCommand
    first: Position
    """Source position of the first message; the others follow it."""
    rest: bytes
    """The metadata between the sequence id and the origin."""
    payload_bytes_max: int
    """Size of the largest payload."""
    entries: list[bytes]
    """The entries that the region stores."""

    @property
    def last(self) -> Position:
        return Position(self.first.ledger, self.first.entry + len(self.entries) - 1)

    def messages(self) -> list[tuple[SendCommand, bytes]]:
        """Return the SEND and the entry of each message, as they would be without the run."""
        send = self.send._replace(run_messages=0)
        later = send._replace(previous_entry=None)
        return [
            ((later if index else send)._replace(sequence_id=send.sequence_id + index), entry)
            for index, entry in enumerate(self.entries)
        ]


class _Template(NamedTuple):
    """The metadata of the first message of a run, in parts."""

    begin: bytes
    """Up to the sequence id."""
    middle: bytes
    """Between the sequence id and the entry id, with which it ends."""
    rest: bytes
    position: Position
    size: int


def read_run(send: SendCommand, entry: bytes, region: str) -> ReceivedRun:
    """Verify and read the run in a SEND of another region. ProtocolError for one that is not in the form of
    `MessageRun.frames`."""
    try:
        start, end = metadata_bounds(entry, verify=True)
        if start != HEAD_BYTES or not entry.startswith(CHECKSUM_MAGIC):
            raise Malformed("no checksum")
        template = _template(entry[start:end], send.sequence_id, region)
        _check_numbers(send, template)
        sizes = _payload_sizes(entry, end, send.run_messages)
    except (IndexError, *UNREADABLE) as problem:
        raise malformed("run of messages", problem, closes_connection=False) from None
    payloads_at = end + len(sizes) * _SIZE_BYTES
    entries = _entries(send.sequence_id, template, entry, payloads_at, sizes)
    return ReceivedRun(send, template.position, template.rest, max(sizes), entries)


def _template(metadata: bytes, sequence_id: int, region: str) -> _Template:
    size, name_at = read_varint(metadata, 1)
    begin = metadata[: name_at + size] + _SEQUENCE_ID_TAG
    number = varint(sequence_id)
    rest_at = len(begin) + len(number)
    has_name = metadata.startswith(_NAME_TAG) and metadata[name_at : name_at + size].decode() != ""
    if not (has_name and metadata.startswith(begin + number)):
        raise Malformed("its metadata does not begin with a producer name and the sequence id of the command")
    origin = length_delimited(5, region.encode())
    origin_at = metadata.rfind(origin, rest_at)
    position = appended_position(metadata[origin_at + len(origin) :]) if origin_at >= 0 else None
    if position is None:
        raise Malformed(f"its metadata does not end with the origin {region} and a source position")
    middle = metadata[rest_at : -len(b"%d" % position.entry)]
    return _Template(begin, middle, metadata[rest_at:origin_at], position, len(metadata))


def _check_numbers(send: SendCommand, template: _Template) -> None:
    """Check that the ids of all messages have the length of the first ones, and the memory that they use."""
    messages, entry_id = send.run_messages, template.position.entry
    if not 2 <= messages <= RUN_MESSAGES_MAX:
        raise Malformed(f"{messages:,} messages; 2 to {RUN_MESSAGES_MAX:,} are allowed")
    last_sequence_id = send.sequence_id + messages - 1
    if (
        same_digits(entry_id) < messages
        or len(varint(last_sequence_id)) != len(varint(send.sequence_id))
        or max(last_sequence_id, entry_id + messages - 1) > ID_MAX
    ):
        raise Malformed("the ids of its messages differ in length, or are too large")
    if messages * template.size > RUN_METADATA_BYTES_MAX:
        sentence = f"{messages:,} messages with {template.size:,} bytes of metadata each; "
        raise Malformed(f"{sentence}{RUN_METADATA_BYTES_MAX:,} bytes are allowed")


def _payload_sizes(entry: bytes, at: int, messages: int) -> tuple[int, ...]:
    left = len(entry) - at - messages * _SIZE_BYTES
    sizes: tuple[int, ...] = unpack_from(f">{messages}I", entry, at) if left >= 0 else ()
    if sum(sizes) != left:
        raise Malformed(f"its payloads have not the sizes that it states for {messages:,} messages")
    return sizes


def _entries(
    sequence_id: int, template: _Template, entry: bytes, at: int, sizes: tuple[int, ...]
) -> list[bytes]:
    """Return the entries of the messages, whose payloads begin at `at` and have these sizes."""
    entries: list[bytes] = []
    starts = list(accumulate(sizes, initial=at))
    begin = _SIZE.pack(template.size) + template.begin
    while len(entries) < len(sizes):
        done = len(entries)
        numbers = varints(sequence_id + done, len(sizes) - done)
        digits, last_digits = decimals(template.position.entry + done, len(numbers))
        middle = template.middle + digits
        of_messages = zip(numbers, last_digits, starts[done:], starts[done + 1 :], strict=False)
        bodies = [
            b"".join((begin, number, middle, last, entry[start:end]))
            for number, last, start, end in of_messages
        ]
        entries += [_CHECKSUM_HEAD.pack(USUAL_MAGIC, crc32c(body)) + body for body in bodies]
    return entries
