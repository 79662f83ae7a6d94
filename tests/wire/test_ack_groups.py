"""A group has the ids that its ACKs have when they are decoded alone, and ends at the first that is not plain."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.wire.codec_hot.ack_groups import AckGroup, take_acks
from emulator.wire.codec_hot.consuming import AckCommand, decode_ack, encode_ack
from emulator.wire.frames import Frame, FrameBuffer, frame_of
from emulator.wire.protobuf import VARINT_LOW, varint, varints_from
from tests.wire.strategies import patient

CONSUMER, LEDGER = 3, 700
BORDERS = [127, 128, 16_383, 16_384, 2 * 16_384, 128**3, 128**4, 2**42, 2**62]
"""Numbers at which the size of a varint, or its part beyond the table, changes."""
LARGEST = 2**63 - 1


def frames_of(*commands: bytes) -> list[Frame]:
    return FrameBuffer(10_000_000).feed(b"".join(map(frame_of, commands)))


def take(frames: list[Frame], begin: int = 0) -> AckGroup | None:
    return take_acks(decode_ack(frames[begin][1]), frames, begin)


def ack(entry_id: int, consumer_id: int = CONSUMER, ledger_id: int = LEDGER) -> bytes:
    return encode_ack(consumer_id, [(ledger_id, entry_id, None)])


def ids_of(group: AckGroup | None) -> list[int]:
    assert group is not None
    found = [entry_id for first, last in group.runs for entry_id in range(first, last + 1)]
    assert group.commands == len(found)
    return found


near_borders = st.builds(
    lambda border, offset: max(0, border + offset), st.sampled_from([0, *BORDERS]), st.integers(-3, 3)
)
numbers = near_borders | st.integers(0, LARGEST)
runs = st.builds(lambda first, size: [first + one for one in range(size)], near_borders, st.integers(1, 9))


@patient
@given(st.lists(runs | st.lists(numbers, max_size=3), min_size=1, max_size=6), numbers, numbers)
@example([[*range(40_000)]], 1, 1)
def test_plain_acknowledgements_are_one_group_with_their_ids_in_order(
    parts: list[list[int]], consumer_id: int, ledger_id: int
) -> None:
    entry_ids = [entry_id for part in parts for entry_id in part]
    if not entry_ids:
        return
    frames = frames_of(*[ack(entry_id, consumer_id, ledger_id) for entry_id in entry_ids])
    group = take(frames)
    assert ids_of(group) == entry_ids
    assert group is not None
    assert group.ledger_id == ledger_id


@pytest.mark.parametrize("border", BORDERS)
def test_ids_that_follow_each_other_are_one_run_across_a_border(border: int) -> None:
    frames = frames_of(*[ack(entry_id) for entry_id in range(border - 3, border + 4)])
    assert take(frames) == AckGroup(LEDGER, [(border - 3, border + 3)], 7)


def test_ids_that_do_not_follow_each_other_are_runs_in_their_order() -> None:
    frames = frames_of(*[ack(entry_id) for entry_id in (5, 6, 6, 4, 5, 900, 127, 128, 0)])
    expected = [(5, 6), (6, 6), (4, 5), (900, 900), (127, 128), (0, 0)]
    assert take(frames) == AckGroup(LEDGER, expected, 9)


def test_a_group_begins_with_the_frame_of_its_index() -> None:
    frames = frames_of(*[ack(entry_id) for entry_id in range(10)])
    assert take(frames, 4) == AckGroup(LEDGER, [(4, 9)], 6)


def test_no_id_follows_the_largest_one() -> None:
    frames = frames_of(ack(LARGEST - 1), ack(LARGEST), ack(LARGEST + 1))
    assert take(frames) == AckGroup(LEDGER, [(LARGEST - 1, LARGEST)], 2)
    assert take(frames, 2) is None


def body(fields: bytes) -> bytes:
    return b"\x08\x0a\x52" + varint(len(fields)) + fields


def message_id(fields: bytes) -> bytes:
    return body(b"\x08\x03\x10\x00\x1a" + varint(len(fields)) + fields)


OTHERS = {
    "another consumer": ack(7, consumer_id=4),
    "another ledger": ack(7, ledger_id=701),
    "a ledger of another size": ack(7, ledger_id=7),
    "cumulative": encode_ack(CONSUMER, [(LEDGER, 7, None)], cumulative=True),
    "two entries": encode_ack(CONSUMER, [(LEDGER, 7, None), (LEDGER, 8, None)]),
    "no entry": encode_ack(CONSUMER, []),
    "part of a batch": encode_ack(CONSUMER, [(LEDGER, 7, (3,))]),
    "a batch size": encode_ack(CONSUMER, [(LEDGER, 7, None)], batch_sizes=[3]),
    "a request id": encode_ack(CONSUMER, [(LEDGER, 7, None)], request_id=1),
    "a transaction": encode_ack(CONSUMER, [(LEDGER, 7, None)], txn_least=1, txn_most=1),
    "a validation error": encode_ack(CONSUMER, [(LEDGER, 7, None)], validation_error=2),
    "an entry id in a longer form": message_id(b"\x08\xbc\x05\x10\x87\x00"),
    "a ledger id in a longer form": message_id(b"\x08\xbc\x85\x00\x10\x07"),
    "a partition": message_id(b"\x08\xbc\x05\x10\x07\x18\x01"),
    "an unfinished entry id": message_id(b"\x08\xbc\x05\x10\x87"),
    "an empty entry id": message_id(b"\x08\xbc\x05\x10"),
    "no entry id": message_id(b"\x08\xbc\x05"),
    "a negative entry id": message_id(b"\x08\xbc\x05\x10" + varint(-1)),
    "a field behind the body": ack(7) + b"\xf8\x7f\x01",
    "the ids in another order": message_id(b"\x10\x07\x08\xbc\x05"),
    "another command": b"\x08\x12\x92\x01\x00",
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_group_ends_before_an_acknowledgement_that_is_not_plain(other: str) -> None:
    """Whether its entry id would follow the last one, or not."""
    for before in ([5, 6], [1, 2], [6]):
        frames = frames_of(*[ack(entry_id) for entry_id in before], OTHERS[other], ack(7), ack(8))
        assert take(frames) == AckGroup(LEDGER, [(before[0], before[-1])], len(before))


NOT_PLAIN = set(OTHERS) - {
    "another consumer",
    "another ledger",
    "a ledger of another size",
    "another command",
}


@pytest.mark.parametrize(
    "other", sorted(NOT_PLAIN - {"an unfinished entry id", "an empty entry id", "no entry id"})
)
def test_no_group_begins_with_an_acknowledgement_that_is_not_plain(other: str) -> None:
    assert take(frames_of(OTHERS[other], ack(8))) is None


@patient
@given(
    st.lists(
        st.one_of(
            st.builds(ack, near_borders, st.sampled_from([1, 3, 2**63 + 1, 2**64 - 1]), numbers),
            st.builds(ack, near_borders),
            st.sampled_from(sorted(OTHERS.values())),
            st.tuples(st.builds(ack, near_borders), st.integers(0, 40), st.integers(0, 255)).map(
                lambda damaged: damaged[0][: damaged[1]] + bytes((damaged[2],)) + damaged[0][damaged[1] + 1 :]
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_a_group_contains_is_decoded_alone_as_the_same_plain_acknowledgement(
    commands: list[bytes],
) -> None:
    frames = [(10, command, b"") for command in commands]
    try:
        first = decode_ack(commands[0])
    except ProtocolError:  # an unreadable command never comes to a group
        return
    group = take_acks(first, frames, 0)
    if group is None:
        return
    expected = [
        AckCommand(first.consumer_id, False, ((group.ledger_id, entry_id, None),))
        for entry_id in ids_of(group)
    ]
    assert [decode_ack(command) for command in commands[: group.commands]] == expected


@patient
@given(numbers)
def test_varints_from_a_number_have_one_size_up_to_their_end(number: int) -> None:
    table, rest, end = varints_from(number)
    assert number < end
    for one in {number, (number + end) // 2, end - 1}:
        assert table[one & VARINT_LOW] + rest == varint(one)
        assert len(varint(one)) == len(varint(number))
