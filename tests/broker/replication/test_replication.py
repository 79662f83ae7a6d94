"""Several regions, one loop: every message arrives in every region once and in order, whatever happens to the links."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from emulator.client import EARLIEST, Client, ClientSettings, Message
from emulator.config.broker_settings import BrokerSettings
from emulator.config.link_shape import LinkShape
from emulator.core.replication.progress import ReplicatorState
from emulator.errors import StorageError
from emulator.simulation.durable_media import DiskFaults
from emulator.simulation.world import world as simulated_world
from emulator.wire import pulsar_pb2 as pb
from emulator.wire.codec_hot.publishing import send_frame
from emulator.wire.entry import build_entry
from tests.broker.connection.raw import RawClient
from tests.broker.regions import Regions, regions, until

pytestmark = pytest.mark.usefixtures("simulation")  # virtual time: the tests wait for timers of the regions

TOPIC = "persistent://public/default/orders"
PATIENT = ClientSettings(backoff_seconds=0.01, backoff_seconds_max=0.05, send_timeout_seconds=None)


async def publish(client: Client, name: str, count: int) -> None:
    producer = await client.producer(TOPIC, name=name)
    for number in range(count):
        await producer.send(b"%d" % number)


def drained(world: Regions) -> bool:
    """Return whether nothing is in flight between the running regions."""
    return all(
        replicator.backlog == 0
        for region in world.running.values()
        for topic in region.directory.serving.values()
        for replicator in topic.replicators.values()
    )


async def stored(world: Regions, name: str) -> list[Message]:
    """Return everything that a reader in a region receives."""
    async with world.client(name) as client:
        reader = await client.reader(TOPIC, EARLIEST)
        found = []
        while await reader.has_message():
            found.append(await reader.receive())
        return found


async def check_all_have(world: Regions, producers: dict[str, int]) -> None:
    """Each region holds `producers`' messages once, in order of each."""
    for name in world.names:
        by_producer = defaultdict(list)
        for message in await stored(world, name):
            by_producer[message.producer_name].append(int(message.payload))
        assert by_producer == {producer: list(range(count)) for producer, count in producers.items()}


async def test_every_region_receives_every_message_once_and_in_order_of_its_origin() -> None:
    """Three regions publish at once."""
    async with regions("us", "eu", "ap") as world:
        async with world.client("us") as us, world.client("eu") as eu, world.client("ap") as ap:
            await asyncio.gather(publish(us, "p-us", 50), publish(eu, "p-eu", 60), publish(ap, "p-ap", 70))
        await until(lambda: drained(world))
        await check_all_have(world, {"p-us": 50, "p-eu": 60, "p-ap": 70})


async def test_a_message_names_its_source_region() -> None:
    """`replicated_from` is the origin; it is absent in the origin itself."""
    async with regions("us", "eu") as world, world.client("us") as client:
        await publish(client, "p", 1)
        await until(lambda: TOPIC in world.running["eu"].directory.serving and drained(world))
        assert [m.replicated_from for m in await stored(world, "us")] == [None]
        assert [m.replicated_from for m in await stored(world, "eu")] == ["us"]


async def test_a_message_goes_only_to_the_regions_its_sender_named() -> None:
    """And nowhere for a name that is no region."""
    async with regions("us", "eu", "ap") as world, world.client("us") as client:
        producer = await client.producer(TOPIC)
        await producer.send(b"0", replicate_to=["eu"])
        await producer.send(b"1", replicate_to=["__local__"])
        await producer.send(b"2")
        await until(
            lambda: all(TOPIC in r.directory.serving for r in world.running.values()) and drained(world)
        )
        assert [m.payload for m in await stored(world, "us")] == [b"0", b"1", b"2"]
        assert [m.payload for m in await stored(world, "eu")] == [b"0", b"2"]
        assert [m.payload for m in await stored(world, "ap")] == [b"2"]


@pytest.mark.parametrize("victim", ["us", "eu"])
async def test_a_crash_of_either_side_loses_and_duplicates_nothing(victim: str) -> None:
    """The source or the target crashes in the middle of a stream."""
    async with regions("us", "eu") as world, world.client("us", settings=PATIENT) as client:
        stream = asyncio.create_task(publish(client, "p", 300))
        topics = world.running["us"].directory.serving
        await until(lambda: TOPIC in topics and topics[TOPIC].state.readable_end > 100)
        await world.crash(victim)
        await world.start(victim)
        await stream
        await until(lambda: drained(world))
        await check_all_have(world, {"p": 300})


@pytest.mark.parametrize("state", ["cut", "held"])
async def test_a_healed_link_replicates_the_backlog(state: str) -> None:
    """In order, from where it stopped."""
    fast = {"peer_keep_alive_interval_ms": 30}
    async with regions("us", "eu", **fast) as world, world.client("us") as client:
        await publish(client, "before", 10)
        await until(lambda: drained(world))
        world.cut("us", "eu", state)
        await publish(client, "during", 10)
        await until(lambda: not world.running["us"].peers["eu"].connected)
        assert not drained(world)
        world.heal("us", "eu")
        await until(lambda: drained(world))
        await check_all_have(world, {"before": 10, "during": 10})


async def test_a_failed_append_reloads_the_topic_and_nothing_is_lost() -> None:
    """The store rejects a group: clients reconnect and resend everything without a receipt (INV-1, INV-2)."""
    async with regions("us", "eu") as world, world.client("us", settings=PATIENT) as client:
        await publish(client, "before", 5)
        world.running["us"].store.fail_next_group(StorageError("the disk said no", definite=False))  # type: ignore[attr-defined]
        await publish(client, "after", 5)
        await until(lambda: drained(world))
        await check_all_have(world, {"before": 5, "after": 5})


async def test_a_batch_sent_again_after_a_restart_is_not_stored_again() -> None:
    """Some clients do not send the last sequence id of a batch (INV-2)."""
    async with regions("us") as world:
        raw = await RawClient.connect(world)
        await raw.open_producer(name="p")
        raw.writer.write(send_frame(1, 10, 3, data=batch_without_its_last_id(10, 11, 12)))
        assert (await raw.next()).send_receipt.message_id.entryId == 0
        await world.stop("us")
        await world.start("us")
        raw = await RawClient.connect(world)
        assert (await raw.open_producer(name="p")).last_sequence_id == 12
        raw.writer.write(send_frame(1, 10, 3, data=batch_without_its_last_id(10, 11, 12)))
        assert (await raw.next()).send_receipt.message_id.entryId == 2**64 - 1


def batch_without_its_last_id(*sequence_ids: int) -> bytes:
    """Build it as the C++ client does."""
    payload = b""
    for sequence_id in sequence_ids:
        single = pb.SingleMessageMetadata(payload_size=1, sequence_id=sequence_id).SerializeToString()
        payload += len(single).to_bytes(4, "big") + single + b"x"
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=sequence_ids[0],
        publish_time=1,
        num_messages_in_batch=len(sequence_ids),
    )
    return build_entry(metadata, payload)


async def test_a_replaced_replicator_is_notified() -> None:
    """A late request of an earlier connection, over a healed link, displaced the live replicator. It got no response
    and waited for receipts for ever. Found by the swarm."""
    async with regions("us", "eu") as world, world.client("eu") as client:
        await publish(client, "before", 1)
        await until(lambda: drained(world))
        late = await RawClient.connect_as_region(world, "eu")
        assert (await late.next()).type == pb.BaseCommand.CONNECTED
        assert (await late.open_producer(topic=TOPIC, name="pulsar.repl.eu-->us")).producer_name
        late.writer.close()
        await publish(client, "after", 1)
        await until(lambda: drained(world))
        await check_all_have(world, {"before": 1, "after": 1})


def test_a_read_that_began_before_a_link_loss_is_not_sent_afterwards() -> None:
    """The link broke between the request of a read and its beginning, and was back before its end: the result was sent
    as the next entry, and entries in flight were never sent again. Found by the swarm."""
    link = LinkShape(latency_ms=1.0)
    settings = BrokerSettings(region_tail_bytes=1, peer_reconnect_backoff_ms=5)
    slow_reads = DiskFaults(read_seconds=(0.5, 0.5))
    with simulated_world("us", "eu", link=link, settings=settings, disk=slow_reads) as w:

        async def scenario() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"0")
            await w.quiet()
            broker = w.regions["us"].broker
            assert broker is not None
            replicator, peer = broker.directory.serving[TOPIC].replicators["eu"], broker.peers["eu"]
            w.cut("us", "eu")
            await producer.send(b"1")
            await w.simulation.until(lambda: replicator.progress.in_flight == 1)
            peer.pause_writing()
            await producer.send(b"2")
            await producer.send(b"3")

            async def break_the_link_and_go_on() -> None:
                w.heal()
                assert peer._transport is not None
                peer._transport.abort()
                peer.resume_writing()
                assert replicator.lifecycle.state is ReplicatorState.READING, "a read of 2 was requested"

            await w.regions["us"].host.ask(break_the_link_and_go_on())
            await w.quiet()
            assert [entry.entry_id for entry in w.regions["eu"].medium.entries(TOPIC)] == [0, 1, 2, 3]

        w.play(scenario())


def test_an_entry_that_takes_longer_than_the_keep_alive_arrives() -> None:
    """The PING was queued behind the entry; the peer was taken for dead, the entry was sent again, and the PING was
    queued behind it again. Found by the swarm."""
    link = LinkShape(latency_ms=1.0, bandwidth_bytes_per_second=20_000)
    settings = BrokerSettings(peer_keep_alive_interval_ms=500)
    with simulated_world("us", "eu", link=link, settings=settings) as w:

        async def scenario() -> None:
            producer = await w.client("us").producer(TOPIC)
            await producer.send(b"x" * 60_000)
            await w.quiet()
            assert [entry.entry_id for entry in w.regions["eu"].medium.entries(TOPIC)] == [0]

        w.play(scenario(), within_seconds=200)
