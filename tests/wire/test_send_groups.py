"""A group has the columns that its SENDs have when they are decoded alone, and ends at the first that is not plain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import SendCommand, decode_send, send_frame
from emulator.wire.codec_hot.send_groups import PlainSends, SendGroup
from emulator.wire.command_types import CommandType
from emulator.wire.entry import build_entry, plain_entry
from emulator.wire.entry_layout import assemble
from emulator.wire.frames import Frame, FrameBuffer, command_bytes, frame_of
from emulator.wire.message_metadata import REMEMBERED_REST_BYTES_MAX, EntryInfo, is_plain_rest, scan_entry
from emulator.wire.protobuf import length_delimited, tag, varint
from tests.wire.strategies import damaged, metadatas, name, patient, text, u32, u64

ENTRY_BYTES_MAX = 5_000
NAME = b"\x0a\x01p\x10"
"""The beginning of the metadata of producer p, up to its sequence id."""


def frames_of(*sends: bytes) -> list[Frame]:
    return FrameBuffer(10_000_000).feed(b"".join(sends))


def take(frames: list[Frame], above: int = -1, producer: str = "p") -> SendGroup | None:
    return PlainSends(1, producer).take(frames, 0, above=above, entry_bytes_max=ENTRY_BYTES_MAX)


def plain(sequence_id: int, payload: bytes = b"x", time_ms: int = 1) -> bytes:
    return send_frame(1, sequence_id, data=plain_entry("p", sequence_id, time_ms, payload))


def with_metadata(metadata: bytes, sequence_id: int = 5) -> bytes:
    return send_frame(1, sequence_id, data=assemble(metadata, b"x"))


plain_metadatas = st.builds(
    pb.MessageMetadata,
    producer_name=st.just("p"),
    sequence_id=st.integers(0, 2**63 - 1),
    publish_time=st.integers(0, 2**63 - 1),
    properties=st.lists(st.builds(pb.KeyValue, key=text, value=text), max_size=2),
    partition_key=st.none() | text,
    uncompressed_size=st.none() | u32,
    event_time=st.none() | u64,
    schema_version=st.none() | st.binary(min_size=1, max_size=8),
    ordering_key=st.none() | st.binary(max_size=4),
    null_value=st.none() | st.booleans(),
)


@patient
@given(
    st.lists(st.tuples(st.integers(1, 200) | st.just(1), plain_metadatas, st.binary(max_size=20)), min_size=1)
)
@example([(1, pb.MessageMetadata(producer_name="p", publish_time=7), b"")] * 300)
def test_plain_messages_are_one_group_with_the_columns_of_single_ones(
    messages: list[tuple[int, pb.MessageMetadata, bytes]],
) -> None:
    sequence_id, sends = -1, []
    for step, metadata, payload in messages:
        sequence_id += step
        metadata.sequence_id = sequence_id
        sends.append(send_frame(1, sequence_id, data=build_entry(metadata, payload)))
    frames = frames_of(*sends)
    group = take(frames)
    assert group is not None
    assert group.entries == [entry for _, _, entry in frames]
    assert group.sequence_ids == [decode_send(command).sequence_id for _, command, _ in frames]


@patient
@given(st.lists(st.one_of(metadatas, plain_metadatas), min_size=1, max_size=6), st.data())
def test_what_a_group_contains_is_decoded_alone_as_the_same_plain_message(
    many: list[pb.MessageMetadata], data: st.DataObject
) -> None:
    """Whatever the group takes, damaged bytes included, has nothing that the broker would have to look at."""
    sends = [send_frame(1, one.sequence_id, data=build_entry(one, b"payload")) for one in many]
    frames = frames_of(*sends)
    index = data.draw(st.integers(0, len(frames) - 1))
    type_, command, entry = frames[index]
    metadata = many[index].SerializeToString()
    frames[index] = data.draw(
        st.sampled_from(
            [
                (type_, data.draw(damaged(st.just(command))), entry),
                (type_, command, data.draw(damaged(st.just(entry)))),
                (type_, command, assemble(data.draw(damaged(st.just(metadata))), b"payload")),
            ]
        )
    )
    group = take(frames, producer=many[0].producer_name)
    for (_, command, entry), sequence_id in zip(frames, group.sequence_ids if group else (), strict=False):
        assert decode_send(command) == SendCommand(1, sequence_id)
        info = scan_entry(entry, verify=True)
        assert info == EntryInfo(
            many[0].producer_name, sequence_id, info.publish_time_ms, info.payload_offset
        )


def damaged_checksum() -> bytes:
    frame = bytearray(plain(5))
    frame[-1] ^= 1
    return bytes(frame)


def extended(name: str) -> Callable[[], bytes]:
    """A message with one more field, by its name in MessageMetadata."""
    values = {"replicate_to": ["eu"], "encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")]}
    value = values.get(name, "eu" if name in ("replicated_from", "uuid") else 1)

    def build() -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=1, **{name: value})  # type: ignore[arg-type]
        return send_frame(1, 5, data=build_entry(metadata, b"x"))

    return build


REST = b"\x18\x01"
OTHERS: dict[str, Callable[[], bytes]] = {
    **{
        name: extended(name)
        for name in (
            "replicated_from", "replicate_to", "num_messages_in_batch", "encryption_keys", "deliver_at_time",
            "marker_type", "txnid_least_bits", "txnid_most_bits", "highest_sequence_id", "uuid",
            "num_chunks_from_msg", "chunk_id", "total_chunk_msg_size",
        )
    },
    "another command": lambda: frame_of(command_bytes(CommandType.FLOW, b"\x08\x01\x10\x05")),
    "another producer": lambda: send_frame(2, 5, data=plain_entry("p", 5, 1, b"x")),
    "another producer's name": lambda: send_frame(1, 5, data=plain_entry("q", 5, 1, b"x")),
    "a longer name": lambda: send_frame(1, 5, data=plain_entry("pp", 5, 1, b"x")),
    "another sequence id in the metadata": lambda: send_frame(1, 5, data=plain_entry("p", 6, 1, b"x")),
    "the number of messages in the command": lambda: send_frame(1, 5, 2, data=plain_entry("p", 5, 1, b"x")),
    "a transaction in the command": lambda: send_frame(
        1, 5, data=plain_entry("p", 5, 1, b"x"), txn_least=0, txn_most=0
    ),
    "a predecessor": lambda: send_frame(1, 5, data=plain_entry("p", 5, 1, b"x"), previous_entry=3),
    "a longer form of the command": lambda: frame_of(
        command_bytes(CommandType.SEND, b"\x08\x01\x10\x85\x00"), plain_entry("p", 5, 1, b"x")
    ),
    "a longer form of the metadata": lambda: with_metadata(NAME + b"\x85\x00" + REST),
    "a wrong checksum": damaged_checksum,
    "no checksum": lambda: send_frame(1, 5, data=plain_entry("p", 5, 1, b"x")[6:]),
    "broker metadata": lambda: send_frame(
        1, 5, data=b"\x0e\x02\x00\x00\x00\x00" + plain_entry("p", 5, 1, b"x")
    ),
    "no entry": lambda: send_frame(1, 5, data=b""),
    "a short entry": lambda: send_frame(1, 5, data=b"\x0e\x01\x00\x00"),
    "too large an entry": lambda: plain(5, bytes(ENTRY_BYTES_MAX)),
    "no publish time": lambda: with_metadata(NAME + b"\x05"),
    "a name after the name": lambda: with_metadata(NAME + b"\x05" + REST + length_delimited(1, b"q")),
    "an empty name after the name": lambda: with_metadata(NAME + b"\x05" + REST + length_delimited(1, b"")),
    "a sequence id after the sequence id": lambda: with_metadata(NAME + b"\x05" + REST + b"\x10\x09"),
    "an empty origin": lambda: with_metadata(NAME + b"\x05" + REST + length_delimited(5, b"")),
    "an empty batch": lambda: with_metadata(NAME + b"\x05" + REST + tag(11) + b"\x00"),
    "a key that is no text": lambda: with_metadata(NAME + b"\x05" + REST + length_delimited(6, b"\xff\xfe")),
    "a truncated field": lambda: with_metadata(NAME + b"\x05" + REST + b"\x22\x09k"),
    "unreadable properties": lambda: with_metadata(NAME + b"\x05" + REST + length_delimited(4, b"\xff")),
    "an unknown field": lambda: with_metadata(NAME + b"\x05" + REST + tag(99) + b"\x01"),
    "a sequence id above the maximum": lambda: send_frame(
        1, 2**63 + 5, data=plain_entry("p", 2**63 + 5, 1, b"x")
    ),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_another_send_ends_the_group_and_begins_none(other: str) -> None:
    found = take(frames_of(plain(4), OTHERS[other](), plain(6)))
    assert found is not None
    assert found.sequence_ids == [4]
    assert take(frames_of(OTHERS[other]())) is None


@pytest.mark.parametrize("sequence_id", [3, 4])
def test_a_sequence_id_that_does_not_ascend_ends_the_group(sequence_id: int) -> None:
    found = take(frames_of(plain(4), plain(sequence_id), plain(6)))
    assert found is not None
    assert found.sequence_ids == [4]
    assert take(frames_of(plain(4), plain(5)), above=4) is None


@pytest.mark.parametrize("last", [127, 16_383, 2**21 - 1, 2**63 - 1])
def test_no_malformed_command_is_taken_for_the_one_after_the_last(last: int) -> None:
    """The next sequence id takes one more byte than the size of the command before allows."""
    head = command_bytes(CommandType.SEND, b"\x08\x01\x10" + varint(last))[: -len(varint(last))]
    malformed = frame_of(head + varint(last + 1), plain_entry("p", last + 1, 1, b"x"))
    found = take(frames_of(plain(last), malformed))
    assert found is not None
    assert found.sequence_ids == [last]


def test_metadata_that_ends_within_its_beginning_is_not_plain() -> None:
    """The size of the metadata may be any number."""
    entry = bytearray(plain_entry("p", 5, 1, b"x"))
    for size in (0, 3, 5, 6, len(entry), 2**32 - 1):
        forged = assemble(bytes(entry[10:]), b"")
        forged = forged[:6] + size.to_bytes(4) + forged[10:]
        assert take(frames_of(send_frame(1, 5, data=forged))) is None


def test_no_large_metadata_is_kept_for_the_next_message() -> None:
    """A client may have 100,000 producers, and chooses the keys and properties of their messages."""
    sends = PlainSends(1, "p")
    for size in (1, REMEMBERED_REST_BYTES_MAX, 100_000):
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=size, publish_time=1, partition_key="k" * size
        )
        frames = frames_of(send_frame(1, size, data=build_entry(metadata, b"x")))
        assert sends.take(frames, 0, above=0, entry_bytes_max=10**6) is not None
        assert len(sends._plain_rest) <= REMEMBERED_REST_BYTES_MAX


@patient
@given(st.binary(max_size=30) | metadatas.map(pb.MessageMetadata.SerializeToString), name, u64)
@example(b"\x18\x01", "p", 0)
def test_a_plain_rest_completes_any_name_and_sequence_id(
    rest: bytes, producer_name: str, sequence_id: int
) -> None:
    if not is_plain_rest(rest):
        return
    metadata = length_delimited(1, producer_name.encode()) + b"\x10" + varint(sequence_id) + rest
    info = scan_entry(assemble(metadata, b""))
    expected = EntryInfo(producer_name, sequence_id, info.publish_time_ms, info.payload_offset)
    assert info == expected
