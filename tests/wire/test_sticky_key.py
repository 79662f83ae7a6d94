"""The key of an entry, whatever else its metadata contains."""

from __future__ import annotations

import pytest

from emulator.core.dispatch.consistent_hash import KEY_BYTES_MAX, hash_of
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import scan_entry
from emulator.wire.sticky_key import sticky_key

NOT_TEXT = b"\xff\xfe\xfd\xfc"


def entry(**fields: object) -> bytes:
    return build_entry(pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields), b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, b"p-7"),
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": ""}, b""),
        ({"partition_key": "a2V5", "partition_key_b64_encoded": True}, b"key"),
        ({"partition_key": "no base64", "partition_key_b64_encoded": True}, b"no base64"),
        ({"partition_key": "k", "ordering_key": b"\xff\x00"}, b"\xff\x00"),
    ],
)
def test_the_key_of_an_entry(fields: dict[str, object], key: bytes) -> None:
    assert sticky_key(entry(**fields)) == key


def test_a_text_that_is_none_elsewhere_in_the_metadata_does_not_stop_a_subscription() -> None:
    """Admission accepts such a property as it was sent: the dispatcher must not decode it."""
    data = entry(partition_key="k", properties=[pb.KeyValue(key="a", value="ZZZZ")])
    at = data.index(b"ZZZZ")
    damaged = b"\x0e\x01" + bytes(4) + data[6:at] + NOT_TEXT + data[at + 4 :]
    scan_entry(damaged)
    assert sticky_key(damaged) == b"k"


def test_a_key_of_any_length_is_hashed_at_once_and_not_kept() -> None:
    huge = [bytes([number]) * 4_000_000 for number in range(3)]
    assert len({hash_of(key) for key in huge}) == 3
    assert hash_of(huge[0]) == hash_of(bytes(4_000_000))
    assert hash_of(b"a" * KEY_BYTES_MAX) != hash_of(b"a" * (KEY_BYTES_MAX + 1))
