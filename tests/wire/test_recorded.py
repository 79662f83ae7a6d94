"""Bytes that an unmodified client (pulsar-client 3.13, C++ core 4.2.0) sent."""

from __future__ import annotations

import pytest

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.consuming import AckCommand, decode_ack, decode_flow, encode_ack, encode_flow
from emulator.wire.codec_hot.publishing import SendCommand, decode_send, send_frame
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import read_entry, read_metadata, scan_entry
from emulator.wire.payloads import decompress, split_batch
from emulator.wire.protobuf import decode_command

CONNECT = "080212210a1150756c7361722d4350502d76342e322e3020142a046e6f6e65520408011001"
PRODUCER = (
    "08052a340a1d70657273697374656e743a2f2f7075626c69632f64656661756c742f74"
    "100118012207626174636865722800400048015000"
)
SEND = "0806320408001001"
SEND_BATCH = "08063206080110001803"
ACK_OF_TWO = "080a5212080010001a0508ac0210001a0508ac021001"
FLOW = "080b5a05080010e807"

PLAIN_ENTRY = "0e01253038fa000000110a06737475622d30100018f9ac88eb9f346f6e65"
KEYED_ENTRY = "0e01b52b8aae000000220a06737475622d30100118faac88eb9f3422060a016112016232016b60079201016f74776f"
COMPRESSED_BATCH = (
    "0e01e1002929000000190a0762617463686572100018fcac88eb9f3440024880035803"
    "789c6360606091a87060484a2c49ce30a03fc900b19f11cc33a43f09b59f09cc33a23f0900a9d48674"
)

hex_ = bytes.fromhex


def test_connect_and_producer_are_read() -> None:
    connect = decode_command(hex_(CONNECT)).connect
    assert (connect.client_version, connect.protocol_version) == ("Pulsar-CPP-v4.2.0", 20)
    assert connect.feature_flags.supports_broker_entry_metadata
    producer = decode_command(hex_(PRODUCER)).producer
    assert (producer.topic, producer.producer_name) == ("persistent://public/default/t", "batcher")
    assert not producer.HasField("queue_priority")


def test_hot_commands_are_read() -> None:
    assert decode_send(hex_(SEND)) == SendCommand(0, 1)
    assert decode_send(hex_(SEND_BATCH)) == SendCommand(1, 0)
    assert decode_ack(hex_(ACK_OF_TWO)) == AckCommand(0, False, ((300, 0, None), (300, 1, None)))
    assert decode_flow(hex_(FLOW)) == (0, 1_000)


def test_ours_are_the_same_bytes() -> None:
    assert send_frame(0, 1, data=b"")[8:].hex() == SEND
    assert send_frame(1, 0, 3, data=b"")[8:].hex() == SEND_BATCH
    assert encode_ack(0, [(300, 0, None), (300, 1, None)]).hex() == ACK_OF_TWO
    assert encode_flow(0, 1_000).hex() == FLOW


@pytest.mark.parametrize("entry", [PLAIN_ENTRY, KEYED_ENTRY, COMPRESSED_BATCH])
def test_entries_are_sound_and_ours_would_be_the_same_bytes(entry: str) -> None:
    data = hex_(entry)
    info = scan_entry(data, verify=True)
    assert build_entry(read_metadata(data), data[info.payload_offset :]) == data


def test_keys_and_times_are_found() -> None:
    info = read_entry(hex_(KEYED_ENTRY))
    assert (info.producer_name, info.sequence_id, info.publish_time_ms) == ("stub-0", 1, 1_795_252_426_362)
    assert (info.partition_key, info.ordering_key, info.event_time_ms) == ("k", b"o", 7)


def test_a_compressed_batch_opens() -> None:
    data = hex_(COMPRESSED_BATCH)
    info = read_entry(data)
    assert (info.is_batch, info.num_messages, info.compression) == (True, 3, pb.ZLIB)
    payload = decompress(info.compression, data[info.payload_offset :], info.uncompressed_size)
    assert [message for _, message in split_batch(info, payload)] == [b"batch%d" % i * 20 for i in range(3)]
