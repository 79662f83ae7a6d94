"""Messages that are compressed, too large, or chunked. With our own client under virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest

from emulator.client import (
    EARLIEST,
    Batching,
    Client,
    ClientError,
    Compression,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
)
from emulator.client.messages import INCOMPLETE_MAX, ChunkAssembler
from emulator.client.send_queue import OutgoingMessage
from emulator.client.topic_consumer import TopicConsumer
from emulator.config.broker_settings import BrokerSettings
from emulator.errors import ServerError
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import CLIENT_SETTINGS, World
from emulator.wire.batches import chunk_entries
from emulator.wire.message_metadata import read_entry, read_metadata

TOPIC = "persistent://public/default/orders"
BYTES_MAX = 20_000
SMALL = BrokerSettings(max_message_bytes=BYTES_MAX)
FROM_THE_START = InitialPosition.EARLIEST


def noise(size: int, seed: str = "x") -> bytes:
    """Return incompressible bytes."""
    return hashlib.shake_128(seed.encode()).digest(size)


def stored(w: World, region: str = "us") -> list[bytes]:
    return [entry.data for entry in w.regions[region].medium.entries(TOPIC)]


async def received(client: Client, count: int) -> list[Message]:
    reader = await client.reader(TOPIC, EARLIEST)
    arrived = [await asyncio.wait_for(reader.receive(), 30) for _ in range(count)]
    assert not await reader.has_message()
    return arrived


@pytest.mark.parametrize("batching", [None, Batching(messages_max=5)], ids=["single", "batch"])
@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.name)
async def test_a_compressed_message_is_received_as_it_was_sent(
    world: World, client: Client, compression: Compression, batching: Batching | None
) -> None:
    try:
        compression.check()
    except ValueError as missing:
        pytest.skip(str(missing))

    producer = await client.producer(TOPIC, compression=compression, batching=batching)
    payloads = [b"%d" % number * 500 for number in range(5)]
    await asyncio.gather(*[producer.send(one, key="k", properties={"n": "1"}) for one in payloads])
    arrived = await received(client, 5)
    assert [one.payload for one in arrived] == payloads
    assert {(one.key, one.properties["n"]) for one in arrived} == {("k", "1")}
    metadata = read_metadata(stored(world)[0])
    assert metadata.compression == compression.value
    assert (len(stored(world)[0]) < 400) is (compression is not Compression.NONE)


async def test_a_compression_without_its_library_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="lz4")

    monkeypatch.setattr("emulator.wire.payloads.import_module", missing)

    with pytest.raises(ValueError, match="to compress with LZ4, install lz4"):
        await world.client("us").producer(TOPIC, compression=Compression.LZ4)


@pytest.mark.parametrize("size", [BYTES_MAX, 3 * BYTES_MAX, 200 * BYTES_MAX])
@pytest.mark.world("us", settings=SMALL)
async def test_a_message_above_the_maximum_is_rejected_before_it_is_sent_and_the_next_one_is_not(
    world: World, size: int
) -> None:
    """It costs neither the connection nor the memory of another message."""
    producer = await world.client("us").producer(TOPIC, pending_messages_max=1)
    for _ in range(3):
        with pytest.raises(ClientError) as refusal:
            await producer.send(noise(size))
        assert (refusal.value.definite, refusal.value.code) == (True, ServerError.NotAllowedError)
    await producer.send(noise(BYTES_MAX - 500))
    assert len(stored(world)) == 1


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB], ids=lambda one: one.name)
@pytest.mark.parametrize("size", [BYTES_MAX, 2 * BYTES_MAX + 1, 10 * BYTES_MAX])
@pytest.mark.world("us", "eu", settings=SMALL)
async def test_a_large_message_is_sent_in_chunks_and_received_as_one(
    world: World, size: int, compression: Compression
) -> None:
    producer = await world.client("us").producer(TOPIC, chunking=True, compression=compression)
    sent = {}
    for payload in (b"small", noise(size), b"after"):
        sent[await producer.send(payload, key="k")] = payload
    chunks = [read_metadata(data) for data in stored(world)][1:-1]
    assert len(chunks) >= 2
    assert {one.uuid for one in chunks} == {f"{producer.name}-1"}
    assert [one.chunk_id for one in chunks] == list(range(len(chunks)))
    assert {one.sequence_id for one in chunks} == {1}
    assert all(len(data) <= BYTES_MAX for data in stored(world))
    arrived = await received(world.client("us"), 3)
    assert {one.id: one.payload for one in arrived} == sent
    await world.quiet()
    assert [one.payload for one in await received(world.client("eu"), 3)] == list(sent.values())


@pytest.mark.world("us", settings=SMALL)
async def test_all_chunks_are_acknowledged_and_redelivered_with_the_message(
    world: World, client: Client
) -> None:
    producer = await world.client("us").producer(TOPIC, chunking=True)
    payload = noise(5 * BYTES_MAX)
    for one in (payload, b"after"):
        await producer.send(one)
    options = {"type_": ConsumerType.SHARED, "initial_position": FROM_THE_START}
    consumer = await client.subscribe(TOPIC, "s", **options)  # type: ignore[arg-type]
    first = await consumer.receive()
    assert (await consumer.receive()).payload == b"after"
    consumer.negative_acknowledge(first)
    again = await asyncio.wait_for(consumer.receive(), 10)
    assert again.payload == payload
    await consumer.acknowledge(again, confirmed=True)
    assert world.regions["us"].backlog(TOPIC, "s") == 1


@pytest.mark.parametrize("in_transaction", [False, True], ids=["plain", "transaction"])
@pytest.mark.parametrize("cumulative", [False, True], ids=["single", "cumulative"])
@pytest.mark.world("us", settings=SMALL)
async def test_a_consumer_forgets_the_chunks_of_acknowledged_messages(
    client: Client, cumulative: bool, in_transaction: bool
) -> None:
    producer = await client.producer(TOPIC, chunking=True)
    for number in range(3):
        await producer.send(noise(2 * BYTES_MAX, str(number)))
    consumer = await client.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
    assert isinstance(consumer, TopicConsumer)
    messages = [await consumer.receive() for _ in range(3)]
    transaction = await client.new_transaction() if in_transaction else None
    if cumulative:
        await consumer.acknowledge_cumulative(messages[1], confirmed=True, transaction=transaction)
    else:
        await consumer.acknowledge(*messages[:2], confirmed=True, transaction=transaction)
    known = [len(consumer._chunks.chunk_ids(message.id)) for message in messages]
    assert known[:2] == [1, 1]
    assert known[2] > 1


@pytest.mark.world("us", settings=SMALL)
async def test_an_aborted_acknowledgement_redelivers_all_chunks(world: World, client: Client) -> None:
    producer = await client.producer(TOPIC, chunking=True)
    payload = noise(5 * BYTES_MAX)
    await producer.send(payload)
    consumer = await client.subscribe(TOPIC, "s", type_=ConsumerType.SHARED, initial_position=FROM_THE_START)
    transaction = await client.new_transaction()
    await consumer.acknowledge(await consumer.receive(), transaction=transaction)
    await transaction.abort()
    again = await asyncio.wait_for(consumer.receive(), 10)
    assert again.payload == payload
    await consumer.acknowledge(again, confirmed=True)
    assert world.regions["us"].backlog(TOPIC, "s") == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.world("us", settings=SMALL, disk=DiskFaults(commit_seconds=(0.01, 0.05)))
async def test_a_crash_between_chunks_loses_nothing_and_duplicates_nothing(
    world: World, client: Client, seed: int
) -> None:
    """The rest is sent to the restarted region; it deduplicates what it already has."""
    producer = await client.producer(TOPIC, name="p", chunking=True)
    payloads = [noise((1 + number % 4) * BYTES_MAX, str(number)) for number in range(12)]
    sends = [producer.send_nowait(one) for one in payloads]
    for _ in range(3):
        await asyncio.sleep(0.05)
        world.kill("us")
        await asyncio.sleep(0.5)
        world.start("us")
    await asyncio.wait_for(asyncio.gather(*sends), 120)
    assert [one.payload for one in await received(client, 12)] == payloads


@pytest.mark.world("us", settings=SMALL)
async def test_interleaved_chunks_of_several_producers_are_assembled(world: World, client: Client) -> None:
    sends, payloads = [], [noise(6 * BYTES_MAX, str(number)) for number in range(8)]
    for number, payload in enumerate(payloads):
        producer = await world.client("us").producer(TOPIC, name=f"p{number}", chunking=True)
        sends.append(producer.send_nowait(payload))
    await asyncio.gather(*sends)
    assert {one.payload for one in await received(client, 8)} == set(payloads)


async def test_of_too_many_incomplete_messages_a_consumer_drops_the_oldest_until_it_reconnects() -> None:
    assembler, made = ChunkAssembler(), []
    for number in range(INCOMPLETE_MAX + 1):
        receipt: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        message = OutgoingMessage(noise(3_000), receipt, sequence_id=number)
        made.append(chunk_entries("p", 1, message, entry_bytes_max=3_500))
    assert {len(one) for one in made} == {2}

    def add(entries: list[bytes], chunk: int) -> bytes | None:
        info = read_entry(entries[chunk])
        return assembler.add(info, entries[chunk][info.payload_offset :], MessageId(1, chunk))

    assert [add(one, 0) for one in made] == [None] * len(made)
    whole = [add(one, 1) for one in made]
    assert whole[0] is None
    assert whole[1:] == [noise(3_000)] * INCOMPLETE_MAX
    assert add(made[0], 1) is None  # nothing to follow
    assert add(made[0], 0) is None
    assert add(made[0], 0) is None  # it is redelivered, from its first chunk on
    assert add(made[0], 1) == noise(3_000)


@pytest.mark.world("us", settings=SMALL)
async def test_chunks_in_a_transaction_or_in_batches_are_rejected(client: Client) -> None:
    with pytest.raises(ValueError, match="batching and chunking cannot be combined"):
        await client.producer(TOPIC, batching=Batching(), chunking=True)
    producer = await client.producer(TOPIC, chunking=True)
    transaction = await client.new_transaction()
    with pytest.raises(ClientError, match="the region's maximum is"):
        await producer.send(noise(BYTES_MAX), transaction=transaction)


@pytest.mark.world("us", settings=SMALL)
async def test_partitions_take_large_messages_as_topics_do(world: World) -> None:
    answer = await world.ask_admin("us", "PUT", "/admin/v2/persistent/public/default/orders/partitions", 2)
    assert answer.status == 204
    client = world.client("us", settings=replace(CLIENT_SETTINGS, asks_for_partitions=True))
    producer = await client.producer(TOPIC, chunking=True)
    consumer = await client.subscribe(TOPIC, "s", initial_position=FROM_THE_START)
    payloads = {noise(3 * BYTES_MAX, str(number)) for number in range(4)}
    for payload in payloads:
        await producer.send(payload)
    arrived = [await asyncio.wait_for(consumer.receive(), 10) for _ in payloads]
    assert {one.payload for one in arrived} == payloads
    await consumer.acknowledge(*arrived, confirmed=True)
    assert [world.regions["us"].backlog(f"{TOPIC}-partition-{index}", "s") for index in range(2)] == [0, 0]


async def test_an_undecompressable_message_stays_and_others_are_received(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The message would arrive again over every new connection, so the client keeps the connection."""
    with monkeypatch.context() as patch:
        patch.setattr(Compression, "compress", lambda self, payload: b"no such stream")
        liar = await client.producer("orders", compression=Compression.ZLIB)
        await liar.send(b"x" * 1_000)
    producer = await client.producer("orders")
    await producer.send(b"readable")
    consumer = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
    connection = await client.service_connection()
    message = await consumer.receive()
    assert message.payload == b"readable"
    await consumer.acknowledge(message, confirmed=True)
    assert connection.is_open
    stats = await world.ask_admin("us", "GET", "/admin/v2/persistent/public/default/orders/stats")
    assert stats.json()["subscriptions"]["s"]["msgBacklog"] == 1
    assert "is not delivered" in caplog.text
