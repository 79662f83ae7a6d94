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
from tests.broker.regions import FAST, Regions, until
from tests.clients.driving import Failed, Program
from tests.clients.own import decryption_in, encryption_in
from tests.clients.telling import QUICK, case, driver, regions

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("client", [*QUICK, *(case(one) for one in ("java", "go", "rust"))]),
]
TOPIC = "persistent://public/default/orders"
OUTCOME_SECONDS = 120
LARGE = 12_000_000
"""Bytes; three chunks where a frame takes 5 MiB."""
PIECES = 7
"""Bytes of the payload that needs three times as much."""
NAMESPACE = NamespacePath("public/default")
A_PIECE_OR_TWO_A_SECOND = RateLimit(0, 8_000_000, 1)


async def opened(program: Program, world: Regions) -> None:
    """Open a client for each region."""
    for region in world.names:
        url = f"pulsar://127.0.0.1:{world.ports[region]}"
        await program.ask("client", key=region, url=url, timeout_ms=30_000)


def entries(world: Regions, region: str) -> list[bytes]:
    """Return the entries that clients published."""
    stored = world.disks[region].logs[TOPIC].entries
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


@pytest.mark.parametrize("type_", ["Exclusive", "Shared", "KeyShared"])
async def test_a_message_in_pieces_is_one_message_in_every_region(client: str, type_: str) -> None:
    """With deduplication: all chunks have the sequence id of their message. One of two consumers gets all of it."""
    if client == "rust":
        pytest.skip("it has no pieces")

    async with (
        regions("us", "eu", settings=FAST) as world,
        driver(client) as program,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        await opened(program, world)
        consumers = ["one"] if type_ == "Exclusive" else ["one", "two"]
        for region in world.names:
            for name in consumers:
                await program.ask(
                    "subscribe",
                    client=region,
                    key=f"{region}-{name}",
                    topic="orders",
                    subscription="s",
                    type=type_,
                )
        await program.ask("producer", client="us", key="p", topic="orders", chunking=1)
        sent = [
            (await program.ask("send_bytes", key="p", size=size, seed=seed, message_key=seed))["digest"]
            for seed, size in [("a", LARGE), ("b", 1_000), ("c", LARGE), ("d", 1_000)]
        ]
        for region in world.names:
            assert sorted(await all_of(program, [f"{region}-{name}" for name in consumers])) == sorted(sent)
            subscription = world.running[region].directory.serving[TOPIC].subscriptions["s"]
            await until(lambda subscription=subscription: subscription.backlog() == 0)
        assert len(entries(world, "us")) > len(sent)
        check_same_bytes(world)


@pytest.mark.parametrize("deduplication", [True, False], ids=["deduplicated", "as they come"])
async def test_a_region_that_dies_in_the_middle_of_a_message_in_pieces_costs_nobody_the_message(
    client: str, deduplication: bool
) -> None:
    """Whatever the client sends again, no chunk is stored twice: consumers discard such a message (INV-92). No consumer
    is connected where the region dies: the C++ client also discards it, if it had chunks from before its link broke."""
    if client == "rust":
        pytest.skip("it has no pieces")

    async with (
        regions("us", "eu", settings=FAST, deduplication=deduplication) as world,
        driver(client) as program,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        await opened(program, world)
        for region in world.names:
            await listen(program, region)
        await program.ask("close", key="us-c")
        await program.ask("producer", client="us", key="p", topic="orders", chunking=1)
        await world.running["us"].policies.set(NAMESPACE, PUBLISH_RATE, A_PIECE_OR_TWO_A_SECOND)
        sending = asyncio.ensure_future(
            program.ask("send_bytes", key="p", size=3 * LARGE, seed="a", message_key="a")
        )
        await until(lambda: TOPIC in world.disks["us"].logs and len(entries(world, "us")) > 1)
        await world.crash("us")
        assert 1 < len(entries(world, "us")) < PIECES, "in the middle"
        await world.start("us")
        await world.running["us"].policies.set(NAMESPACE, PUBLISH_RATE, None)
        sent = (await sending)["digest"]
        await listen(program, "us")
        for region in world.names:
            came = await program.ask("receive_bytes", key=f"{region}-c", timeout_ms=60_000)
            assert came["digest"] == sent
        assert [scan_entry(one).chunk_id for one in entries(world, "us")] == [*range(PIECES)]
        check_same_bytes(world)


async def listen(program: Program, region: str) -> None:
    """Subscribe as `REGION-c`."""
    await program.ask("subscribe", client=region, key=f"{region}-c", topic="orders", subscription="s")


async def all_of(program: Program, consumers: list[str]) -> list[str]:
    """Return the digests of four messages that these consumers received."""
    came: list[str] = []

    async def receive(consumer: str) -> None:
        while len(came) < 4:
            try:
                came.append((await program.ask("receive_bytes", key=consumer, timeout_ms=2_000))["digest"])
            except Failed as failure:  # nothing came to this one
                if failure.name == "Gone":
                    raise

    await asyncio.gather(*map(receive, consumers))
    return came


def own_library(compression: str) -> None:
    """Others bring theirs."""
    try:
        Compression[compression].check()
    except ValueError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
async def test_compressed_messages_are_the_same_in_every_region(client: str, compression: str) -> None:
    if (client, compression) == ("go", "SNAPPY"):
        pytest.skip("the Go client does not offer Snappy")
    if client == "own":
        own_library(compression)

    async with (
        regions("us", "eu", settings=FAST) as world,
        driver(client) as program,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        await opened(program, world)
        await program.ask("subscribe", client="eu", key="c", topic="orders", subscription="s")
        await program.ask("producer", client="us", key="p", topic="orders", compression=compression)
        sent = await program.ask("send_bytes", key="p", size=5_000, seed="x")
        came = await program.ask("receive_bytes", key="c", timeout_ms=20_000)
        assert came["digest"] == sent["digest"]
        said = read_metadata(entries(world, "eu")[0]).compression
        assert pb.CompressionType.Name(said) == compression
        check_same_bytes(world)


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


async def test_encrypted_messages_are_the_same_in_every_region(client: str, keys: Path) -> None:
    if client == "rust":
        pytest.skip("it does not encrypt")

    async with (
        regions("us", "eu", settings=FAST) as world,
        driver(client) as program,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        await opened(program, world)
        of = {"topic": "orders", "keys": keys}
        await program.ask("subscribe", client="eu", key="c", subscription="s", **of)
        await program.ask("producer", client="us", key="p", **of)
        sent = await program.ask("send_bytes", key="p", size=5_000, seed="x")
        came = await program.ask("receive_bytes", key="c", timeout_ms=20_000)
        assert came["digest"] == sent["digest"]
        assert all(read_metadata(data).encryption_keys for data in entries(world, "eu"))
        check_same_bytes(world)


async def test_what_one_client_encrypts_another_one_reads(client: str, keys: Path) -> None:
    """Ours and every other one, in both directions, also compressed and in batches."""
    if client in ("rust", "own"):
        pytest.skip("it does not encrypt" if client == "rust" else "it is the other one")

    async with (
        regions("us") as world,
        driver(client) as program,
        world.client("us") as ours,
        asyncio.timeout(OUTCOME_SECONDS),
    ):
        await opened(program, world)
        of = {"client": "us", "topic": "orders", "keys": keys}
        consumer = await ours.subscribe("orders", "ours", decryption=decryption_in(keys))
        await program.ask("subscribe", key="c", subscription="theirs", **of)
        await program.ask("producer", key="p", compression="ZLIB", **of)
        sent = await program.ask("send_bytes", key="p", size=50_000, seed="theirs")
        message = await consumer.receive()
        assert hashlib.sha256(message.payload).hexdigest() == sent["digest"]
        await program.ask("receive_bytes", key="c", timeout_ms=20_000)
        for batching in (None, Batching(messages_max=3, delay_ms_max=60_000)):
            producer = await ours.producer(
                "orders",
                encryption=encryption_in(keys),
                compression=Compression.ZLIB,
                batching=batching,
            )
            payloads = [b"%d" % number * 1_000 for number in range(3)]
            await asyncio.gather(*map(producer.send, payloads))
            for payload in payloads:
                came = await program.ask("receive_bytes", key="c", timeout_ms=20_000)
                assert came["digest"] == hashlib.sha256(payload).hexdigest()
