"""Groups of SENDs: plain messages of one producer that follow each other in a stream, as columns.

A SEND is *plain* if nothing but its sequence id and the bytes of its entry distinguishes it from the producer's other
messages, so that a broker can check, admit and store many of them at once:

    command    producer id, sequence id      in their shortest form, and nothing else
    entry      magic, checksum, metadata     with a checksum, which is right; within the limits of its size
    metadata   producer name, sequence id    the producer's own name, the sequence id of the command
               the rest                      `is_plain_rest`: no batch, chunk, marker, transaction, delay, origin …
    order      sequence id                   above those before it

`PlainSends.take` is the only place that decides this. It ends a group at the first SEND that is not plain, which is
decoded alone by `decode_send` and `scan_entry`. Invariant: for a plain SEND these two return the group's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from emulator.model.crc import crc32c
from emulator.wire.codec_hot.publishing import usual_send
from emulator.wire.command_types import CommandType
from emulator.wire.entry_layout import CHECKSUM_BYTES, HEAD_BYTES, USUAL_MAGIC, payload_from, read_head
from emulator.wire.frames import Frame, command_bytes
from emulator.wire.message_metadata import REMEMBERED_REST_BYTES_MAX, is_plain_rest
from emulator.wire.protobuf import length_delimited, varint

_SEQUENCE_ID_TAG: Final = b"\x10"
"""Of the command and of the metadata: the sequence id is field 2 of both."""


_ANY_PLAIN_REST: Final = b"\x18\x00"
"""A publish time alone."""


class SendGroup(NamedTuple):
    """At least one plain message."""

    sequence_ids: list[int]
    """Ascending."""
    entries: list[bytes]


class PlainSends:
    """Recognises the plain messages of one producer."""

    __slots__ = ("_command_begin", "_metadata_begin", "_plain_rest", "_producer_id")

    def __init__(self, producer_id: int, producer_name: str) -> None:
        self._producer_id = producer_id
        self._command_begin = b"\x08" + varint(producer_id) + _SEQUENCE_ID_TAG
        self._metadata_begin = length_delimited(1, producer_name.encode()) + _SEQUENCE_ID_TAG
        self._plain_rest = _ANY_PLAIN_REST
        """The rest of the newest plain message's metadata, which is often that of the next one. A large one is not
        kept."""

    def take(
        self, frames: Sequence[Frame], begin: int, *, above: int, entry_bytes_max: int
    ) -> SendGroup | None:
        """Return the longest group that begins with the frame of index `begin`, with sequence ids greater than `above`
        and entries of up to `entry_bytes_max`; None: that frame is no plain SEND of the producer."""
        sequence_ids: list[int] = []
        entries: list[bytes] = []
        sequence_id, rest = above, self._plain_rest
        head = metadata = expected = b""
        for _, command, entry in islice(frames, begin, None):
            if command == expected:  # nearly always: the sequence id after the last one
                sequence_id += 1
            else:
                found = self._sequence_id(command)
                if found <= sequence_id:
                    break
                sequence_id, number = found, varint(found)
                head, metadata = command[: -len(number)], self._metadata_begin + number
            if not HEAD_BYTES <= len(entry) <= entry_bytes_max:
                break
            magic, checksum, metadata_bytes = read_head(entry)
            end = HEAD_BYTES + metadata_bytes
            if magic != USUAL_MAGIC or end > len(entry) or not entry.startswith(metadata, HEAD_BYTES):
                break
            if entry[HEAD_BYTES + len(metadata) : end] != rest:
                rest = entry[HEAD_BYTES + len(metadata) : end]
                if not is_plain_rest(rest):
                    break
                if len(rest) <= REMEMBERED_REST_BYTES_MAX:
                    self._plain_rest = rest
            if crc32c(payload_from(entry, CHECKSUM_BYTES)) != checksum:
                break
            sequence_ids.append(sequence_id)
            entries.append(entry)
            # One more byte would need another size in the head.
            number = varint(sequence_id + 1)
            expected = head + number if len(head) + len(number) == len(command) else b""
            metadata = self._metadata_begin + number
        return SendGroup(sequence_ids, entries) if entries else None

    def _sequence_id(self, command: bytes) -> int:
        """Return the sequence id in a usual SEND of the producer; -1: it is another command, or in another form."""
        send = usual_send(command)
        if send is None or send.producer_id != self._producer_id:
            return -1
        shortest = command_bytes(CommandType.SEND, self._command_begin + varint(send.sequence_id))
        return send.sequence_id if command == shortest else -1
