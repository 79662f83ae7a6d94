"""Payloads are compressed, split into the messages of a batch, and rebuilt without some of them."""

from __future__ import annotations

import sys
import types
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.model.values import KeyedMessage, MessageChunk
from emulator.wire import payloads
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import read_entry, scan_entry
from emulator.wire.payloads import (
    MESSAGES_MAX,
    decompress,
    last_index,
    read_keys,
    split_batch,
    with_messages,
)
from tests.wire.strategies import damaged, name, patient, refusal


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)  # type: ignore[arg-type]


def batch_payload(*messages: tuple[str | None, bytes]) -> bytes:
    parts = []
    for key, payload in messages:
        single = pb.SingleMessageMetadata(partition_key=key, payload_size=len(payload)).SerializeToString()
        parts += [len(single).to_bytes(4, "big"), single, payload]
    return b"".join(parts)


def batch(*messages: tuple[str | None, bytes], compression: int = 0, **fields: object) -> bytes:
    payload = batch_payload(*messages)
    described = metadata(num_messages_in_batch=len(messages), **fields)
    if compression:
        described.compression, described.uncompressed_size = compression, len(payload)  # type: ignore[assignment]
        payload = zlib.compress(payload)
    return build_entry(described, payload)


@patient
@given(st.lists(st.tuples(name, st.binary(max_size=20)), min_size=1, max_size=5))
def test_a_batch_is_split_into_its_messages(messages: list[tuple[str, bytes]]) -> None:
    info = scan_entry(batch(*messages))
    found = [
        (single.partition_key, payload) for single, payload in split_batch(info, batch_payload(*messages))
    ]
    assert found == messages


@patient
@given(
    damaged(
        st.lists(st.tuples(name, st.binary(max_size=20)), max_size=5).map(lambda batch: batch_payload(*batch))
    )
)
def test_damaged_batches_raise_nothing_but_protocol_errors(payload: bytes) -> None:
    three = scan_entry(build_entry(metadata(num_messages_in_batch=3), b""))
    refusal(lambda: list(split_batch(three, payload)))


def test_a_batch_with_fewer_messages_than_it_declares_is_damaged() -> None:
    two = scan_entry(build_entry(metadata(num_messages_in_batch=2), b""))
    messages = split_batch(two, batch_payload(("k", b"only one")))
    assert next(messages)[1] == b"only one"
    with pytest.raises(ProtocolError, match="fewer"):
        next(messages)


def test_payloads_are_decompressed() -> None:
    assert decompress(pb.NONE, b"abc", 0) == b"abc"
    assert decompress(pb.ZLIB, zlib.compress(b"abc" * 1_000), 3_000) == b"abc" * 1_000


@pytest.mark.parametrize(
    ("compression", "payload", "size"),
    [
        (pb.ZLIB, b"garbage", 10),
        (pb.ZLIB, zlib.compress(b"abc"), 2),
        (pb.ZLIB, zlib.compress(b"abc"), 4),
        (pb.ZLIB, zlib.compress(bytes(10_000_000)), 10),
        (99, b"", 0),
    ],
)
def test_a_payload_that_cannot_be_decompressed_is_an_error(
    compression: int, payload: bytes, size: int
) -> None:
    with pytest.raises(ProtocolError):
        decompress(compression, payload, size)


LIBRARIES = [(pb.LZ4, "lz4.block"), (pb.ZSTD, "zstandard"), (pb.SNAPPY, "snappy")]


@pytest.mark.parametrize(("compression", "module"), LIBRARIES)
def test_a_missing_library_is_named(compression: int, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], types.ModuleType("empty"))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ProtocolError, match=f"install {module.partition('.')[0]}"):
        decompress(compression, b"x", 1)


# Compaction.


def test_keys_and_deletions() -> None:
    assert read_keys(build_entry(metadata(partition_key="a"), b"x")).messages == (KeyedMessage("ta", False),)
    assert read_keys(build_entry(metadata(partition_key="a"), b"")).messages == (KeyedMessage("ta", True),)
    null = build_entry(metadata(partition_key="a", null_value=True), b"x")
    assert read_keys(null).messages == (KeyedMessage("ta", True),)
    assert read_keys(build_entry(metadata(), b"x")).messages == (KeyedMessage(None, False),)
    encoded = build_entry(metadata(partition_key="a", partition_key_b64_encoded=True), b"x")
    assert read_keys(encoded).messages == (KeyedMessage("ba", False),)


def test_the_keys_of_a_batch_are_read_unless_it_is_encrypted() -> None:
    data = batch(("a", b"1"), (None, b"2"), ("b", b""), compression=pb.ZLIB)
    assert read_keys(data).messages == (
        KeyedMessage("ta", False),
        KeyedMessage(None, False),
        KeyedMessage("tb", True),
    )
    sealed = batch(("a", b"1"), encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")])
    assert read_keys(sealed).messages is None
    damaged = build_entry(metadata(num_messages_in_batch=3), b"nothing of the kind")
    assert read_keys(damaged).messages is None


@pytest.mark.parametrize(
    "claims", [{"num_messages_in_batch": MESSAGES_MAX + 1}, {"uncompressed_size": 2**31}]
)
def test_a_batch_that_claims_to_be_enormous_is_not_parsed(
    claims: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged size costs nothing: 2 MB of zlib are 2 GB, and a million empty messages take seconds."""
    monkeypatch.setattr(payloads, "decompress", None)
    fields = {"num_messages_in_batch": 1, "compression": pb.ZLIB, "uncompressed_size": 5} | claims
    data = build_entry(metadata(**fields), zlib.compress(b"hello"))
    assert read_keys(data).messages is None
    assert last_index(data) == fields["num_messages_in_batch"] - 1


def test_a_chunk_names_its_message() -> None:
    fields = {"partition_key": "a", "uuid": "p-1", "num_chunks_from_msg": 2}
    first, last = (build_entry(metadata(chunk_id=number, **fields), b"") for number in range(2))
    assert read_keys(first) == ((KeyedMessage("ta", False),), MessageChunk("p\0p-1", False))
    assert read_keys(last).chunk == MessageChunk("p\0p-1", True)


@pytest.mark.parametrize("compression", [0, pb.ZLIB])
def test_a_remaining_message_keeps_its_index_and_its_bytes(compression: int) -> None:
    data = with_messages(batch(("a", b"1"), ("b", b"2"), ("c", b"3"), compression=compression), {1})
    info = read_entry(data, verify=True)
    payload = decompress(info.compression, data[info.payload_offset :], info.uncompressed_size)
    messages = list(split_batch(info, payload))
    assert [(single.compacted_out, value) for single, value in messages] == [
        (True, b""),
        (False, b"2"),
        (True, b""),
    ]
    assert [message.is_gone for message in read_keys(data).messages or ()] == [True, False, True]
    assert last_index(data) == 1
    again = with_messages(data, {1})
    assert read_keys(again) == read_keys(data)


def test_an_entry_that_is_no_batch_has_no_last_index() -> None:
    assert last_index(build_entry(metadata(), b"x")) == -1
    assert last_index(batch(("a", b"1"))) == 0
