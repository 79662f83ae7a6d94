"""Large, compressed and encrypted messages of real clients reach other regions byte for byte."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from emulator.client import Batching, Compression
from emulator.core.flow.rate_limit import RateLimit
from emulator.core.policies.limits import PUBLISH_RATE
from emulator.model.stored_keys import NamespacePath
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.message_metadata import read_metadata, scan_entry
from tests.broker.regions import Regions, until
from tests.clients.driving import Failed
from tests.clients.harness import ORDERS, OWN, ClientProgram, Scene, clients
from tests.clients.own import decryption_in, encryption_in

pytestmark = [pytest.mark.real, pytest.mark.scene("us", "eu")]
LARGE = 12_000_000
"""Bytes; three chunks where a frame takes 5 MiB."""
CHUNKS = 7
"""Of the payload that is three times as large."""
NAMESPACE = NamespacePath("public/default")
A_CHUNK_OR_TWO_A_SECOND = RateLimit(0, 8_000_000, 1)


def entries(world: Regions, region: str) -> list[bytes]:
    """Return the entries that clients published."""
    stored = world.disks[region].logs[ORDERS].entries
    return [data for data in stored if scan_entry(data).marker_type is None]


def check_same_bytes(world: Regions) -> None:
    """Compare bytes, except for what replication adds."""
    ours, theirs = entries(world, "us"), entries(world, "eu")
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one[scan_entry(one).payload_offset :] == other[scan_entry(other, verify=True).payload_offset :]
        before, after = read_metadata(one), read_metadata(other)
        assert after.properties[-1].key.startswith("__MSG_PROP_REPL")
        del after.properties[-1]
        after.ClearField("replicated_from")
        assert before == after


@clients("rust")
@pytest.mark.parametrize("type_", ["Exclusive", "Shared", "KeyShared"])
async def test_a_chunked_message_is_one_message_in_every_region(scene: Scene, type_: str) -> None:
    """With deduplication: all chunks have the sequence id of their message. One of two consumers gets all of it."""
    program, world = scene.program, scene.world
    consumers = ["one"] if type_ == "Exclusive" else ["one", "two"]
    for region in world.names:
        for name in consumers:
            await program.subscribe(key=f"{region}-{name}", client=region, type=type_)
    await program.producer(chunking=1)
    sizes = {"a": LARGE, "b": 1_000, "c": LARGE, "d": 1_000}
    sent = [await program.send_bytes(size, seed, message_key=seed) for seed, size in sizes.items()]
    for region in world.names:
        assert sorted(await all_of(program, [f"{region}-{name}" for name in consumers])) == sorted(sent)
        subscription = world.running[region].directory.serving[ORDERS].subscriptions["s"]
        await until(lambda subscription=subscription: subscription.backlog() == 0)
    assert len(entries(world, "us")) > len(sent)
    check_same_bytes(world)


async def crash_between_chunks(scene: Scene) -> None:
    """Whatever the client sends again, no chunk is stored twice: consumers discard such a message (INV-92). No consumer
    is connected where the region dies: the C++ client also discards it, if it had chunks from before its link broke."""
    program, world = scene.program, scene.world
    for region in world.names:
        await program.subscribe(key=f"c {region}", client=region)
    await program.ask("close", key="c us")
    await program.producer(chunking=1)
    await scene.region.policies.set(NAMESPACE, PUBLISH_RATE, A_CHUNK_OR_TWO_A_SECOND)
    sending = asyncio.ensure_future(program.send_bytes(3 * LARGE, "a", message_key="a"))
    await until(lambda: ORDERS in world.disks["us"].logs and len(entries(world, "us")) > 1)
    await world.crash("us")
    assert 1 < len(entries(world, "us")) < CHUNKS, "between chunks"
    await world.start("us")
    await scene.region.policies.set(NAMESPACE, PUBLISH_RATE, None)
    sent = await sending
    await program.subscribe(key="c us")
    for region in world.names:
        assert await program.receive_bytes(f"c {region}", 60_000) == sent
    assert [scan_entry(one).chunk_id for one in entries(world, "us")] == [*range(CHUNKS)]
    check_same_bytes(world)


@clients("rust")
async def test_a_region_that_dies_between_chunks_does_not_lose_the_message(scene: Scene) -> None:
    await crash_between_chunks(scene)


@clients("rust")
@pytest.mark.scene("us", "eu", deduplication=False)
async def test_the_same_holds_without_deduplication(scene: Scene) -> None:
    await crash_between_chunks(scene)


async def all_of(program: ClientProgram, consumers: list[str]) -> list[str]:
    """Return the digests of four messages that these consumers received."""
    remaining: list[str] = []

    async def receive(consumer: str) -> None:
        while len(remaining) < 4:
            try:
                remaining.append(await program.receive_bytes(consumer, 2_000))
            except Failed as failure:  # nothing came to this one
                if failure.name == "Gone":
                    raise

    await asyncio.gather(*map(receive, consumers))
    return remaining


@clients()
@pytest.mark.parametrize("compression", list(Compression), ids=lambda one: one.name)
async def test_compressed_messages_are_the_same_in_every_region(
    scene: Scene, compression: Compression
) -> None:
    if (scene.client, compression) == ("go", Compression.SNAPPY):
        pytest.skip("the Go client does not offer Snappy")
    if scene.client == OWN:  # other clients bring their libraries
        try:
            compression.check()
        except ValueError as missing:
            pytest.skip(str(missing))
    await scene.program.subscribe(client="eu")
    await scene.program.producer(compression=compression.name)
    sent = await scene.program.send_bytes(5_000)
    assert await scene.program.receive_bytes() == sent
    stored = read_metadata(entries(scene.world, "eu")[0]).compression
    assert pb.CompressionType.Name(stored) == compression.name
    check_same_bytes(scene.world)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with a private and a public key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make keys with")
    pkcs8, private, public = (tmp_path / f"{name}.pem" for name in ("pkcs8", "private", "public"))
    for command in (
        ["genrsa", "-out", pkcs8, "2048"],
        ["rsa", "-in", pkcs8, "-traditional", "-out", private],  # the only format that the Java client reads
        ["rsa", "-in", private, "-pubout", "-out", public],
    ):
        subprocess.run([openssl, *command], check=True, capture_output=True)
    return tmp_path


@clients("rust")
async def test_encrypted_messages_are_the_same_in_every_region(scene: Scene, keys: Path) -> None:
    await scene.program.subscribe(client="eu", keys=keys)
    await scene.program.producer(keys=keys)
    sent = await scene.program.send_bytes(5_000)
    assert await scene.program.receive_bytes() == sent
    assert all(read_metadata(data).encryption_keys for data in entries(scene.world, "eu"))
    check_same_bytes(scene.world)


@clients("rust", OWN)
@pytest.mark.scene("us")
async def test_what_one_client_encrypts_another_one_reads(scene: Scene, keys: Path) -> None:
    """Ours and every other one, in both directions, also compressed and in batches."""
    program = scene.program
    async with scene.world.client("us") as ours:
        consumer = await ours.subscribe("orders", "ours", decryption=decryption_in(keys))
        await program.subscribe(subscription="theirs", keys=keys)
        await program.producer(compression="ZLIB", keys=keys)
        sent = await program.send_bytes(50_000, "theirs")
        message = await consumer.receive()
        assert hashlib.sha256(message.payload).hexdigest() == sent
        await program.receive_bytes()
        for batching in (None, Batching(messages_max=3, delay_ms_max=60_000)):
            producer = await ours.producer(
                "orders", encryption=encryption_in(keys), compression=Compression.ZLIB, batching=batching
            )
            payloads = [b"%d" % number * 1_000 for number in range(3)]
            await asyncio.gather(*map(producer.send, payloads))
            for payload in payloads:
                assert await program.receive_bytes() == hashlib.sha256(payload).hexdigest()
