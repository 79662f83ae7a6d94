"""Names and record batches as they are stored in Kafka, and the meaning of its errors."""

from __future__ import annotations

import contextlib
import time

import kafka.errors
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from emulator.errors import StorageError
from emulator.storage.kafka import names
from emulator.storage.kafka.cluster import storage_error
from emulator.storage.kafka.connection import NoResponse
from emulator.storage.kafka.records import (
    BYTES_BEFORE,
    ProducedRecord,
    ProducerId,
    decode_batches,
    encode_entries,
    encode_records,
)

PRODUCER = ProducerId(4711, 12)
CHECKED_FROM = 21
"""Offset in a batch from which its checksum counts."""


@given(st.text())
def test_any_name_can_be_read_back_from_a_legal_one(name: str):
    """And no two names have the same encoding."""
    written = names.encode(name)
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in written)
    assert names.decode(written) == name


def test_names_of_topics():
    prefix = names.region_prefix("geoemu", "us-east")
    topic = names.log_topic(prefix, 12, "persistent://public/default/orders.v1")
    assert topic == "geoemu.us-east.12.persistent_3a_2f_2fpublic_2fdefault_2forders_2ev1"
    assert names.keys_topic(prefix) == "geoemu.us-east.keys"
    assert names.ledger_id_of(prefix, topic) == 12
    for other in (
        "geoemu.us-east.keys",
        "geoemu.us-east2.12.x",
        "other",
        "geoemu.us-east.12",
        "geoemu.us-east.x.y",
    ):
        assert names.ledger_id_of(prefix, other) is None


def test_a_name_too_long_for_kafka_is_cut():
    prefix = names.region_prefix("geoemu", "eu")
    long = [names.log_topic(prefix, 1, "x" * 300 + end) for end in "ab"]
    assert [len(topic) for topic in long] == [names.NAME_LENGTH_MAX] * 2
    assert long[0] != long[1]
    assert names.ledger_id_of(prefix, long[0]) == 1


@given(
    st.lists(st.binary(max_size=200) | st.integers(0, 20_000).map(bytes), min_size=1, max_size=100),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
)
def test_entries_are_encoded_as_kafka_python_does_it(entries: list[bytes], sequence: int, bytes_before: int):
    ours = encode_entries(PRODUCER, sequence, entries, bytes_before)
    (batch,) = decode_batches(ours, "here")
    assert [entry.data for entry in batch.entries] == entries
    assert batch.holds_entries
    assert batch.bytes_before == bytes_before
    timestamp = int.from_bytes(ours[27:35], "big")
    assert abs(timestamp - time.time() * 1000) < 60_000
    builder = DefaultRecordBatchBuilder(2, 0, False, *PRODUCER, sequence, 1 << 30)
    for index, entry in enumerate(entries):
        headers = [] if index else [(BYTES_BEFORE, b"%d" % bytes_before)]
        builder.append(index, timestamp, None, entry, headers)
    assert ours == bytes(builder.build())


def test_a_batch_cut_short_is_left_out_and_a_garbled_one_is_refused():
    """A fetch may end in the middle of one; but changed bytes are never served (S8)."""
    whole = encode_entries(PRODUCER, 0, [b"a", b"b"], 0)
    assert len(list(decode_batches(whole + whole[:-1], "here"))) == 1
    garbled = bytearray(whole)
    garbled[-2] ^= 1
    with pytest.raises(StorageError, match="here holds a damaged record batch"):
        list(decode_batches(bytes(garbled), "here"))


def test_a_record_with_a_key_is_no_entry():
    (batch,) = decode_batches(encode_records(PRODUCER, 0, [ProducedRecord(names.FENCE_KEY, b"{}")]), "here")
    assert not batch.holds_entries
    assert batch.entries == []


@pytest.mark.parametrize(
    ("error", "definite"),
    [
        (NoResponse("closed"), False),
        (kafka.errors.RequestTimedOutError(), False),
        (kafka.errors.TopicAuthorizationFailedError(), True),
    ],
)
def test_a_failed_request_certainly_had_no_effect_only_if_kafka_rejected_it_for_good(
    error: Exception, definite: bool
):
    assert storage_error(error).definite is definite


@given(st.binary(min_size=1, max_size=200))
def test_a_batch_that_no_producer_wrote_is_reported_as_damaged(content: bytes):
    """Also with a correct checksum: the library's own errors do not leave the storage backend."""
    batch = bytearray(encode_entries(PRODUCER, 0, [b"a"], 0))
    for begin in (0, CHECKED_FROM):
        damaged = bytearray(batch[:begin] + content + batch[begin + len(content) :])
        damaged[CHECKED_FROM - 4 : CHECKED_FROM] = crc32c(bytes(damaged[CHECKED_FROM:])).to_bytes(4, "big")
        with contextlib.suppress(StorageError):
            list(decode_batches(bytes(damaged), "topic"))
