"""A link that breaks in the middle of a chunked message does not lose the message (INV-92)."""

from __future__ import annotations

import asyncio

import pulsar
import pytest

from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_header
from emulator.wire.entry import build_entry
from emulator.wire.message_metadata import scan_entry
from tests.broker.connection.raw import RawClient, raw_client
from tests.broker.regions import FAST, Regions, regions, until

TOPIC = "persistent://public/default/orders"
PIECES = 3
DEADLINE = 30


async def send(client: RawClient, number: int, publish_time: int = 1) -> int:
    """Send one chunk of the message with the sequence id 5; return the entry id of its receipt."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=publish_time)
    metadata.uuid, metadata.chunk_id = "p-5", number
    metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = PIECES, PIECES
    data = build_entry(metadata, b"%d" % number)
    client.writer.write(send_header(1, 5, is_chunk=True, data_length=len(data)) + data)
    return (await client.next()).send_receipt.message_id.entryId


def stored(world: Regions, region: str) -> list[int | None]:
    """Return the stored chunks, in the order of the log."""
    infos = [scan_entry(data) for data in world.disks[region].logs[TOPIC].entries]
    return [info.chunk_id for info in infos if info.marker_type is None]


def received(world: Regions) -> bytes:
    """Return the messages that a C++ client assembles."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://127.0.0.1:{world.ports['eu']}", logger=logger)
    try:
        consumer = client.subscribe("orders", "s", initial_position=pulsar.InitialPosition.Earliest)
        message: bytes = consumer.receive(DEADLINE * 1000).data()
        return message
    finally:
        client.close()


@pytest.mark.real
@pytest.mark.parametrize("deduplication", [True, False], ids=["deduplicated", "as they come"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["the link breaks", "the region is killed"])
@pytest.mark.parametrize("first", range(PIECES))
async def test_chunks_that_are_sent_again_are_stored_once(
    first: int, is_killed: bool, deduplication: bool
) -> None:
    """The client resends from any chunk without a receipt. The other region also has each chunk once."""
    async with regions("us", "eu", settings=FAST, deduplication=deduplication) as world:
        async with raw_client(world) as client:
            await client.open_producer()
            assert [await send(client, number) for number in range(2)] == [0, 1]
        if is_killed:
            await world.crash("us")
            await world.start("us")
        async with raw_client(world) as client:
            await client.open_producer()
            for number in range(first, PIECES):
                await send(client, number)
        await until(lambda: len(stored(world, "eu")) == PIECES, DEADLINE)
        assert stored(world, "us") == stored(world, "eu") == [0, 1, 2]
        assert await asyncio.to_thread(received, world) == b"012"


async def test_another_message_of_the_same_sequence_id_is_stored_completely() -> None:
    """A restarted application reuses a sequence id that it did not know its previous run had used."""
    async with regions("us", settings=FAST) as world, raw_client(world) as client:
        await client.open_producer()
        for number in range(2):
            await send(client, number)
        for number in range(PIECES):
            await send(client, number, publish_time=2)
        assert stored(world, "us") == [0, 1, 0, 1, 2]
