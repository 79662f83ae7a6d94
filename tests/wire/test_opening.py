"""The requests and responses of opening a producer that are read and written by hand are those of `commands`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ProtocolError
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.opening import (
    decode_close_producer,
    decode_create_producer,
    decode_lookup,
    decode_partition_metadata,
    encode_lookup_connect,
    encode_partitions,
    encode_producer_ready,
    encode_success,
)
from emulator.wire.commands.connections import (
    Lookup,
    PartitionMetadata,
    Success,
    lookup_connect,
    partitions_response,
)
from emulator.wire.commands.producers import CloseProducer, CreateProducer, ProducerSuccess
from emulator.wire.frames import SIZES

READERS: list[tuple[Callable[[bytes], Any], Callable[[bytes], Any]]] = [
    (decode_lookup, Lookup.read),
    (decode_partition_metadata, PartitionMetadata.read),
    (decode_close_producer, CloseProducer.read),
    (decode_create_producer, CreateProducer.read),
]
"""(read by hand, read by the table of commands)."""

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
topics = st.one_of(st.just("persistent://public/default/orders"), st.text(max_size=150))
flags = st.none() | st.booleans()


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """The requests of any client: with any optional fields, complete or not."""
    kind = draw(st.sampled_from(["lookupTopic", "partitionMetadata", "close_producer", "producer"]))
    fields: dict[str, Any] = {"request_id": draw(numbers)}
    if kind == "close_producer":
        fields["producer_id"] = draw(numbers)
        fields["assignedBrokerServiceUrl"] = draw(st.none() | st.text(max_size=5))
    else:
        fields["topic"] = draw(topics)
        fields["original_principal"] = draw(st.none() | st.text(max_size=5))
    if kind == "lookupTopic":
        fields["authoritative"] = draw(flags)
        fields["advertised_listener_name"] = draw(st.none() | st.text(max_size=5))
    if kind == "partitionMetadata":
        fields["metadata_auto_creation_enabled"] = draw(flags)
    if kind == "producer":
        del fields["original_principal"]
        fields["producer_id"] = draw(numbers)
        fields["producer_name"] = draw(st.none() | st.text(max_size=5))
        fields["encrypted"] = draw(flags)
        fields["epoch"] = draw(st.none() | numbers)
        fields["user_provided_producer_name"] = draw(flags)
        fields["producer_access_mode"] = draw(st.none() | st.integers(0, 3))
        fields["topic_epoch"] = draw(st.none() | numbers)
    types = {"lookupTopic": 23, "partitionMetadata": 21, "close_producer": 15, "producer": 5}
    present = {name: value for name, value in fields.items() if value is not None}
    return pb.BaseCommand(type=types[kind], **{kind: present}).SerializeToString()


def outcome(read: Callable[[bytes], Any], command: bytes) -> object:
    """What a reader returns; of an error, its type and whether it closes the connection."""
    try:
        return read(command)
    except ProtocolError as problem:
        return ProtocolError, problem.closes_connection


@given(command=requests())
def test_requests_are_read_as_by_the_table(command: bytes) -> None:
    type_ = command[1]
    by_hand, by_table = READERS[{23: 0, 21: 1, 15: 2, 5: 3}[type_]]
    assert by_hand(command) == by_table(command)


@given(command=requests(), data=st.data())
def test_damaged_requests_are_read_as_by_the_table(command: bytes, data: st.DataObject) -> None:
    """One byte changed, inserted or removed, or the end cut off: the same command, or an error in both readers."""
    type_ = command[1]
    at = data.draw(st.integers(0, len(command) - 1))
    new = data.draw(st.binary(max_size=2))
    damaged = data.draw(st.sampled_from([command[:at], command[:at] + new + command[at + 1 :]]))
    if damaged[:2] != command[:2]:
        return  # the table would not call this reader
    by_hand, by_table = READERS[{23: 0, 21: 1, 15: 2, 5: 3}[type_]]
    assert outcome(by_hand, damaged) == outcome(by_table, damaged)


def test_the_requests_of_a_java_client_do_not_need_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request ids begin at a random number of 63 bits."""
    for number in (1, 2**63 - 1):
        for kind, fields in (
            ("lookupTopic", {"topic": "a", "authoritative": False}),
            ("partitionMetadata", {"topic": "a", "metadata_auto_creation_enabled": True}),
            ("close_producer", {"producer_id": 1}),
            ("producer", {"topic": "a", "producer_id": 1, "encrypted": False}),
        ):
            type_ = pb.BaseCommand.DESCRIPTOR.fields_by_name[kind].number
            body: dict[str, Any] = {"request_id": number, **fields}
            command = pb.BaseCommand(type=type_, **{kind: body}).SerializeToString()
            by_hand, by_table = READERS[{23: 0, 21: 1, 15: 2, 5: 3}[type_]]
            expected = by_table(command)
            by_hand(command)  # remembers the options of a producer
            with monkeypatch.context() as patched:
                patched.delattr("emulator.wire.commands.spec.decode_command")
                assert by_hand(command) == expected


def test_fields_that_a_producer_repeats_take_their_last_value() -> None:
    command = pb.BaseCommand(
        type=5, producer=pb.CommandProducer(topic="a", producer_id=1, request_id=2)
    ).SerializeToString()
    for repeated in (b"\x0a\x01b", b"\x10\x07", b"\x18\x07"):
        size = command[3] + len(repeated)
        twice = command[:3] + bytes((size,)) + command[4:] + repeated
        assert decode_create_producer(twice) == CreateProducer.read(twice) != decode_create_producer(command)


@pytest.mark.parametrize(("by_hand", "by_table"), READERS)
def test_a_request_without_a_body_is_an_error(
    by_hand: Callable[[bytes], Any], by_table: Callable[[bytes], Any]
) -> None:
    type_ = by_table.__self__.type_  # type: ignore[attr-defined]
    for command in (bytes((8, type_)), bytes((8, type_)) + b"\xba\x01", bytes((8, type_)) + b"\x7a\x00"):
        with pytest.raises(ProtocolError):
            by_hand(command)


@given(
    request_id=numbers,
    url=st.sampled_from(["", "pulsar://a:1", "pulsar://" + "b" * 200]),
    proxied=st.booleans(),
)
def test_a_lookup_response_is_that_of_the_table(request_id: int, url: str, proxied: bool) -> None:
    for urls in ((url, ""), ("", url), (url, url)):
        by_table = lookup_connect(request_id, *urls, proxy_through_service_url=proxied)
        assert (
            encode_lookup_connect(request_id, *urls, proxy_through_service_url=proxied) == by_table.encode()
        )


@given(request_id=numbers, count=st.integers(0, 2**32 - 1))
def test_a_number_of_partitions_is_that_of_the_table(request_id: int, count: int) -> None:
    assert encode_partitions(request_id, count) == partitions_response(request_id, count).encode()
    assert encode_success(request_id) == Success(request_id).encode()


@given(
    request_id=numbers,
    name=st.text(max_size=200),
    last=st.integers(-1, 2**63 - 1),
    version=st.binary(max_size=9),
    epoch=st.none() | numbers,
    runs=st.booleans(),
)
def test_the_response_of_a_producer_is_that_of_the_table(
    request_id: int, name: str, last: int, version: bytes, epoch: int | None, runs: bool
) -> None:
    by_table = ProducerSuccess(
        request_id, name, last, version, is_ready=True, topic_epoch=epoch, accepts_runs=runs
    )
    by_hand = encode_producer_ready(request_id, name, last, version, epoch, accepts_runs=runs)
    assert by_hand == by_table.encode()
    assert SIZES.unpack_from(by_hand)[0] == len(by_hand) - 4
