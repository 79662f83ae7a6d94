"""Faults of single frames: the same frames are affected however the stream is split, and all other bytes pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.broker.links.frame_faults import (
    FRAME_BYTES_MAX,
    NAMES,
    ArmedFaults,
    FrameFilter,
    FrameSplitter,
    name_of,
)
from emulator.model.frame_faults import FrameAction, FrameFault
from emulator.model.markers import SnapshotRequest, SnapshotResponse, SubscriptionUpdate
from emulator.model.values import Position
from emulator.wire import commands
from emulator.wire.codec_hot.publishing import encode_receipt, send_frame
from emulator.wire.command_types import CommandType
from emulator.wire.entry import plain_entry
from emulator.wire.frames import PING_FRAME, PONG_FRAME, SIZES, FrameBuffer
from emulator.wire.markers import encode_marker

MARKER = SnapshotResponse("round", "eu", Position(7, 3))


def send_of(number: int, payload: bytes = b"hello") -> bytes:
    return send_frame(1, number, data=plain_entry("p", number, 0, payload))


def marker_frame(marker: object) -> bytes:
    return send_frame(1, 0, data=encode_marker(marker, 0)[0], marker=True)  # type: ignore[arg-type]


FRAMES = [
    PING_FRAME,
    PONG_FRAME,
    encode_receipt(1, 2, 3, 4, 5),
    commands.CloseProducer(3, 4).encode(),
    marker_frame(MARKER),
    marker_frame(SnapshotRequest("round", "us")),
    send_of(1),
    send_of(2, b"x" * 300),
]
STREAMS = st.lists(st.sampled_from(FRAMES), max_size=12)
SPLITS = st.lists(st.integers(0, 4_000), max_size=12)
FAULTS = st.lists(
    st.builds(
        FrameFault,
        st.sampled_from([FrameAction.DROP, FrameAction.DUPLICATE, FrameAction.REORDER]),
        st.sampled_from(["ping", "pong", "send_receipt", "close_producer", "snapshot_response", "send"]),
        st.integers(1, 3),
        st.integers(1, 3),
        number=st.integers(0, 1_000),
    ),
    max_size=3,
)


def split(data: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[one:other] for one, other in pairwise(cuts)]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (PING_FRAME, "ping"),
        (encode_receipt(1, 2, 3, 4, 5), "send_receipt"),
        (send_of(1), "send"),
        (marker_frame(MARKER), "snapshot_response"),
        (marker_frame(SnapshotRequest("round", "us")), "snapshot_request"),
        (marker_frame(SubscriptionUpdate("s", (("us", Position(1, 2)),))), "subscription_update"),
        (send_frame(1, 2, data=b"\x0e\x01 not an entry"), ""),
        (SIZES.pack(6, 2) + b"\x08\x7f", ""),
    ],
)
def test_a_frame_has_the_name_of_its_marker_or_command(frame: bytes, name: str) -> None:
    assert name_of(frame) == name


def test_every_command_has_a_name() -> None:
    numbers = {value for name, value in vars(CommandType).items() if name.isupper()}
    assert set(NAMES) == numbers


@given(STREAMS, SPLITS, st.integers(0, 40))
def test_a_stream_is_split_into_its_frames_from_any_byte_on(
    frames: list[bytes], places: list[int], begun: int
) -> None:
    """The bytes that the receiver already has are not repeated, and their frame does not count as whole."""
    data = b"".join(frames)
    begun = min(begun, max(len(data) - 1, 0))
    reader = FrameBuffer(FRAME_BYTES_MAX)
    seen = len(reader.feed(data[:begun]))
    splitter = FrameSplitter(reader.partial_frame)
    pieces = [piece for part in split(data[begun:], places) for piece in splitter.feed(part)]
    assert b"".join(piece for piece, _ in pieces) + splitter.rest() == data[begun:]
    whole = frames[seen + (1 if reader.partial_frame else 0) :]
    assert [piece for piece, is_frame in pieces if is_frame] == whole


@given(STREAMS, SPLITS, FAULTS)
def test_any_split_of_a_stream_has_the_same_result(
    frames: list[bytes], places: list[int], faults: list[FrameFault]
) -> None:
    data = b"".join(frames)
    one = FrameFilter(ArmedFaults(faults))
    other = FrameFilter(ArmedFaults(faults))
    expected = one.feed(data, 0.0) + one.finish()
    assert b"".join(other.feed(part, 0.0) for part in split(data, places)) + other.finish() == expected


@given(STREAMS, SPLITS, FAULTS)
def test_the_right_frames_are_affected(
    frames: list[bytes], places: list[int], faults: list[FrameFault]
) -> None:
    """Compared with a model on whole frames."""
    left = {fault: [fault.nth, fault.count] for fault in faults}
    expected: list[bytes] = []
    swapped: list[bytes] = []
    for frame in frames:
        action = None
        for fault, numbers in left.items():
            if fault.what == name_of(frame):
                numbers[0] -= 1
                if action is None and numbers[0] <= 0 < numbers[1]:
                    numbers[1] -= 1
                    action = fault.action
        if action is FrameAction.REORDER:
            swapped.append(frame)
        elif action is not FrameAction.DROP:
            expected += [frame] * (2 if action is FrameAction.DUPLICATE else 1) + swapped
            swapped = []
    filter_ = FrameFilter(ArmedFaults(faults))
    out = b"".join(filter_.feed(part, 0.0) for part in split(b"".join(frames), places)) + filter_.finish()
    assert FrameBuffer(FRAME_BYTES_MAX).feed(out) == FrameBuffer(FRAME_BYTES_MAX).feed(
        b"".join(expected + swapped)
    )


def test_a_delayed_frame_is_overtaken_and_arrives_when_it_is_due() -> None:
    filter_ = FrameFilter(ArmedFaults([FrameFault(FrameAction.DELAY, "pong", by_ms=2_000)]))
    assert filter_.feed(PONG_FRAME + PING_FRAME, 10.0) == PING_FRAME
    assert filter_.next_due == 12.0
    assert filter_.due(11.9) == b""
    assert not filter_.is_idle
    assert filter_.due(12.0) == PONG_FRAME
    assert filter_.is_idle


def test_a_fault_on_the_nth_frame_counts_all_connections_of_the_link() -> None:
    faults = ArmedFaults([FrameFault(FrameAction.DROP, "ping", count=2, nth=3)])
    one, other = FrameFilter(faults), FrameFilter(faults)
    assert one.feed(PING_FRAME * 2, 0.0) == PING_FRAME * 2
    assert other.feed(PING_FRAME, 0.0) == b""
    assert one.feed(PING_FRAME * 2, 0.0) == PING_FRAME
    assert not faults.is_active
    assert [(armed.seen, armed.acted) for armed in faults.armed.values()] == [(5, 2)]


def test_a_fault_that_is_received_twice_is_armed_once() -> None:
    fault = FrameFault(FrameAction.DROP, "ping", number=1)
    faults = ArmedFaults([fault])
    filter_ = FrameFilter(faults)
    assert filter_.feed(PING_FRAME, 0.0) == b""
    faults.arm([fault])
    assert filter_.feed(PING_FRAME, 0.0) == PING_FRAME
    faults.arm([fault, FrameFault(FrameAction.DROP, "ping", number=2)])
    assert filter_.feed(PING_FRAME, 0.0) == b""


def test_two_faults_of_the_same_frames_act_one_after_the_other() -> None:
    faults = ArmedFaults(
        [FrameFault(FrameAction.DROP, "ping"), FrameFault(FrameAction.DUPLICATE, "ping", number=1)]
    )
    assert FrameFilter(faults).feed(PING_FRAME * 3, 0.0) == PING_FRAME * 3


def test_bytes_that_are_no_frames_pass_unchanged() -> None:
    filter_ = FrameFilter(ArmedFaults([FrameFault(FrameAction.DROP, "ping", count=100)]))
    garbage = SIZES.pack(FRAME_BYTES_MAX + 1, 2) + b"garbage"
    assert filter_.feed(PING_FRAME + garbage, 0.0) == garbage
    assert filter_.feed(PING_FRAME, 0.0) == PING_FRAME


def test_what_waits_is_delivered_when_the_faults_are_disarmed() -> None:
    faults = ArmedFaults(
        [FrameFault(FrameAction.REORDER, "ping"), FrameFault(FrameAction.DELAY, "pong", by_ms=1)]
    )
    filter_ = FrameFilter(faults)
    assert filter_.feed(PING_FRAME + PONG_FRAME + PING_FRAME[:5], 0.0) == b""
    assert filter_.finish() == PONG_FRAME + PING_FRAME + PING_FRAME[:5]
