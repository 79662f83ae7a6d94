"""Messages as the tap and the history see them."""

from __future__ import annotations

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.observing import read_messages


def entry_with_key(text: str) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, partition_key=text, partition_key_b64_encoded=True
    )
    return build_entry(metadata, b"payload")


def test_a_key_in_base64_is_observed_as_bytes_and_a_key_that_only_claims_to_be_as_text() -> None:
    _, (message,) = read_messages(entry_with_key("YWI="))
    assert message.key == b"ab"
    _, (message,) = read_messages(entry_with_key("a"))
    assert message.key == "a"
