"""Frames: the layout of commands and payloads in the byte stream.

    simple    total_size(4) command_size(4) command
    payload   total_size(4) command_size(4) command stored_entry

All sizes are big-endian u32; total_size does not count its own four bytes. `stored_entry` is the rest of the frame,
an entry (`wire.entry_layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from emulator.errors import ProtocolError, ServerError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.protobuf import UNREADABLE, tag, varint

FRAME_PADDING_BYTES: Final = 10_240
"""Maximum bytes of a frame besides the largest payload, for command and metadata; the value of Pulsar's clients."""
COMMAND_BYTES_MAX: Final = 256
"""Part of FRAME_PADDING_BYTES for the sizes and the command of a SEND, or of a MESSAGE without an ack set."""

Frame = tuple[int, bytes, bytes]
"""(command type number, BaseCommand bytes, stored entry; empty for simple commands)."""

SIZES: Final = Struct(">II")
_read_sizes = SIZES.unpack_from
_COMMAND_BYTES_MIN: Final = 2
"""The type field alone."""
_JOINED_BYTES_MAX: Final = 4_096
"""Maximum size of received bytes that are joined with those before them at once. If a client sends a few bytes at a
time, an object for each would take much more memory than these."""
_TYPE_TAG: Final = 0x08
"""Tag of the type (field 1, a varint), with which every client's commands begin."""


def simple_frame(command: pb.BaseCommand) -> bytes:
    """Return the frame of a command without payload. Raises EncodeError for a missing required field, a bug."""
    return frame_of(command.SerializeToString())


def frame_of(command: bytes, payload: bytes = b"") -> bytes:
    """Return the frame of a serialized command and the stored entry that follows it."""
    size = len(command)
    return SIZES.pack(size + len(payload) + 4, size) + command + payload


PING_FRAME: Final = simple_frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
PONG_FRAME: Final = simple_frame(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))

# A command written by hand: its type, then its body in the field of the same number.

BEFORE_BODY_SIZE: Final = {
    number: tag(1) + varint(number) + tag(number, 2) for number in pb.BaseCommand.Type.values()
}
"""Command type -> the bytes before the size of its body."""


def command_bytes(type_: int, body: bytes) -> bytes:
    """Return the BaseCommand bytes of a serialized body."""
    return BEFORE_BODY_SIZE[type_] + varint(len(body)) + body


@lru_cache(maxsize=1024)
def head_of_frame(type_: int, body_size: int) -> bytes:
    """Return the bytes of a simple frame before its body. Most frames are responses of a few types and sizes."""
    before_body = BEFORE_BODY_SIZE[type_] + varint(body_size)
    command_size = len(before_body) + body_size
    return SIZES.pack(command_size + 4, command_size) + before_body


def frame_bytes(frame: Frame) -> int:
    """Return the size of a frame in the stream."""
    return SIZES.size + len(frame[1]) + len(frame[2])


_OWNER_END: Final = 6
"""End of the first byte of the producer or consumer id in a usual SEND or ACK."""


def is_followed(frames: Sequence[Frame], index: int) -> bool:
    """Whether the command after a SEND or an ACK looks as if it were the next one of its producer or consumer."""
    if index + 1 == len(frames):
        return False
    command, following = frames[index][1], frames[index + 1][1]
    return len(command) == len(following) and command[:_OWNER_END] == following[:_OWNER_END]


class FrameBuffer:
    """Splits a byte stream into frames.

    After a malformed frame nothing can be parsed. Frames before it are valid and are processed, even if they arrived in
    the same piece of the stream:

        for frame in buffer.feed(data): ...
        if buffer.failed: close the connection with this error

    `feed` raises the error only if it has no frame to return before the malformed one, and in every later call.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.failed: ProtocolError | None = None
        """The error of the first malformed frame."""
        self._frame_bytes_max = frame_bytes_max
        """Maximum total_size."""
        self._parts: list[bytes] = []
        """Received bytes of the incomplete frame, joined once it may be complete."""
        self._missing = 0
        """Bytes to receive before `_parts` are parsed again. Invariant: > 0 if and only if there are parts."""
        self._entry_at = 0
        """Place of the entry in the first of `_parts`, if that has the whole command and `_missing` completes the
        frame; otherwise 0. Then the entry is joined from the parts, and nothing else is copied."""
        self.held_bytes = 0
        """Number of received bytes of the incomplete frame. Invariant: the sum of the lengths of `_parts`."""

    @property
    def unfinished_bytes(self) -> int:
        """Size of the incomplete frame in the stream; at least 8 while its size is unknown; 0: there is none."""
        return self.held_bytes + self._missing

    @property
    def partial_frame(self) -> bytes:
        """The received bytes of the incomplete frame."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes, of any number, and return the frames that they complete. Raises ProtocolError
        (`failed`)."""
        if self.failed is not None:
            raise self.failed
        frames: list[Frame] = []
        at, available = 0, len(data)
        if self._missing:
            if available < self._missing:
                self._keep(data, self._missing - available)
                return frames
            if self._entry_at:
                at = self._missing
                command, entry = self._completed(data)
                type_ = _type_of(command)
                if type_ < 0:
                    return self._fail(frames, _bad_frame("command without a type"))
                frames.append((type_, command, entry))
            else:
                data = b"".join((*self._take_parts(), data))
                available = len(data)
        bytes_max = self._frame_bytes_max
        while available - at >= 8:
            total_size, command_size = _read_sizes(data, at)
            end = at + 4 + total_size
            start = at + 8
            payload_at = start + command_size
            if total_size > bytes_max or payload_at > end or command_size < _COMMAND_BYTES_MIN:
                return self._fail(frames, _impossible_sizes(total_size, command_size, bytes_max))
            if end > available:
                self._keep(data[at:], end - available)
                self._entry_at = payload_at - at if payload_at <= available else 0
                return frames
            command = data[start:payload_at]
            type_ = command[1]  # as `_type_of`, which would be a call for each frame
            if command[0] != _TYPE_TAG or type_ > 127:
                type_ = _search_type(command)
                if type_ < 0:
                    return self._fail(frames, _bad_frame("command without a type"))
            frames.append((type_, command, data[payload_at:end]))
            at = end
        if at < available:
            self._keep(data[at:], at + 8 - available)
        return frames

    def _keep(self, data: bytes, missing: int) -> None:
        """Add bytes to the incomplete frame."""
        parts = self._parts
        if parts and len(parts[-1]) + len(data) <= _JOINED_BYTES_MAX:
            parts[-1] += data
        else:
            parts.append(data)
        self._missing = missing
        self.held_bytes += len(data)

    def _take_parts(self) -> list[bytes]:
        """Return the received bytes of the incomplete frame, and forget them."""
        parts, self._parts = self._parts, []
        self._missing = self._entry_at = self.held_bytes = 0
        return parts

    def _completed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the command and the entry of the frame that the beginning of `data` completes."""
        missing, entry_at = self._missing, self._entry_at
        first, *others = self._take_parts()
        entry = b"".join((memoryview(first)[entry_at:], *others, memoryview(data)[:missing]))
        return first[SIZES.size : entry_at], entry

    def _fail(self, frames: list[Frame], error: ProtocolError) -> list[Frame]:
        self.failed = error
        if not frames:
            raise error
        return frames


def _type_of(command: bytes) -> int:
    """Return the type of a command; -1: it has none."""
    type_ = command[1]
    return type_ if command[0] == _TYPE_TAG and type_ <= 127 else _search_type(command)


def _search_type(command: bytes) -> int:
    """Return the type of a command that does not begin with it, or whose type needs two bytes; -1: none."""
    try:
        head = pb.LeanHead.FromString(command)
    except UNREADABLE:
        return -1
    return head.type if head.HasField("type") else -1


def _impossible_sizes(total_size: int, command_size: int, bytes_max: int) -> ProtocolError:
    if total_size > bytes_max:
        return _bad_frame(f"frame of {total_size} bytes, the limit is {bytes_max}")
    return _bad_frame(f"command of {command_size} bytes in a frame of {total_size}")


def _bad_frame(reason: str) -> ProtocolError:
    return ProtocolError(ServerError.UnknownError, reason, closes_connection=True)
