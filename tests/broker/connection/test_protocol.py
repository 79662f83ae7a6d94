"""Responses to clients that break the protocol, byte for byte."""

from __future__ import annotations

import contextlib
import struct

import pytest

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.frames import PING_FRAME, simple_frame
from tests.broker.connection.raw import RawClient, entry
from tests.broker.regions import regions

GARBAGE = {
    "random bytes": bytes(range(256)) * 4,
    "a frame larger than any message": struct.pack(">II", 2**31 - 1, 10),
    "a command larger than its frame": struct.pack(">II", 20, 4000) + b"x" * 16,
    "an empty frame": struct.pack(">II", 4, 0),
    "bytes that are no command": struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff",
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_closes_only_its_own_connection(name: str) -> None:
    """Other clients of the region are not affected."""
    async with regions("us") as world, world.client("us") as bystander:
        producer = await bystander.producer("orders")
        await producer.send(b"before")
        client = await RawClient.connect(world)
        client.writer.write(PING_FRAME + GARBAGE[name])
        with contextlib.suppress(EOFError):
            assert (await client.next()).type == pb.BaseCommand.PONG
        with pytest.raises(EOFError):
            await client.next()
        assert (await producer.send(b"after")).entry == 1


async def test_the_first_command_must_be_connect() -> None:
    """Anything else gets an error of the handshake, then the connection is closed."""
    async with regions("us") as world:
        client = await RawClient.connect(world, handshake=False)
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.topic = "orders"
        command.lookupTopic.request_id = 1
        client.writer.write(simple_frame(command))
        assert (await client.next()).error.request_id == 2**64 - 1
        with pytest.raises(EOFError):
            await client.next()


async def test_a_wrong_checksum_fails_that_message_only() -> None:
    """SEND_ERROR ChecksumError; the connection and the next message are fine."""
    async with regions("us") as world:
        client = await RawClient.connect(world)
        await client.open_producer()
        broken = bytearray(entry(b"hello"))
        broken[-1] ^= 1
        client.writer.write(send_frame(1, 0, data=bytes(broken)))
        error = (await client.next()).send_error
        assert (error.error, error.sequence_id) == (pb.ChecksumError, 0)
        client.writer.write(send_frame(1, 1, data=entry(sequence_id=1)))
        assert (await client.next()).send_receipt.sequence_id == 1


async def test_a_send_of_an_unknown_producer_closes_the_connection_but_a_late_one_is_ignored() -> None:
    """Sends that crossed a close on the wire are no violation."""
    async with regions("us") as world:
        client = await RawClient.connect(world)
        await client.open_producer()
        command = pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = 1
        command.close_producer.request_id = 5
        client.writer.write(simple_frame(command))
        assert (await client.next()).success.request_id == 5
        client.writer.write(send_frame(1, 0, data=entry()))
        assert (await client.open_producer(2)).producer_name
        client.writer.write(send_frame(77, 0, data=entry()))
        with pytest.raises(EOFError):
            await client.next()


async def test_an_unknown_command_is_ignored() -> None:
    """Newer clients may send commands that the region does not support."""
    async with regions("us") as world:
        client = await RawClient.connect(world)
        unknown = b"\x08\x63\x9a\x06\x02\x08\x01"  # type 99 with a body in field 99
        client.writer.write(struct.pack(">II", 4 + len(unknown), len(unknown)) + unknown)
        assert (await client.open_producer()).producer_name


async def test_an_oversized_message_is_refused_and_the_connection_stays() -> None:
    """A payload above the maximum that CONNECTED announced."""
    async with regions("us", max_message_bytes=1000) as world:
        client = await RawClient.connect(world)
        await client.open_producer()
        client.writer.write(send_frame(1, 0, data=entry(b"x" * 1001)))
        assert (await client.next()).send_error.error == pb.NotAllowedError
        client.writer.write(send_frame(1, 1, data=entry(b"x" * 1000, 1)))
        assert (await client.next()).send_receipt.sequence_id == 1


async def test_a_duplicate_is_acknowledged_with_no_position() -> None:
    """-1:-1, and it is not stored."""
    async with regions("us") as world:
        client = await RawClient.connect(world)
        await client.open_producer()
        frame = send_frame(1, 5, data=entry(sequence_id=5))
        client.writer.write(frame + frame)
        first, second = (await client.next()).send_receipt, (await client.next()).send_receipt
        assert first.message_id.entryId == 0
        assert second.message_id.entryId == 2**64 - 1
        assert second.message_id.ledgerId == 2**64 - 1


async def test_transactions_are_rejected_with_a_reason_where_they_are_not_enabled() -> None:
    """The client gets an error, not silence."""
    async with regions("us", transaction_coordinators=0) as world:
        client = await RawClient.connect(world)
        command = pb.BaseCommand(type=pb.BaseCommand.NEW_TXN)
        command.newTxn.request_id = 9
        client.writer.write(simple_frame(command))
        answer = (await client.next()).newTxnResponse
        assert (answer.request_id, answer.error) == (9, pb.NotAllowedError)
