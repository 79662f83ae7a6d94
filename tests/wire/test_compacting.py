"""The fields of an entry that compaction reads, and a batch without some of its messages."""

from __future__ import annotations

import zlib

import pytest

from emulator.wire import compacting
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.compacting import MESSAGES_MAX, KeyedMessage, last_index, read_keys, with_messages
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import ChunkPiece, read_entry
from emulator.wire.payloads import decompress, split_batch


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)  # type: ignore[arg-type]


def batch(*messages: tuple[str | None, bytes], compression: int = 0, **fields: object) -> bytes:
    payload = b""
    for key, value in messages:
        single = pb.SingleMessageMetadata(payload_size=len(value), partition_key=key)
        head = single.SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + value
    said = metadata(num_messages_in_batch=len(messages), **fields)
    if compression:
        said.compression, said.uncompressed_size = compression, len(payload)  # type: ignore[assignment]
        payload = zlib.compress(payload)
    return build_entry(said, payload)


def test_keys_and_deletions() -> None:
    assert read_keys(build_entry(metadata(partition_key="a"), b"x")).messages == (KeyedMessage("ta", False),)
    assert read_keys(build_entry(metadata(partition_key="a"), b"")).messages == (KeyedMessage("ta", True),)
    null = build_entry(metadata(partition_key="a", null_value=True), b"x")
    assert read_keys(null).messages == (KeyedMessage("ta", True),)
    assert read_keys(build_entry(metadata(), b"x")).messages == (KeyedMessage(None, False),)
    encoded = build_entry(metadata(partition_key="a", partition_key_b64_encoded=True), b"x")
    assert read_keys(encoded).messages == (KeyedMessage("ba", False),)


def test_a_batch_is_looked_into_an_encrypted_one_is_not() -> None:
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


@pytest.mark.parametrize("said", [{"num_messages_in_batch": MESSAGES_MAX + 1}, {"uncompressed_size": 2**31}])
def test_a_batch_that_says_it_is_enormous_is_not_looked_into(
    said: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged size costs nothing: 2 MB of zlib are 2 GB, and a million empty messages take seconds."""
    monkeypatch.setattr(compacting, "decompress", None)
    fields = {"num_messages_in_batch": 1, "compression": pb.ZLIB, "uncompressed_size": 5} | said
    data = build_entry(metadata(**fields), zlib.compress(b"hello"))
    assert read_keys(data).messages is None
    assert last_index(data) == fields["num_messages_in_batch"] - 1


def test_a_piece_of_a_message_names_its_message() -> None:
    said = {"partition_key": "a", "uuid": "p-1", "num_chunks_from_msg": 2}
    first, last = (build_entry(metadata(chunk_id=number, **said), b"") for number in range(2))
    assert read_keys(first) == ((KeyedMessage("ta", False),), ChunkPiece("p\0p-1", False))
    assert read_keys(last).piece == ChunkPiece("p\0p-1", True)


@pytest.mark.parametrize("compression", [0, pb.ZLIB])
def test_what_stays_keeps_its_index_and_its_bytes(compression: int) -> None:
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


def test_the_last_message_of_what_is_no_batch_has_no_index() -> None:
    assert last_index(build_entry(metadata(), b"x")) == -1
    assert last_index(batch(("a", b"1"))) == 0
