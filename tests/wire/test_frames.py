"""A stream of bytes is parsed as a sequence of frames, however it is split."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.frames import PING_FRAME, PONG_FRAME, Frame, FrameBuffer, frame_of, simple_frame
from tests.wire.strategies import damaged, patient

BYTES_MAX = 100_000

frames = st.lists(
    st.sampled_from([PING_FRAME, PONG_FRAME])
    | st.builds(lambda data: send_frame(1, 2, data=data), st.binary(max_size=300)),
    max_size=12,
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def feed_all(buffer: FrameBuffer, pieces: list[bytes]) -> list[Frame]:
    found: list[Frame] = []
    for piece in pieces:
        try:
            found += buffer.feed(piece)
        except ProtocolError:
            break
    return found


@patient
@given(frames, st.lists(st.integers(0, 10_000), max_size=20))
def test_how_a_stream_is_cut_into_chunks_does_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    whole = FrameBuffer(BYTES_MAX).feed(stream)
    assert len(whole) == len(parts)
    assert feed_all(FrameBuffer(BYTES_MAX), chunks(stream, cuts)) == whole


@patient
@given(frames)
def test_a_stream_may_arrive_byte_by_byte(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    assert feed_all(FrameBuffer(BYTES_MAX), [bytes((byte,)) for byte in stream]) == FrameBuffer(
        BYTES_MAX
    ).feed(stream)


@patient
@given(damaged(frames.map(b"".join)), st.lists(st.integers(0, 10_000), max_size=5))
def test_a_damaged_stream_is_read_the_same_in_any_chunks_and_fails_only_as_a_protocol_error(
    stream: bytes, cuts: list[int]
) -> None:
    whole = feed_all(FrameBuffer(BYTES_MAX), [stream])
    assert feed_all(FrameBuffer(BYTES_MAX), chunks(stream, cuts)) == whole


def test_a_frame_has_a_type_a_command_and_an_entry() -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 2
    [(type_, body, data)] = FrameBuffer(BYTES_MAX).feed(frame_of(command.SerializeToString(), b"stored"))
    assert type_ == CommandType.SEND
    assert pb.BaseCommand.FromString(body) == command
    assert data == b"stored"


def test_a_simple_command_has_no_entry() -> None:
    assert FrameBuffer(BYTES_MAX).feed(PING_FRAME)[0][2] == b""


def test_frames_before_a_bad_one_are_delivered_and_then_the_stream_has_failed() -> None:
    buffer = FrameBuffer(BYTES_MAX)
    assert len(buffer.feed(PING_FRAME + PONG_FRAME + b"\xff" * 8 + PING_FRAME)) == 2
    assert buffer.failed is not None
    assert buffer.failed.closes_connection
    with pytest.raises(ProtocolError, match="limit"):
        buffer.feed(PING_FRAME)


def test_a_bad_frame_with_nothing_before_it_is_an_error_at_once() -> None:
    buffer = FrameBuffer(BYTES_MAX)
    with pytest.raises(ProtocolError) as caught:
        buffer.feed(b"\xff" * 8)
    assert buffer.failed is caught.value


@pytest.mark.parametrize(
    ("total_size", "command_size"),
    [(BYTES_MAX + 1, 4), (0, 4), (3, 4), (8, 5), (2**32 - 1, 2**32 - 1), (10, 0), (10, 1), (100, 2**31)],
)
def test_impossible_sizes_are_rejected_without_waiting_for_the_frame(
    total_size: int, command_size: int
) -> None:
    with pytest.raises(ProtocolError) as caught:
        FrameBuffer(BYTES_MAX).feed(struct.pack(">II", total_size, command_size))
    assert caught.value.closes_connection


def test_a_frame_of_just_the_limit_is_accepted() -> None:
    command_size = len(PING_FRAME) - 8
    data = bytes(BYTES_MAX - 4 - command_size)
    assert FrameBuffer(BYTES_MAX).feed(frame_of(PING_FRAME[8:], data))[0][2] == data


def test_the_type_is_found_at_any_position() -> None:
    unusual = b"\x92\x01\x00" + b"\x08\x12"
    assert FrameBuffer(BYTES_MAX).feed(frame_of(unusual))[0][0] == CommandType.PING


def test_a_command_of_a_newer_peer_is_a_frame_like_any_other() -> None:
    newer = b"\x08\xac\x02"
    assert FrameBuffer(BYTES_MAX).feed(frame_of(newer)) == [(300, newer, b"")]


@pytest.mark.parametrize("command", [b"\x92\x01\x00", b"\x00\x00\x00", b"\x08\xff\xff"])
def test_a_command_without_a_readable_type_ends_the_stream(command: bytes) -> None:
    with pytest.raises(ProtocolError, match="type"):
        FrameBuffer(BYTES_MAX).feed(frame_of(command))


def test_a_large_frame_that_arrives_in_small_parts_is_copied_once() -> None:
    frame = send_frame(1, 2, data=bytes(4_000_000))
    pieces = [frame[at : at + 1_000] for at in range(0, len(frame), 1_000)]
    buffer = FrameBuffer(5_000_000)
    for piece in pieces[:-1]:
        assert buffer.feed(piece) == []
    tracemalloc.start()
    try:
        found = buffer.feed(pieces[-1])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found[0][2]) == 4_000_000
    assert peak_bytes < 1.5 * len(frame)


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_frame_that_arrives_in_tiny_parts_takes_little_more_memory_than_its_bytes(size: int) -> None:
    """Each part as an object of its own would take up to 25 times as much: a client may send any number of bytes."""
    data = bytes(range(256)) * 300
    frame = send_frame(1, 2, data=data)
    buffer = FrameBuffer(BYTES_MAX)
    tracemalloc.start()
    try:
        for at in range(0, len(frame) - 100, size):
            assert buffer.feed(frame[at : at + size]) == []
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert buffer.held_bytes == at + size
    assert taken_bytes < 1.5 * len(frame)
    assert buffer.feed(frame[at + size :])[0][2] == data


def test_a_simple_frame_begins_with_its_sizes() -> None:
    frame = simple_frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
    assert frame == PING_FRAME
    assert struct.unpack(">II", frame[:8]) == (len(frame) - 4, len(frame) - 8)
